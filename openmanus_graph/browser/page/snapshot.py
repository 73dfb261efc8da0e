"""What a page looks like to the model: lines of text with numbered elements in them."""

from dataclasses import dataclass, field

Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels of the window."""
FOCUSED = "focused"
FIELDS = (
    "textbox", "searchbox", "combobox", "spinbutton", "slider", "date input", "time input",
    "month input", "week input", "date and time input", "color input",
)  # fmt: skip
"""What one types into."""


@dataclass(frozen=True)
class Element:
    """One thing a person can act on."""

    index: int
    """Stays the same as long as the element does; never given to another one of the tab."""
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
    """Class, id or picture of what has no name."""
    colour: str = ""
    more_px: int = 0
    """What a scroll area holds beyond what it shows."""
    open: bool = False
    """Its contents are shown in its line after it, because they can be acted on too."""

    @property
    def label(self) -> str:
        """Name it in a sentence: `[3] button "Save"`."""
        named = f' "{self.name}"' if self.name else f" {self.hint}" if self.hint else ""
        return f"[{self.index}] {self.role}{named}"

    @property
    def state(self) -> tuple[object, ...]:
        """What of it changes without its being another element; focus is told by itself."""
        words = tuple(word for word in self.words if word != FOCUSED)
        return self.name, words, self.value, self.options, self.option_count, self.format


@dataclass(frozen=True)
class Line:
    """Text and the indices of elements in reading order."""

    parts: tuple[str | int, ...]
    heading: int = 0


@dataclass(frozen=True)
class Snapshot:
    """A page at one moment."""

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
    """Nodes that were not looked at because the page is too large."""
    covered: int = 0
    """Elements that lie behind an open dialog."""
    note: str = ""

    def in_view(self, index: int) -> bool:
        """Tell whether any of the element lies in the window."""
        left, top, width, height = self.elements[index].box
        return left + width > 0 and top + height > 0 and left < self.view[0] and top < self.view[1]
