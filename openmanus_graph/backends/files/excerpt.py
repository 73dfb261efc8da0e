"""Choose what to show of a long text: pages, lines, and no more than a model can use."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.output import with_overrun

MAX_LINE_CHARS = 2_000
_PART = re.compile(r"\s*(\d+)\s*(-?)\s*(\d*)\s*")


@dataclass(frozen=True)
class Lines:
    """A wanted range of lines, 1-based; no last one means the end."""

    first: int = 1
    last: int | None = None


@dataclass(frozen=True)
class Excerpt:
    """The lines that are shown, and whether the output limit cut them."""

    lines: list[str]
    first: int
    cut: bool

    @property
    def next(self) -> int:
        """The number of the first line that is not shown."""
        return self.first + len(self.lines)


def parse_lines(text: str | None) -> Lines:
    """Parse a range such as "120-400", "120-" or "7"; ToolError if it is invalid."""
    if text is None or not text.strip():
        return Lines()
    match = _PART.fullmatch(text)
    if not match or int(match[1]) < 1:
        raise ToolError(f'lines={text!r} is not a range of lines. Write "120-400", "120-" or "7".')
    first = int(match[1])
    last = int(match[3]) if match[3] else None if match[2] else first
    if last is not None and last < first:
        raise ToolError(f"lines={text!r} ends before it begins.")
    return Lines(first, last)


def parse_pages(text: str | None, total: int, unit: str) -> list[int]:
    """Parse numbers such as "1-3,7" or "5-"; ToolError if no such page exists."""
    if text is None or not text.strip():
        return list(range(1, total + 1))
    chosen: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if not match:
            raise ToolError(f'pages={text!r} is not understood. Write "3", "1-3,7" or "5-".')
        first = int(match[1])
        last = min(int(match[3]), total) if match[3] else total if match[2] else first
        chosen += [page for page in range(max(first, 1), last + 1) if page <= total]
    if not chosen:
        raise ToolError(f"pages={text!r} names nothing: the document has {total} {unit}s.")
    return chosen


def take(lines: Iterable[str], wanted: Lines, max_chars: int) -> Excerpt:
    """Take the wanted lines, or as many as fit. Reads no further than needed.

    At least one line is taken; a little more than `max_chars` is taken whole.
    """
    taken: list[str] = []
    used = fitting = 0
    for line in itertools.islice(lines, wanted.first - 1, wanted.last):
        used += len(line) + 1
        if used > with_overrun(max_chars) and taken:
            return Excerpt(taken[: max(fitting, 1)], wanted.first, cut=True)
        taken.append(line)
        fitting += used <= max_chars
    return Excerpt(taken, wanted.first, cut=False)


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Break very long lines, at a space if possible, so that each part can be requested."""
    for line in lines:
        rest = line
        while len(rest) > MAX_LINE_CHARS:
            at = rest.rfind(" ", MAX_LINE_CHARS // 2, MAX_LINE_CHARS) + 1 or MAX_LINE_CHARS
            yield rest[:at]
            rest = rest[at:]
        yield rest
