"""Shortens long output for every tool, and makes text safe to show.

A shortened text is head, tail, how much is left out, and where all of it is.
"""

import codecs
import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from openmanus_graph.runtime.workspace import Workspace

LIMIT = 8000
"""Characters of one observation."""
STREAM_LIMIT = 7000
"""Characters of a stream in it: the rest is for the tool's own text."""
_NOTE_CHARS = 200
"""Characters kept free for the note about what was left out."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?!\n)", re.MULTILINE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but line feed and tab, and those that turn the direction of text around."""
_CHUNK_BYTES = 1 << 20
_UTF8_LONGEST = 4


def shorten(text: str, workspace: Workspace, limit: int = LIMIT) -> str:
    """Return the text, or its head and tail with a note where the whole was written.

    The same text always gives the same result. Blocks when it writes.
    """
    if len(text) <= limit:
        return text
    note = _saved_note(lambda: workspace.keep(text.encode("utf-8", "replace"), ".txt"), workspace)
    return _cut(text[:limit], text[-limit:], len(text), note, limit)


def shorten_file(
    path: Path, workspace: Workspace, *, start: int = 0, limit: int = STREAM_LIMIT
) -> str:
    """Return a file's text from an offset on, shortened like `shorten`, in little memory.

    A shortened stream is copied, byte for byte, to a file named by its content. Invalid UTF-8 is
    replaced in the text. Blocks.
    """
    if path.stat().st_size - start <= limit * _UTF8_LONGEST:
        with path.open("rb") as file:
            file.seek(start)
            return shorten(plain(file.read().decode("utf-8", "replace")), workspace, limit)
    whole = _scan(path, start, limit)
    note = _saved_note(lambda: _copy(path, start, whole, workspace), workspace)
    return _cut(plain(whole.head), plain(whole.tail), whole.characters, note, limit)


def plain(text: str) -> str:
    """Remove terminal escapes and overwritten progress bars."""
    return _OVERWRITTEN.sub("", _ESCAPES.sub("", text)).replace("\r\n", "\n")


def printable(text: str) -> str:
    """Make text safe for a terminal: no control sequences, nothing that cannot be encoded."""
    return _CONTROLS.sub("", text).encode("utf-8", "replace").decode()


@dataclass(frozen=True)
class _Stream:
    name: str
    """Derived from a hash of its content."""
    size: int
    head: str
    tail: str
    characters: int


def _scan(path: Path, start: int, limit: int) -> _Stream:
    """Read a stream in chunks, keeping its head and tail."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    digest, size, head, tail, characters = hashlib.sha256(), 0, "", "", 0
    with path.open("rb") as source:
        source.seek(start)
        while piece := source.read(_CHUNK_BYTES):
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
    # A random name, so that no command in the sandbox can put a link there first.
    temporary = workspace.own / f".{secrets.token_hex(8)}.part"
    left = whole.size
    try:
        with path.open("rb") as source, temporary.open("wb") as target:
            source.seek(start)
            while left and (piece := source.read(min(left, _CHUNK_BYTES))):
                target.write(piece)
                left -= len(piece)
        return temporary.replace(workspace.own / whole.name)
    finally:
        temporary.unlink(missing_ok=True)  # a full disk leaves half of it


def _saved_note(save: Callable[[], Path], workspace: Workspace) -> str:
    """Save the whole text, and return where it is or why it could not be saved."""
    try:
        return f"the whole is in {workspace.relative(save())}"
    except OSError as error:
        return f"the whole could not be saved: {error.strerror}"


def _cut(head: str, tail: str, characters: int, note: str, limit: int) -> str:
    """Join the ends at line breaks where that costs little."""
    room = max(limit - _NOTE_CHARS, limit // 2)
    head, tail = head[: room * 2 // 3], tail[-(room // 3) :]
    line_end, line_start = head.rfind("\n") + 1, tail.find("\n") + 1
    head = head[:line_end] if line_end > len(head) * 3 // 4 else head
    tail = tail[line_start:] if 0 < line_start < len(tail) // 4 else tail
    left_out = characters - len(head) - len(tail)
    gap = "" if head.endswith("\n") else "\n"
    return f"{head}{gap}[... {left_out} characters left out; {note} ...]\n{tail}"
