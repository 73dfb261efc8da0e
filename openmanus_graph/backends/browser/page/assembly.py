"""Turn what the walk over each frame found into lines of text and entries for elements."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ROW_CHARS = 240
"""Rows (table rows, cards, list entries) up to this length are shown on one line."""

Item = list[Any]  # one step of the walk: its kind, then what it found (walk.js)
Facts = dict[str, Any]  # what the walk tells of one element (walk.js, `list`)


@dataclass(frozen=True)
class Entry:
    """An element as the walk found it."""

    frame: str
    facts: Facts
    offset: tuple[int, int]
    """Where its frame's content begins in the window."""

    @property
    def key(self) -> tuple[str, int]:
        """The key that identifies it as long as it exists."""
        return self.frame, self.facts["n"]


@dataclass
class RawLine:
    """A line that is being written."""

    parts: list[str | Entry] = field(default_factory=list[str | Entry])
    heading: int = 0

    def length(self) -> int:
        """Estimate how long the line will be."""
        return sum(
            len(part) if isinstance(part, str) else 14 + len(part.facts["name"])
            for part in self.parts
        )

    def words(self) -> str:
        """Return its text and its elements' names, without what changes as they are used."""
        return " ".join(
            part.strip() if isinstance(part, str) else part.facts["name"] for part in self.parts
        )


@dataclass(frozen=True)
class FrameWalk:
    """What the walk over one frame found."""

    key: str
    found: Mapping[str, Any]
    children: Mapping[int, str]
    """The keys of the frames inside, by the numbers of their elements."""


class Assembler:
    """Writes the lines of a page, its frames' lines where the frames are."""

    def __init__(self, walks: Mapping[str, FrameWalk]) -> None:
        self._walks = walks
        self._rows: list[list[RawLine]] = [[]]
        self._line = RawLine()

    def lines(self, key: str) -> list[RawLine]:
        """Write a frame's lines."""
        self._frame(key, (0, 0), 0)
        self._break()
        while len(self._rows) > 1:
            self._end_row()
        return self._rows[0]

    def _frame(self, key: str, offset: tuple[int, int], depth: int) -> None:
        walk = self._walks[key]
        for item in walk.found["items"]:
            match item[0]:
                case "t":
                    self._text(item[1])
                case "e":
                    self._line.parts.append(Entry(key, item[1], offset))
                case "h":
                    self._line.heading = item[1]
                case "f":
                    self._inner(walk, item[1], offset, depth)
                case mark:
                    self._boundary(mark)

    def _boundary(self, mark: str) -> None:
        """End a line or a cell, begin or end a row."""
        if mark == "|":
            return self._cell()
        self._break()
        if mark == "(":
            self._rows.append([])
        elif mark == ")":
            self._end_row()
        return None

    def _inner(self, walk: FrameWalk, facts: Facts, offset: tuple[int, int], depth: int) -> None:
        """Write a child frame where its element is."""
        self._break()
        key = walk.children.get(facts["n"], "")
        name = f'"{facts["name"]}"' if facts["name"] else facts["src"][:80]
        if key not in self._walks or depth > 8:
            if name:
                self._text(f"(frame {name}, not readable)")
                self._break()
            return
        self._text(f"(frame {name or 'without a name'}:)")
        self._break()
        left, top = facts["at"]
        self._frame(key, (round(offset[0] + left), round(offset[1] + top)), depth + 1)
        self._break()

    def _text(self, text: str) -> None:
        parts = self._line.parts
        if parts and isinstance(parts[-1], str):
            glue = parts[-1].endswith(" ") and text.startswith(" ")
            parts[-1] += text.lstrip() if glue else text
        elif text.strip() or parts:
            parts.append(text)

    def _cell(self) -> None:
        parts = self._line.parts
        if parts and not (isinstance(parts[-1], str) and parts[-1].endswith("| ")):
            self._text(" | ")

    def _break(self) -> None:
        line, self._line = self._line, RawLine()
        _trim(line)
        if line.parts:
            self._rows[-1].append(line)

    def _end_row(self) -> None:
        if len(self._rows) == 1:
            return
        row = self._rows.pop()
        if len(row) > 1 and sum(line.length() + 3 for line in row) <= ROW_CHARS:
            row = [_joined(row)]
        self._rows[-1].extend(row)


def _joined(row: Iterable[RawLine]) -> RawLine:
    whole = RawLine()
    for line in row:
        last = whole.parts[-1] if whole.parts else ""
        if whole.parts and not (isinstance(last, Entry) and last.facts.get("open")):
            whole.parts.append(" · ")
        whole.parts.extend(line.parts)
    return whole


def _trim(line: RawLine) -> None:
    """Take away blanks and cell marks at the ends, and text that holds nothing."""
    parts = line.parts
    if parts and isinstance(parts[0], str):
        parts[0] = parts[0].lstrip()
    if parts and isinstance(parts[-1], str):
        parts[-1] = parts[-1].rstrip(" |")
    for place, part in enumerate(parts):
        if isinstance(part, Entry) and part.facts["name"] and not part.facts.get("open"):
            _drop_label(parts, place, part.facts["name"])
    line.parts = [part for part in parts if part]


def _drop_label(parts: list[str | Entry], place: int, name: str) -> None:
    """Take away the text beside a field that is its name: it is said already."""
    before = parts[place - 1] if place else None
    if isinstance(before, str) and before.rstrip().endswith(name):
        parts[place - 1] = before.rstrip().removesuffix(name)
    after = parts[place + 1] if place + 1 < len(parts) else None
    if isinstance(after, str) and after.lstrip().startswith(name):
        parts[place + 1] = after.lstrip().removeprefix(name)
