"""A snapshot of a page: lines of text with numbered elements, and how it is put together.

`Assembler` writes the lines from what the script found; `Indices` numbers the elements, the same
element alike in every snapshot.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels of the window."""
FOCUSED = "focused"
OPENS_ON_HOVER = "opens on hover"
OTHER_CLICKS = ("double-click too", "right-click too")
"""Said once of what is all alike (quiet.js): by the first that is shown now."""
STEADY = (FOCUSED, OPENS_ON_HOVER, *OTHER_CLICKS)
"""Words that are no state of one element."""
FIELDS = (
    "textbox", "searchbox", "combobox", "spinbutton", "slider", "date input", "time input",
    "month input", "week input", "date and time input", "color input",
)  # fmt: skip
"""Roles of fields that take typed text."""


@dataclass(frozen=True)
class Element:
    """One interactive element."""

    index: int
    """Stable while the element exists; never reused for another one of the tab."""
    frame: str
    """The key of the frame's world that knows the element."""
    number: int
    """Its number there."""
    role: str
    name: str
    box: Box
    words: tuple[str, ...] = ()
    """States: checked, disabled, expanded ..."""
    value: str | None = None
    value_chars: int = 0
    """The length of a value that is shown cut."""
    options: tuple[str, ...] = ()
    option_count: int = 0
    format: str = ""
    hint: str = ""
    """Class, id or picture of an element without a name."""
    colour: str = ""
    address: str = ""
    """Where a link leads, as it is shown (`link_address`)."""
    scroll_px: tuple[int, ...] | None = None
    """How much of a scroll area's content is above, below, before and behind what it shows."""
    open: bool = False
    """Its contents are shown in its line after it, because they can be acted on too."""
    named: bool = False
    """It is open and named nevertheless, for its contents begin with something else."""

    @property
    def label(self) -> str:
        """Name it in a sentence: `[3] button "Save"`."""
        named = f' "{self.name}"' if self.name else f" {self.hint}" if self.hint else ""
        return f"[{self.index}] {self.role}{named}"

    @property
    def state(self) -> tuple[object, ...]:
        """The state that may change within one element; focus is reported separately."""
        words = tuple(word for word in self.words if word not in STEADY)
        return self.name, words, self.value, self.options, self.option_count, self.format


@dataclass(frozen=True)
class Line:
    """Text and the indices of elements in reading order."""

    parts: tuple[str | int, ...]
    heading: int = 0


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a page."""

    url: str
    title: str
    document: str
    """Changes whenever the tab loads another document."""
    above_px: int
    below_px: int
    view: tuple[int, int]
    """The window's width and height."""
    lines: tuple[Line, ...]
    elements: dict[int, Element] = field(default_factory=dict[int, Element])
    messages: tuple[str, ...] = ()
    """What alerts and toasts said since the last action, even if they are gone."""
    left_out_above: int = 0
    left_out_below: int = 0
    """HTML elements that were skipped because the page is too large."""
    covered: int = 0
    """Elements that lie behind an open dialog."""
    covered_text: bool = False
    """Text lies behind it."""
    note: str = ""

    def in_view(self, index: int) -> bool:
        """Return whether any part of the element is in the viewport."""
        left, top, width, height = self.elements[index].box
        return left + width > 0 and top + height > 0 and left < self.view[0] and top < self.view[1]


ROW_CHARS = 240
"""Rows (table rows, cards, list entries) up to this length are shown on one line."""

Item = list[Any]  # one step of the walk: its kind, then what it found (walk.js)
Facts = dict[str, Any]  # what the walk tells of one element (walk.js, `list`)


@dataclass(frozen=True)
class FramePlace:
    """Where a frame's content begins in the window, and how large its pixels are drawn there."""

    left: float = 0
    top: float = 0
    scale_x: float = 1
    scale_y: float = 1

    def within(self, at: Sequence[float], scale: Sequence[float]) -> "FramePlace":
        """Return the place of a frame within this one."""
        return FramePlace(
            self.left + at[0] * self.scale_x,
            self.top + at[1] * self.scale_y,
            self.scale_x * scale[0],
            self.scale_y * scale[1],
        )

    def box(self, box: Sequence[float]) -> Box:
        """Return where a box of the frame is in the window."""
        left, top, width, height = box
        return (
            round(self.left + left * self.scale_x),
            round(self.top + top * self.scale_y),
            round(width * self.scale_x),
            round(height * self.scale_y),
        )


