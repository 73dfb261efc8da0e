"""Adds files, folders and web pages to a library. What did not change is not read again."""

import asyncio
import hashlib
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from openmanus_graph.backends.library.splitting import read_passages, text_passages
from openmanus_graph.backends.library.store import Document, Library
from openmanus_graph.backends.web.client import Page, fetch
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.page_text import page_text
from openmanus_graph.backends.web.reading import HTML
from openmanus_graph.config import homes
from openmanus_graph.config.files import config_home
from openmanus_graph.config.resolve import KEY_FILES
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.artifacts import files_in
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.open_beneath import named, open_beneath

_AT_ONCE = 64  # documents that one transaction writes
_WEB = ("http://", "https://")


def source_of(given: str) -> str:
    """Return the source that a user means: an address, or a path in its full form."""
    return given if given.startswith(_WEB) else str(Path(given).expanduser().resolve())


def add(
    library: Library, sources: Sequence[str], guard: Guard, *, mine: bool = False
) -> tuple[Counter[str], list[str]]:
    """Add sources, as `source_of` returns them, with all files in folders. Blocks.

    Returns how many documents were added, changed, unchanged, skipped and removed, and notes on
    what was left out. Files of a folder that are gone are removed. Documents are written in groups:
    if the process is killed, those before stay, and the next addition continues. `mine`: the user
    vouches for all. ConfigError: there is no such file or folder.
    """
    known, done, notes = library.documents(), Counter[str](), list[str]()
    same = {source: one for source, one in known.items() if one.mine or not mine}
    wanted = {name: place for source in sources for name, place in _files(source)}
    below = tuple(f"{source}/" for source in sources if not source.startswith(_WEB))
    gone = [one for one in known if one.startswith(below) and one not in wanted]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rest = iter(wanted)
        while group := list(itertools.islice(rest, _AT_ONCE)):
            read = [pool.submit(_read, one, wanted[one], guard, same.get(one)) for one in group]
            found = [one.result() for one in read]
            new = (one for one in found if one.passages)
            library.put(replace(one, mine=mine) for one in new)
            done.update(_kind(one, known) for one in found)
            notes += [f"{one.source}: {one.note}" for one in found if one.note]
    library.remove(gone)
    done["removed"] += len(gone)
    return done, notes


def _kind(found: Document, known: Mapping[str, Document]) -> str:
    if not found.digest:
        return "skipped"
    if not found.passages:
        return "unchanged"
    return "changed" if found.source in known else "added"


def _files(source: str) -> Iterator[tuple[str, tuple[Path, str] | None]]:
    """Yield the documents of a source, each with its folder and path there; None for the web.

    Hidden files of folders are left out, with links, caches, keys and our own folders.
    """
    path = Path(source)
    if source.startswith(_WEB):
        yield source, None
    elif path.is_dir():
        own = (homes.home_place(), config_home(), *(path / name for name in KEY_FILES))
        for name, _ in files_in(Workspace(path, homes.home_place(), own)):
            if "/." not in f"/{name}":
                yield f"{path / name}", (path, name)
    elif path.exists():
        yield source, (path.parent, path.name)
    else:
        raise ConfigError(
            f"There is no {source}. If it is in the library, `openmanus library remove` removes it."
        )


def _read(
    source: str, place: tuple[Path, str] | None, guard: Guard, known: Document | None
) -> Document:
    """Read a document. One that cannot be read has no digest, one that is known no passages."""
    try:
        if place is None:
            return _web_document(source, guard, known)
        with open_beneath(place[0], named(place[1])) as file:
            return _document(source, file, place[1], known)
    except (ToolError, OSError) as error:
        return Document(source, "", note=f"Skipped. {error}")


def _web_document(url: str, guard: Guard, known: Document | None) -> Document:
    page = asyncio.run(fetch(url, guard))
    if page.status >= 400:
        raise ToolError(f"The server answered {page.reason}.")
    name = page.filename or PurePosixPath(urlsplit(page.url).path).name
    with tempfile.TemporaryFile() as file:
        file.write(page.body)
        file.seek(0)
        return _document(url, file, name, known, page if page.media_type in HTML else None)


def _document(
    source: str, file: BinaryIO, name: str, known: Document | None, page: Page | None = None
) -> Document:
    """Read an opened file or web page; one that is known by its content is not read again."""
    whole: Any = file  # typeshed's protocol wants `readinto`, which a BinaryIO need not have
    digest = hashlib.file_digest(whole, "sha256").hexdigest()
    if known is not None and known.digest == digest:
        return known
    file.seek(0)
    if page is None:
        passages, note = read_passages(file, name)
    else:
        text = asyncio.run(page_text(page.body, page.url, charset=page.charset))
        passages, note = list(text_passages(text.title, text.markdown.split("\n"))), ""
    if not passages:
        raise ToolError("It has no text; it may be scanned.")
    return Document(source, digest, passages=passages, note=note)
