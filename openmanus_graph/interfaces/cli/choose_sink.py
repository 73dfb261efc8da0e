"""Chooses the view of a run: for a program, for a terminal, or as lines of text."""

import contextlib
from collections.abc import Generator

from openmanus_graph.interfaces.cli.event_sinks import JsonSink, TerminalSink
from openmanus_graph.interfaces.cli.silent_keys import silent_keys
from openmanus_graph.interfaces.service.options import OutputOptions
from openmanus_graph.interfaces.service.runner import EventSink


@contextlib.contextmanager
def make_sink(output: OutputOptions) -> Generator[EventSink]:
    """Open the view that the options ask for."""
    if output.json:
        yield JsonSink()
        return
    sink = _terminal_sink(quiet=output.quiet)
    with contextlib.nullcontext() if type(sink) is TerminalSink else silent_keys():
        try:
            yield sink
        finally:
            sink.close()


def _terminal_sink(*, quiet: bool) -> TerminalSink:
    plain = TerminalSink(quiet=quiet)
    if quiet or not plain.console.is_terminal or plain.console.is_dumb_terminal:
        return plain
    from openmanus_graph.interfaces.cli.screen import ScreenSink  # loads what renders Markdown

    return ScreenSink()
