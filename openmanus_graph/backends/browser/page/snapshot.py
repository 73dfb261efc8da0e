"""Snapshots of a page: lines of text with numbered elements, in reading order.

`Assembler` writes the lines from what walk.js found. `Indices` numbers the elements, the same
element alike in every snapshot.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from openmanus_graph.backends.web.page_text import ROUTES

Box = tuple[int, int, int, int]  # left, top, width and height in pixels of the window
Key = tuple[str, int]  # a frame's key and the number of an element in it
Facts = dict[str, Any]  # what walk.js reports of an element, or of a frame
FOCUSED = "focused"
STEADY = (FOCUSED, "opens on hover", "double-click too", "right-click too")
"""Words that are not state of one element: where many react alike, only the first has them."""
FIELDS = (
    "textbox", "searchbox", "combobox", "spinbutton", "slider", "date input", "time input",
    "month input", "week input", "date and time input", "color input",
)  # fmt: skip
"""Roles of fields that take typed text."""
MAX_ADDRESS_CHARS = 60
CUT = "…"  # ends an address that is not shown whole; `hover` shows it
ROW_CHARS = 240  # rows (table rows, cards, list entries) up to this length are shown on one line
TITLE_CHARS = 200
_MAX_FRAME_DEPTH = 8


@dataclass(frozen=True)
class Element:
    index: int  # stable while the element exists; never reused for another one of the tab
    frame: str  # the key of the frame's world that knows the element
    number: int
    role: str
    name: str
    box: Box
    words: tuple[str, ...] = ()  # states: checked, disabled, expanded
    value: str | None = None
    value_chars: int = 0  # the length of a value that is shown cut
    options: tuple[str, ...] = ()
    option_count: int = 0
    format: str = ""
    hint: str = ""  # class, id or picture of an element without a name
    colour: str = ""
    address: str = ""  # where a link leads, as `shown_address` writes it
    scroll_px: tuple[int, ...] | None = None
    """How much of a scroll area's content is above, below, before and behind what it shows."""
    open: bool = False  # its contents follow it in its line, because they can be acted on too
    named: bool = False
    """It is open and named nevertheless, because its contents begin with something else."""

    @property
    def key(self) -> Key:
        """Identifies the element as long as it exists."""
        return self.frame, self.number

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


_ELEMENT = TypeAdapter(Element)  # its fields have the names that walk.js writes


@dataclass(frozen=True)
class Line:
    parts: tuple[str | int, ...]
    heading: int = 0

    @property
    def indices(self) -> list[int]:
        return [part for part in self.parts if isinstance(part, int)]

    @property
    def texts(self) -> list[str]:
        """The texts between the elements, without the marks that separate them."""
        texts = (part.strip(" ·|") for part in self.parts if isinstance(part, str))
        return list(filter(None, texts))

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    @property
    def key(self) -> str:
        """Identifies the line: its text and its elements' indices."""
        return " ".join(p.strip() if isinstance(p, str) else f"[{p}]" for p in self.parts)


@dataclass(frozen=True)
class Snapshot:
    url: str
    title: str
    document: str  # changes whenever the tab loads another document
    above_px: int
    below_px: int
    view: tuple[int, int]  # the window's width and height
    lines: tuple[Line, ...]
    elements: dict[int, Element] = field(default_factory=dict[int, Element])
    messages: tuple[str, ...] = ()
    """What alerts and toasts said since the last action, even if they are gone."""
    left_out_above: int = 0
    left_out_below: int = 0  # HTML elements that were skipped because the page is too large
    covered: int = 0  # elements that are behind an open dialog
    covered_text: bool = False
    note: str = ""


@dataclass(frozen=True)
class FramePlace:
    """Where a frame's content begins in the window, and how large its pixels are drawn there."""

    left: float = 0
    top: float = 0
    scale_x: float = 1
    scale_y: float = 1

    def within(self, at: Sequence[float], scale: Sequence[float]) -> "FramePlace":
        left, top = self.left + at[0] * self.scale_x, self.top + at[1] * self.scale_y
        return FramePlace(left, top, self.scale_x * scale[0], self.scale_y * scale[1])

    def box(self, box: Sequence[float]) -> Box:
        left, top = self.left + box[0] * self.scale_x, self.top + box[1] * self.scale_y
        width, height = box[2] * self.scale_x, box[3] * self.scale_y
        return round(left), round(top), round(width), round(height)


