"""Chooses the view of a run: for a program, for a terminal, or as lines of text."""

import contextlib
from collections.abc import Generator

from openmanus_graph.interfaces.cli.silent_keys import silent_keys
from openmanus_graph.interfaces.cli.views import JsonView, TerminalView
from openmanus_graph.interfaces.service.options import OutputOptions
from openmanus_graph.interfaces.service.runner import View


@contextlib.contextmanager
def make_view(output: OutputOptions) -> Generator[View]:
    """Open the view that the options ask for."""
    if output.json:
        yield JsonView()
        return
    view = _terminal_view(quiet=output.quiet)
    with contextlib.nullcontext() if type(view) is TerminalView else silent_keys():
        try:
            yield view
        finally:
            view.close()


def _terminal_view(*, quiet: bool) -> TerminalView:
    plain = TerminalView(quiet=quiet)
    if quiet or not plain.console.is_terminal or plain.console.is_dumb_terminal:
        return plain
    from openmanus_graph.interfaces.cli.screen import ScreenView  # loads what renders Markdown

    return ScreenView()
