"""Which HTML pages are charts that we made ourselves: their digests, out of the tools' reach.

What the page shows with scripts must be one of these. A file that a model or a program wrote, or
changed afterwards, has another digest.
"""

import hashlib

from openmanus_graph.runtime.workspace import Workspace, put_file

FOLDER = "charts"
"""In the thread's private folder: an empty file for each page, named by its digest."""


def note_own_page(workspace: Workspace, page: bytes) -> None:
    """Note that we made a page. Blocks. Raises OSError."""
    put_file(workspace, workspace.private / FOLDER / digest_of(page), b"", synced=False)


def is_own_page(workspace: Workspace, digest: str) -> bool:
    """Say whether we made the page of this digest. Blocks."""
    return (workspace.private / FOLDER / digest).exists()


def inherit_own_pages(workspace: Workspace, older: Workspace) -> None:
    """Take over what is known of the charts of the thread that this one is forked from. Blocks."""
    known = older.private / FOLDER
    for one in known.iterdir() if known.is_dir() else ():
        put_file(workspace, workspace.private / FOLDER / one.name, b"", synced=False)


def digest_of(page: bytes) -> str:
    """Return what tells a page apart from all others."""
    return hashlib.sha256(page).hexdigest()