@dataclass
class RawLine:
    """A line that is being written; its elements have no index yet."""

    parts: list[str | Element] = field(default_factory=list[str | Element])
    heading: int = 0


class Assembler:
    """Writes the lines of a page, those of its frames where the frames are."""

    def __init__(self, walks: Mapping[str, Facts], children: Mapping[Key, str]) -> None:
        """Take what walk.js found, by the frame's key, and the keys of child frames by element."""
        self._walks = walks
        self._children = children
        self._url = ""
        self._rows: list[list[RawLine]] = [[]]
        self._line = RawLine()

    def lines(self, root: str) -> list[RawLine]:
        self._url = self._walks[root]["url"]
        self._frame(root, FramePlace(), 0)
        self._break()
        while len(self._rows) > 1:
            self._end_row()
        return self._rows[0]

    def _frame(self, key: str, place: FramePlace, depth: int) -> None:
        for item in self._walks[key]["items"]:
            match item[0]:  # the kinds of walk.js: text, element, heading, frame, boundary
                case "t":
                    self._text(item[1])
                case "e":
                    self._line.parts.append(_element(key, item[1], place, self._url))
                case "h":
                    self._line.heading = item[1]
                case "f":
                    self._child_frame(key, item[1], place, depth)
                case mark:
                    self._boundary(mark)

    def _boundary(self, mark: str) -> None:
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

    def _child_frame(self, parent: str, facts: Facts, place: FramePlace, depth: int) -> None:
        key = self._children.get((parent, facts["n"]), "")
        name = f'"{facts["name"]}"' if facts["name"] else facts["src"][:80] or "without a name"
        readable = key in self._walks and depth <= _MAX_FRAME_DEPTH
        self._break()
        self._text(f"(frame {name}:)" if readable else f"(frame {name}, not readable)")
        self._break()
        if readable:
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
        """End the line, without blanks and cell marks at its ends, and labels said twice."""
        line, self._line = self._line, RawLine()
        parts = line.parts
        if parts and isinstance(parts[0], str):
            parts[0] = parts[0].lstrip()
        if parts and isinstance(parts[-1], str):
            parts[-1] = parts[-1].rstrip(" |")
        for place, part in enumerate(parts):
            if isinstance(part, Element) and part.name and not part.open:
                _drop_label(parts, place, part.name)
        line.parts = [part for part in parts if part]
        if line.parts:
            self._rows[-1].append(line)

    def _end_row(self) -> None:
        if len(self._rows) == 1:
            return
        row = self._rows.pop()
        parts_of = (part for line in row for part in line.parts)
        sizes = (len(p) if isinstance(p, str) else 14 + len(p.name) for p in parts_of)
        if len(row) > 1 and sum(sizes) + 3 * len(row) <= ROW_CHARS:
            parts: list[str | Element] = []
            for line in row:
                last = parts[-1] if parts else None
                is_open = isinstance(last, Element) and last.open
                if isinstance(last, Element) and not is_open and line.parts == [last.name]:
                    continue  # only the text that the field before it is called by
                if last is not None and not is_open:
                    parts.append(" · ")
                parts.extend(line.parts)
            row = [RawLine(parts)]
        self._rows[-1].extend(row)


def _element(frame: str, facts: Facts, place: FramePlace, page_url: str) -> Element:
    found = _ELEMENT.validate_python({"index": 0, "frame": frame, **facts})
    address = shown_address(found.address, page_url)
    return replace(found, box=place.box(found.box), address=address)


def shown_address(href: str, page_url: str) -> str:
    """Return what is shown of a link's address; empty if the link leads nowhere else.

    An address on the page's own site is shown without the site, and a long one without its query.
    """
    try:
        link, page = urlsplit(href), urlsplit(page_url)
    except ValueError:
        return ""
    if link.scheme not in ("http", "https", "mailto", "tel"):
        return ""
    address = href
    if link.netloc and (link.scheme, link.netloc) == (page.scheme, page.netloc):
        same_page = href.partition("#")[0] == page_url.partition("#")[0]
        if same_page and not link.fragment.startswith(ROUTES):
            return ""
        address = href[len(f"{link.scheme}://{link.netloc}") :]
    if len(address) <= MAX_ADDRESS_CHARS:
        return address
    return address.partition("?")[0][: MAX_ADDRESS_CHARS - 1] + CUT


