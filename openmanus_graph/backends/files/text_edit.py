"""Edits of a text: one exact replacement, one insertion. Pure functions.

Text is compared with every line end as a newline, so that a model need not know which ends a
file has; what is written gets the ends of the place it is written to.
"""

import difflib
import os
import re
from dataclasses import dataclass

from openmanus_graph.backends.files.text_file import printable, split_lines, with_newlines
from openmanus_graph.errors import ToolError

_MANY = 20
_SEARCHED_LINES = 20_000
_NUMBERED = re.compile(r"\s*\d+\t")


@dataclass(frozen=True)
class Edit:
    """A changed text and which of its lines are new."""

    content: str
    first: int
    last: int


def replace_once(content: str, old: str, new: str) -> Edit:
    """Replace the only occurrence of a text; ToolError if there is none or more than one."""
    plain, old, new = with_newlines(content), with_newlines(old), with_newlines(new)
    if not old:
        raise ToolError("old_str is empty. Use insert to add lines, or create for a new file.")
    if old == new:
        raise ToolError("old_str and new_str are the same (line ends apart, which are kept).")
    found = _positions(plain, old)
    if not found:
        raise ToolError(_why_missing(plain, old))
    if len(found) > 1:
        raise ToolError(_why_ambiguous(plain, found))
    # Only what differs is written: in a file of mixed line ends the common lines keep theirs.
    head = len(os.path.commonprefix([old, new]))
    tail = len(os.path.commonprefix([old[head:][::-1], new[head:][::-1]]))
    return _spliced(
        content, plain, found[0] + head, found[0] + len(old) - tail, new[head : len(new) - tail]
    )


def insert_after(content: str, line: int, text: str) -> Edit:
    """Insert whole lines after a line; 0 is the top."""
    lines = split_lines(content)
    if not 0 <= line <= len(lines):
        raise ToolError(
            f"insert_line is {line}, but must be from 0 to {len(lines)}, the last line."
        )
    added = with_newlines(text)
    count = max(1, added.count("\n") + (not added.endswith("\n")))
    end = _line_end(lines, line - 1)
    if line and not lines[line - 1].endswith(("\r", "\n")):
        added = "\n" + added  # after a last line without an end: the new last line has none either
    elif not added.endswith("\n"):
        added += "\n"
    pieces = [*lines[:line], added.replace("\n", end), *lines[line:]]
    return Edit("".join(pieces), line + 1, line + count)


def _spliced(content: str, plain: str, begin: int, stop: int, text: str) -> Edit:
    lines = split_lines(content)
    first = plain.count("\n", 0, begin)
    text_as_there = text.replace("\n", _line_end(lines, first))
    changed = (
        content[: _offset(lines, plain, begin)]
        + text_as_there
        + content[_offset(lines, plain, stop) :]
    )
    if with_newlines(changed) != plain[:begin] + text + plain[stop:]:
        raise ToolError(
            "The edit would join a lone CR and a LF into one line end; the file was not changed. "
            "Use python_execute for files with such mixed line ends."
        )
    return Edit(changed, first + 1, first + 1 + text.count("\n"))


def _offset(lines: list[str], plain: str, position: int) -> int:
    """Find where a position of the text with newlines lies in the text as stored."""
    row = plain.count("\n", 0, position)
    column = position - (plain.rfind("\n", 0, position) + 1)
    return sum(map(len, lines[:row])) + column


def _line_end(lines: list[str], index: int) -> str:
    """Return the end of a line, or of a neighbour if it has none."""
    for near in (index, index - 1, index + 1):
        if 0 <= near < len(lines):
            end = lines[near][len(lines[near].rstrip("\r\n")) :]
            if end:
                return end
    return "\n"


def _positions(plain: str, old: str) -> list[int]:
    """Find occurrences, overlapping ones too: they are just as ambiguous."""
    found: list[int] = []
    position = plain.find(old)
    while position >= 0 and len(found) <= _MANY:
        found.append(position)
        position = plain.find(old, position + 1)
    return found


def _why_ambiguous(plain: str, found: list[int]) -> str:
    numbers = ", ".join(str(plain.count("\n", 0, position) + 1) for position in found[:_MANY])
    more = " and more" if len(found) > _MANY else ""
    return (
        f"old_str occurs more than once, at lines {numbers}{more}; the file was not changed. "
        "Add lines around it so that it occurs once."
    )


def _why_missing(plain: str, old: str) -> str:
    start = "old_str was not found exactly; the file was not changed."
    wanted = old.strip("\n").split("\n")
    if all(_NUMBERED.match(line) for line in wanted if line.strip()) and old.strip():
        return f"{start} It begins with the line numbers that view shows; leave them out."
    lines = plain.split("\n")[:_SEARCHED_LINES]
    at = _block_but_for_whitespace(lines, wanted)
    if at is not None:
        return f"{start} With other whitespace it is there:\n{_listed(lines, at, len(wanted))}"
    text = next((line.strip() for line in wanted if line.strip()), "")
    short = {line.strip(): number for number, line in enumerate(lines) if len(line) < 500}
    similar = difflib.get_close_matches(text[:500], short, n=3, cutoff=0.6)
    if not similar:
        return f"{start} No line resembles its first one. View the file and copy the text."
    shown = "\n".join(_listed(lines, short[line], 1) for line in similar)
    return f"{start} The lines nearest to its first one:\n{shown}"


def _block_but_for_whitespace(lines: list[str], wanted: list[str]) -> int | None:
    squeezed = [" ".join(line.split()) for line in lines]
    pattern = [" ".join(line.split()) for line in wanted]
    if not any(pattern):
        return None
    starts = range(len(squeezed) - len(pattern) + 1)
    return next((at for at in starts if squeezed[at : at + len(pattern)] == pattern), None)


def _listed(lines: list[str], start: int, count: int) -> str:
    rows = range(start, min(start + min(count, 10), len(lines)))
    return "\n".join(f"{row + 1:6}\t{printable(lines[row])}" for row in rows)
