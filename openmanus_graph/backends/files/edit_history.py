"""What files were before each edit, on disk, so that undo survives a restart.

In the thread's private folder, below `edit_history/<path's hash>/`, each edit leaves one file: the
content before it, named by its number, the hash of the content after it, and whether there was a
file. Commands do not see it, unless there is no sandbox.
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from openmanus_graph.runtime.atomic_files import replace_file
from openmanus_graph.runtime.workspace import Workspace, names_in, opened_folder
from openmanus_graph.safety.open_beneath import open_to_read

MAX_EDITS = 100
"""Kept for one path."""
MAX_BYTES = 200 * 1024 * 1024
"""Kept for all paths of a workspace together; the oldest go first."""


@dataclass(frozen=True)
class PastEdit:
    """One edit that can be undone."""

    place: Path
    """The stored content."""
    before: bytes | None
    """None: the edit created the file."""
    after: str
    """Digest of the content that the edit wrote."""


def digest(content: bytes | None) -> str:
    """Name a content; None stands for no file."""
    return "none" if content is None else hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class EditHistory:
    """The past edits of a workspace's files. Methods block and raise OSError."""

    workspace: Workspace

    @property
    def _root(self) -> Path:
        return self.workspace.private / "edit_history"

    def _folder(self, path: str) -> Path:
        return self._root / hashlib.sha256(os.fsencode(path)).hexdigest()[:24]

    def add(self, path: str, before: bytes | None, after: bytes) -> PastEdit:
        """Store a file's content before an edit."""
        place = self._folder(path)
        with opened_folder(self.workspace, place, create=True) as folder:
            names = _entries(folder)
            number = int(names[-1].split(".")[0]) + 1 if names else 1
            kind = "absent" if before is None else "before"
            name = f"{number:06}.{digest(after)}.{kind}"
            replace_file(folder, name, before or b"", like=None)
            for old in names[: max(0, len(names) + 1 - MAX_EDITS)]:
                os.unlink(old, dir_fd=folder)
        self._limit_size(spare=name)
        return PastEdit(place / name, before, digest(after))

    def last(self, path: str) -> PastEdit | None:
        """Return the newest edit of a file."""
        place = self._folder(path)
        try:
            with opened_folder(self.workspace, place) as folder:
                names = _entries(folder)
                if not names:
                    return None
                with open_to_read(folder, names[-1], names[-1], limit=MAX_BYTES) as file:
                    before = file.read()
        except FileNotFoundError:
            return None
        _, after, kind = names[-1].split(".")
        return PastEdit(place / names[-1], None if kind == "absent" else before, after)

    def drop(self, edit: PastEdit) -> None:
        """Forget an edit."""
        with (
            suppress(FileNotFoundError),
            opened_folder(self.workspace, edit.place.parent) as folder,
        ):
            os.unlink(edit.place.name, dir_fd=folder)

    def _limit_size(self, spare: str) -> None:
        """Delete the oldest entries of all files until the rest is small enough."""
        kept: list[tuple[int, int, str, str]] = []
        with opened_folder(self.workspace, self._root) as root:
            below = names_in(root)
        for folder_name in below:
            with (
                suppress(OSError),
                opened_folder(self.workspace, self._root / folder_name) as folder,
            ):
                for name in _entries(folder):
                    entry = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    kept.append((entry.st_mtime_ns, entry.st_size, folder_name, name))
        total = sum(size for _, size, _, _ in kept)
        for _, size, folder_name, name in sorted(kept):
            if total <= MAX_BYTES:
                return
            if name != spare:
                self.drop(PastEdit(self._root / folder_name / name, None, ""))
                total -= size


def _entries(folder: int) -> list[str]:
    """List the names of entries, oldest first."""
    names = (name for name in names_in(folder) if name.endswith((".before", ".absent")))
    return sorted(name for name in names if name.count(".") == 2 and name.split(".")[0].isdecimal())