def _drop_label(parts: list[str | Element], place: int, name: str) -> None:
    before = parts[place - 1] if place else None
    if isinstance(before, str) and before.rstrip().endswith(name):
        parts[place - 1] = before.rstrip().removesuffix(name)
    after = parts[place + 1] if place + 1 < len(parts) else None
    if isinstance(after, str) and after.lstrip().startswith(name):
        parts[place + 1] = after.lstrip().removeprefix(name)


Marks = tuple[tuple[str, ...], tuple[str, ...]]  # role, name and context; role, name and hint


class Indices:
    def __init__(self) -> None:
        self._last = 0
        self._document = ""
        self._indices: dict[Key, int] = {}
        self._shown: dict[Key, int] = {}
        self._marks: dict[int, Marks] = {}

    def assign(
        self, document: str, lines: Sequence[RawLine], is_detached: Callable[[Key], bool]
    ) -> dict[Key, int]:
        """Return the indices of a snapshot's elements; another document inherits none."""
        if document != self._document:
            self._document, self._indices, self._shown, self._marks = document, {}, {}, {}
        marks = dict(_marks(lines))
        detached = {key: index for key, index in self._shown.items() if is_detached(key)}
        for key in detached:
            del self._indices[key]
        added = {key: mark for key, mark in marks.items() if key not in self._indices}
        self._indices |= _successors(detached.values(), self._marks, added)
        for key in added:
            if key not in self._indices:
                self._last += 1
                self._indices[key] = self._last
        self._shown = {key: self._indices[key] for key in marks}
        self._marks = {self._shown[key]: mark for key, mark in marks.items()}
        return self._shown


def _marks(lines: Sequence[RawLine]) -> Iterator[tuple[Key, Marks]]:
    before = ""
    for line in lines:
        words = " ".join(p.strip() if isinstance(p, str) else p.name for p in line.parts)
        for one in line.parts:
            if isinstance(one, Element):
                context = before + words if len(line.parts) == 1 else words
                yield one.key, ((one.role, one.name, context), (one.role, one.name, one.hint))
        before = words


def _successors(
    detached: Iterable[int], old: Mapping[int, Marks], added: Mapping[Key, Marks]
) -> dict[Key, int]:
    """Match new elements to detached ones: first by context, then where a pair is unique."""
    successors: dict[Key, int] = {}
    for kind in (0, 1):
        old_by_mark: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index in sorted(set(detached) - set(successors.values())):
            old_by_mark[old[index][kind]].append(index)
        new_by_mark: dict[tuple[str, ...], list[Key]] = defaultdict(list)
        for key in added:
            if key not in successors:
                new_by_mark[added[key][kind]].append(key)
        for mark, keys in new_by_mark.items():
            if len(old_by_mark[mark]) == len(keys) and (kind == 0 or len(keys) == 1):
                successors.update(zip(keys, old_by_mark[mark], strict=True))
    return successors


def build_snapshot(
    root: str, walks: Mapping[str, Facts], children: Mapping[Key, str], indices: Indices
) -> Snapshot:
    """Put a snapshot together from what walk.js found in each frame, by the frame's key."""
    page, raw = walks[root], Assembler(walks, children).lines(root)
    detached = {(key, number) for key, walk in walks.items() for number in walk["gone"]}
    numbers = indices.assign(
        page["document"], raw, lambda key: key in detached or key[0] not in walks
    )
    lines: list[Line] = []
    elements: dict[int, Element] = {}
    for line in raw:
        parts: list[str | int] = []
        for part in line.parts:
            if isinstance(part, Element):
                index = numbers[part.key]
                elements[index] = replace(part, index=index)
                parts.append(index)
            else:
                parts.append(part)
        lines.append(Line(tuple(parts), line.heading))
    width, height = page["view"]
    return Snapshot(
        url=page["url"],
        title=page["title"][:TITLE_CHARS],
        document=page["document"],
        above_px=page["top"],
        below_px=max(0, page["height"] - height - page["top"]),
        view=(width, height),
        lines=tuple(lines),
        elements=elements,
        messages=tuple(text for walk in walks.values() for text in walk["messages"]),
        left_out_above=sum(walk["above"] for walk in walks.values()),
        left_out_below=sum(walk["rest"] for walk in walks.values()),
        covered=sum(walk["covered"] for walk in walks.values()),
        covered_text=any(walk["coveredText"] for walk in walks.values()),
    )