@dataclass(frozen=True)
class Entry:
    """An element as the walk found it."""

    frame: str
    facts: Facts
    place: "FramePlace"
    """Where its frame's content is drawn."""

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
        self._frame(key, FramePlace(), 0)
        self._break()
        while len(self._rows) > 1:
            self._end_row()
        return self._rows[0]

    def _frame(self, key: str, place: FramePlace, depth: int) -> None:
        walk = self._walks[key]
        for item in walk.found["items"]:
            match item[0]:  # the kinds of walk.js: text, element, heading, frame, boundary
                case "t":
                    self._text(item[1])
                case "e":
                    self._line.parts.append(Entry(key, item[1], place))
                case "h":
                    self._line.heading = item[1]
                case "f":
                    self._child_frame(walk, item[1], place, depth)
                case mark:
                    self._boundary(mark)

    def _boundary(self, mark: str) -> None:
        """End a line or a cell, begin or end a row."""
        if mark == "|":
            parts = self._line.parts
            if parts and not (isinstance(parts[-1], str) and parts[-1].endswith("| ")):
                self._text(" | ")
            return
        self._break()
        if mark == "(":
            self._rows.append([])
        elif mark == ")":
            self._end_row()

    def _child_frame(self, walk: FrameWalk, facts: Facts, place: FramePlace, depth: int) -> None:
        """Write a child frame where its element is."""
        self._break()
        key = walk.children.get(facts["n"], "")
        name = f'"{facts["name"]}"' if facts["name"] else facts["src"][:80]
        if key not in self._walks or depth > 8:
            self._text(f"(frame {name or 'without a name'}, not readable)")
            self._break()
            return
        self._text(f"(frame {name or 'without a name'}:)")
        self._break()
        self._frame(key, place.within(facts["at"], facts["scale"]), depth + 1)
        self._break()

    def _text(self, text: str) -> None:
        parts = self._line.parts
        if parts and isinstance(parts[-1], str):
            glue = parts[-1].endswith(" ") and text.startswith(" ")
            parts[-1] += text.lstrip() if glue else text
        elif text.strip() or parts:
            parts.append(text)

    def _break(self) -> None:
        line, self._line = self._line, RawLine()
        _trim(line)
        if line.parts:
            self._rows[-1].append(line)

    def _end_row(self) -> None:
        """End a row: it is one line if it is short."""
        if len(self._rows) == 1:
            return
        row = self._rows.pop()
        if len(row) > 1 and sum(line.length() + 3 for line in row) <= ROW_CHARS:
            parts: list[str | Entry] = []
            for line in row:
                if _repeats_name(line, parts):
                    continue
                if parts and not (isinstance(parts[-1], Entry) and parts[-1].facts.get("open")):
                    parts.append(" · ")
                parts.extend(line.parts)
            row = [RawLine(parts)]
        self._rows[-1].extend(row)


def _repeats_name(line: RawLine, before: Sequence[str | Entry]) -> bool:
    """Return whether a line is only the text that the field before it is called by."""
    last = before[-1] if before else None
    if not isinstance(last, Entry) or last.facts.get("open"):
        return False
    return line.parts == [last.facts["name"]]


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


Key = tuple[str, int]
"""A frame's key and an element's number in it."""
Mark = tuple[str, ...]
Marks = tuple[Mark, Mark]
"""Role, name and context; role, name and hint."""


@dataclass
class LastSnapshot:
    """The indices and marks of the elements of the last snapshot."""

    numbers: dict[Key, int] = field(default_factory=dict[Key, int])
    marks: dict[int, Marks] = field(default_factory=dict[int, Marks])


class Indices:
    """Assigns indices to a tab's elements."""

    def __init__(self) -> None:
        self._last = 0
        self._document = ""
        self._last_snapshot = LastSnapshot()
        self._indices: dict[Key, int] = {}

    def assign(
        self, document: str, lines: Sequence[RawLine], is_detached: Callable[[Key], bool]
    ) -> dict[Key, int]:
        """Assign indices to the elements of a snapshot; another document gets new ones.

        Args:
            document: The tab's document id; nothing is inherited from another document.
            lines: The page's lines.
            is_detached: Returns whether an element was removed from its document (not only hidden).
        """
        if document != self._document:
            self._document, self._last_snapshot, self._indices = document, LastSnapshot(), {}
        marks = dict(_marks(lines))
        detached = {
            key: index for key, index in self._last_snapshot.numbers.items() if is_detached(key)
        }
        for key in detached:
            del self._indices[key]
        added = [key for key in marks if key not in self._indices]
        self._indices |= _successors(
            detached, self._last_snapshot.marks, {key: marks[key] for key in added}
        )
        for key in added:
            if key not in self._indices:
                self._last += 1
                self._indices[key] = self._last
        numbers = {key: self._indices[key] for key in marks}
        self._last_snapshot = LastSnapshot(
            numbers, {numbers[key]: mark for key, mark in marks.items()}
        )
        return numbers


def _marks(lines: Sequence[RawLine]) -> Iterator[tuple[Key, Marks]]:
    before = ""
    for line in lines:
        words = line.words()
        entries = [part for part in line.parts if isinstance(part, Entry)]
        is_only_part = len(entries) == len(line.parts) == 1
        for entry in entries:
            role, name = entry.facts["role"], entry.facts["name"]
            yield (
                entry.key,
                (
                    (role, name, before + words if is_only_part else words),
                    (role, name, entry.facts.get("hint", "")),
                ),
            )
        before = words


def _successors(
    detached: Mapping[Key, int], old: Mapping[int, Marks], added: Mapping[Key, Marks]
) -> dict[Key, int]:
    """Match new elements to detached ones: first by context, then where a pair is unique."""
    successors: dict[Key, int] = {}
    for kind in (0, 1):
        old_by_mark: dict[Mark, list[int]] = defaultdict(list)
        for index in sorted(set(detached.values()) - set(successors.values())):
            old_by_mark[old[index][kind]].append(index)
        new_by_mark: dict[Mark, list[Key]] = defaultdict(list)
        for key in added:
            if key not in successors:
                new_by_mark[added[key][kind]].append(key)
        for mark, keys in new_by_mark.items():
            if len(old_by_mark[mark]) == len(keys) and (kind == 0 or len(keys) == 1):
                successors.update(zip(keys, old_by_mark[mark], strict=True))
    return successors
