"""Cutting long output once, for every tool: head, tail, how much is missing, where it all is."""

import codecs
import hashlib
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from openmanus_graph.workspace import Workspace

LIMIT = 8000
"""Characters of one observation."""
STREAM_LIMIT = 7000
"""Characters of a stream in it: the rest is for what the tool has to say."""
_NOTE = 200
"""Characters kept free for the note about what was left out."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?!\n)", re.MULTILINE)
_CHUNK = 1 << 20
_UTF8_LONGEST = 4


def shorten(text: str, workspace: Workspace, limit: int = LIMIT) -> str:
    """Return the text, or its head and tail with a note where the whole was written.

    The same text always gives the same result. Blocks when it writes.
    """
    if len(text) <= limit:
        return text
    try:
        kept = workspace.keep(text.encode("utf-8", "replace"), ".txt")
        where = _kept_in(kept, workspace)
    except OSError as error:
        where = _not_kept(error)
    return _cut(text[:limit], text[-limit:], len(text), where, limit)


def shorten_file(
    path: Path, workspace: Workspace, *, start: int = 0, limit: int = STREAM_LIMIT
) -> str:
    """Return what a file holds from an offset on, cut like `shorten`, in little memory.

    What is cut is copied, byte for byte, to a file named by its content. Invalid UTF-8 is
    replaced in the text. Blocks.
    """
    if path.stat().st_size - start <= limit * _UTF8_LONGEST:
        with path.open("rb") as file:
            file.seek(start)
            return shorten(plain(file.read().decode("utf-8", "replace")), workspace, limit)
    whole = _look_through(path, start, limit)
    try:
        where = _kept_in(_copy(path, start, whole, workspace), workspace)
    except OSError as error:
        where = _not_kept(error)
    return _cut(plain(whole.head), plain(whole.tail), whole.characters, where, limit)


def plain(text: str) -> str:
    """Take out terminal escapes and what a progress bar has overwritten."""
    return _OVERWRITTEN.sub("", _ESCAPES.sub("", text)).replace("\r\n", "\n")


@dataclass(frozen=True)
class _Stream:
    name: str
    """Made from its content."""
    size: int
    head: str
    tail: str
    characters: int


def _look_through(path: Path, start: int, limit: int) -> _Stream:
    """Read a stream piece by piece, remembering its ends."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    digest, size, head, tail, characters = hashlib.sha256(), 0, "", "", 0
    with path.open("rb") as source:
        source.seek(start)
        while piece := source.read(_CHUNK):
            size += len(piece)
            digest.update(piece)
            text = decoder.decode(piece)
            characters += len(text)
            head = head if len(head) >= limit else (head + text)[:limit]
            tail = (tail + text)[-limit:]
    return _Stream(f"{digest.hexdigest()[:16]}.txt", size, head, tail, characters)


def _copy(path: Path, start: int, whole: _Stream, workspace: Workspace) -> Path:
    """Copy a stream, even if more was written to it meanwhile, and return the copy."""
    workspace.own.mkdir(parents=True, exist_ok=True)
    # A name that no command in the sandbox can know, and put a link in its place.
    temporary = workspace.own / f".{secrets.token_hex(8)}.part"
    left = whole.size
    try:
        with path.open("rb") as source, temporary.open("wb") as target:
            source.seek(start)
            while left and (piece := source.read(min(left, _CHUNK))):
                target.write(piece)
                left -= len(piece)
        return temporary.replace(workspace.own / whole.name)
    finally:
        temporary.unlink(missing_ok=True)  # a full disk leaves half of it


def _kept_in(path: Path, workspace: Workspace) -> str:
    return f"the whole is in {workspace.relative(path)}"


def _not_kept(error: OSError) -> str:
    return f"the whole could not be saved: {error.strerror}"


def _cut(head: str, tail: str, characters: int, where: str, limit: int) -> str:
    """Join the ends at line breaks where that costs little."""
    room = max(limit - _NOTE, limit // 2)
    head, tail = head[: room * 2 // 3], tail[-(room // 3) :]
    line_end, line_start = head.rfind("\n") + 1, tail.find("\n") + 1
    head = head[:line_end] if line_end > len(head) * 3 // 4 else head
    tail = tail[line_start:] if 0 < line_start < len(tail) // 4 else tail
    left_out = characters - len(head) - len(tail)
    gap = "" if head.endswith("\n") else "\n"
    return f"{head}{gap}[... {left_out} characters left out; {where} ...]\n{tail}"
