"""What a page looks like to the model: lines of text with numbered elements in them."""

from dataclasses import dataclass, field

Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels of the window."""
FOCUSED = "focused"
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
    options: tuple[str, ...] = ()
    option_count: int = 0
    format: str = ""
    hint: str = ""
    """Class, id or picture of an element without a name."""
    colour: str = ""
    more_px: int = 0
    """The content of a scroll area that is out of view."""
    open: bool = False
    """Its contents are shown in its line after it, because they can be acted on too."""

    @property
    def label(self) -> str:
        """Name it in a sentence: `[3] button "Save"`."""
        named = f' "{self.name}"' if self.name else f" {self.hint}" if self.hint else ""
        return f"[{self.index}] {self.role}{named}"

    @property
    def state(self) -> tuple[object, ...]:
        """The state that may change within one element; focus is reported separately."""
        words = tuple(word for word in self.words if word != FOCUSED)
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
    left_out: int = 0
    """Nodes that were skipped because the page is too large."""
    covered: int = 0
    """Elements that lie behind an open dialog."""
    note: str = ""

    def in_view(self, index: int) -> bool:
        """Return whether any part of the element is in the viewport."""
        left, top, width, height = self.elements[index].box
        return left + width > 0 and top + height > 0 and left < self.view[0] and top < self.view[1]
