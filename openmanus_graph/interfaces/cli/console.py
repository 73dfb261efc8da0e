"""The console that everything for a person's terminal passes.

What models, tools, pages and file names hold may try to control the terminal: move the cursor,
change the title, write to the clipboard, or turn the direction of text around.
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.theme import Theme
from typing_extensions import override

from openmanus_graph.runtime.output import printable

_THEME = Theme({"markdown.code": "cyan"})
"""Code in a line without rich's black background, which is a box on a light terminal."""


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
