"""What is written to a person's terminal: safe text, lines, and Markdown.

What models, tools, pages and file names hold may try to control the terminal: move the cursor,
change the title, write to the clipboard, or turn the direction of text around.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.theme import Theme
from typing_extensions import override

from openmanus_graph.runtime.output import printable

if TYPE_CHECKING:
    from rich.markdown import Markdown

_THEME = Theme({"markdown.code": "cyan"})
"""Code in a line without rich's black background, which is a box on a light terminal."""
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})")


class SafeConsole(Console):
    """A rich console that writes no control characters but rich's own and line ends."""

    def __init__(self, **options: Any) -> None:  # as Console takes them
        super().__init__(theme=_THEME, **options)

    @override
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        # Behind rich, because Markdown's entities (`&#x202e;`) become characters only there.
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def say(text: str, style: str = "") -> None:
    """Write a line for the person to stderr, wrapped at words on a terminal."""
    console = SafeConsole(stderr=True, highlight=False, markup=False)
    console.print(text, style=style, soft_wrap=not console.is_terminal)


class MarkdownBlocks:
    """Takes pieces of a text; returns each block (paragraph, list, table, code) once it is whole.

    A block ends with a blank line, unless that is in fenced code or the next line is indented.
    The time is proportional to the text, however small the pieces are.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""
        """The newest line, which is incomplete."""
        self._fence = ""
        """The mark that ends the code around the next line; empty outside of code."""
        self._may_end = False

    @property
    def rest(self) -> str:
        return "\n".join([*self._lines, self._line])

    def feed(self, piece: str) -> list[str]:
        """Take a piece, and return the blocks that are whole by now."""
        *ended, self._line = (self._line + piece).split("\n")
        return [block for line in ended if (block := self._add(line))]

    def finish(self) -> str:
        """Return the last block, and forget it."""
        rest, self._lines, self._line = self.rest, [], ""
        return rest.strip("\n")

    def _add(self, line: str) -> str:
        block = ""
        if self._may_end and line.strip() and not line[0].isspace():
            block, self._lines = "\n".join(self._lines).strip("\n"), []
        if line.strip():
            self._may_end = False
        self._lines.append(line)
        mark = match["mark"] if (match := _FENCE.match(line)) else ""
        if self._fence:
            if mark.startswith(self._fence) and not line.strip().strip(mark[0]):
                self._fence, self._may_end = "", True
        elif mark:
            self._fence = mark
        elif not line.strip():
            self._may_end = True
        return block


@cache
def _markdown() -> "type[Markdown]":
    """Return rich's Markdown with headings at the left. Loaded late: most commands show none."""
    from rich.markdown import Heading, Markdown

    class LeftHeading(Heading):
        """A heading at the left, in bold: rich centres them and puts the first into a box."""

        @override
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            text = self.text.copy()
            text.justify = "left"
            text.stylize("bold underline" if self.tag == "h1" else "bold")
            yield text

    class LeftMarkdown(Markdown):
        elements = {**Markdown.elements, "heading_open": LeftHeading}

    return LeftMarkdown


class Rendered:
    """Markdown of the model in the terminal's own colours, with the addresses of links."""

    def __init__(self, text: str, last_lines: int | None = None) -> None:
        """Take a text, of which only the last lines are shown if `last_lines` is given."""
        self._markdown = _markdown()(printable(text), code_theme="ansi_dark", hyperlinks=False)
        self._last_lines = last_lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it without the blank lines that rich puts around code, lists and tables."""
        lines: list[list[Segment]] = []
        for line in console.render_lines(self._markdown, options, pad=False):
            while line and not line[-1].text.strip():  # spaces would be copied with the line
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            lines.append(line)
        full = [index for index, line in enumerate(lines) if line]
        lines = lines[full[0] : full[-1] + 1] if full else []
        for line in lines[-self._last_lines :] if self._last_lines else lines:
            yield from line
            yield Segment.line()
