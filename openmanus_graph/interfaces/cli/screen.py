"""The view of a run on a terminal: Markdown as it streams, calls as lines, and what goes on now."""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown
from rich.markup import escape
from rich.padding import Padding
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text
from typing_extensions import override

from openmanus_graph.interfaces.cli.call_lines import describe_call, edit_diff
from openmanus_graph.interfaces.cli.event_sinks import OUTPUT_LINES, TerminalSink, file_lines, label
from openmanus_graph.interfaces.cli.markdown_blocks import MarkdownBlocks
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.session_registry import newest_output

REFRESH_S = 0.12
DIFF_LINES = 40
LINE_CHARS = 400
"""Of one line of output."""
TAIL_CHARS = 8_000
"""Of the end of an unfinished block that is rendered while it streams."""
RUNNING_CALLS = 4
"""That are shown with a line each."""
_RESOURCES = {"bash": "bash", "python_execute": "python"}
"""The handle whose output shows how a tool's call goes on."""
_DIFF_STYLES = {"+": "green", "-": "red", " ": "dim", "…": "dim"}


@dataclass(frozen=True)
class _Call:
    """A running call."""

    tool: str
    args: Mapping[str, Any]
    line: str
    started: float


class _Heading(Heading):
    """A heading at the left, in bold: rich centres them and puts the first into a box."""

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield text


class _Markdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _Heading}


class Rendered:
    """A text of the model as Markdown: in the terminal's own colours, with links' addresses."""

    def __init__(self, text: str, last_lines: int | None = None) -> None:
        """Take a text.

        Args:
            text: Markdown.
            last_lines: How many of its last lines are shown; None for all.
        """
        self._markdown = _Markdown(printable(text), code_theme="ansi_dark", hyperlinks=False)
        self._last_lines = last_lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it without the blank lines that rich puts around code, lists and tables."""
        rendered = console.render_lines(self._markdown, options, pad=False)
        lines = list(map(_without_padding, rendered))
        full = [index for index, line in enumerate(lines) if line]
        lines = lines[full[0] : full[-1] + 1] if full else []
        for line in lines[-self._last_lines :] if self._last_lines else lines:
            yield from line
            yield Segment.line()


def _without_padding(line: list[Segment]) -> list[Segment]:
    """Return a line without the spaces at its end, which would be copied with it."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    if line:
        line = [*line[:-1], Segment(line[-1].text.rstrip(), line[-1].style)]
    return line


class ScreenSink(TerminalSink):
    """Shows progress to a person at a terminal; a plan's steps as `TerminalView` does."""

    def __init__(self) -> None:
        super().__init__(wrap_words=True)
        self._thread = ""
        self._blocks = MarkdownBlocks()
        self._has_blocks = False
        """Whether a block of the reply was printed."""
        self._thinking_since: float | None = None
        self._calls: dict[str, _Call] = {}
        """The running ones, by id."""
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        self._lock = threading.RLock()
        """Held while something is written: rich's own refreshing may come between what a print
        erases and what it writes, and then takes lines away."""
        self._closed = threading.Event()
        threading.Thread(target=self._refresh, daemon=True).start()

    @override
    def show(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            super().show(event)

    def _refresh(self) -> None:
        while not self._closed.wait(REFRESH_S):
            with self._lock:
                if self._live is not None:
                    self._live.refresh()

    @override
    def _run_start(self, event: Mapping[str, Any]) -> None:
        self._calls.clear()
        if event["thread"] == self._thread:  # a chat's next turn
            self._begin(event)
            return
        self._thread = str(event["thread"])
        super()._run_start(event)

    @override
    def _think_start(self, event: Mapping[str, Any]) -> None:
        self._count_step(event)
        self.said = ""
        self._blocks, self._has_blocks = MarkdownBlocks(), False
        self._thinking_since = time.monotonic()
        self._doing(event, "thinking")
        self._show_live()

    @override
    def _token(self, event: Mapping[str, Any]) -> None:
        if self.checklist or event.get("plan_step"):
            return  # steps that run at once would write into each other's lines
        self.said += event["text"]
        for block in self._blocks.feed(event["text"]):
            self._print_block(block)

    @override
    def _think_end(self, event: Mapping[str, Any]) -> None:
        self._thinking_since = None
        self._print_block(self._blocks.finish())
        self._doing(event, "" if event["tool_calls"] else "answered")

    @override
    def _tool_start(self, event: Mapping[str, Any]) -> None:
        tool, args = str(event["tool"]), event["args"]
        call = _Call(tool, args, printable(describe_call(tool, args)), time.monotonic())
        self._calls[str(event["call_id"])] = call
        self._doing(event, tool)
        self._show_live()

    @override
    def _tool_end(self, event: Mapping[str, Any]) -> None:
        tool = str(event["tool"])
        call = self._calls.pop(str(event["call_id"]), _Call(tool, {}, tool, 0.0))
        self._doing(event, "")
        mark = "[green]✓[/]" if event["ok"] else "[red]✗[/]"
        head, line = Text.from_markup(f"{label(event)}{mark} "), Text(call.line)
        took = Text(f" {_duration(event['seconds'])}", style="dim")
        room = self.console.width - head.cell_len - took.cell_len
        line.truncate(max(1, room), overflow="ellipsis")
        self.console.print(Text.assemble(head, line, took))
        if not (event["ok"] and self._print_diff(call)):
            self._print_output(event["output"])

    def _print_diff(self, call: _Call) -> bool:
        """Print what an edit has changed; False for a call that is none."""
        lines = list(edit_diff(call.tool, call.args, DIFF_LINES))
        for mark, line in lines:
            text = Text(f"{mark} {line[:LINE_CHARS]}", style=_DIFF_STYLES[mark])
            self.console.print(Padding(text, (0, 0, 0, 4)))
        return bool(lines)

    def _print_output(self, output: str) -> None:
        lines = [line[:LINE_CHARS] for line in printable(output).splitlines()]
        shown = lines[:OUTPUT_LINES]
        if len(lines) > OUTPUT_LINES:
            shown.append(f"… {len(lines) - OUTPUT_LINES} more lines")
        for line in shown:
            self.console.print(Padding(Text(line, style="dim"), (0, 0, 0, 4)))

    @override
    def _plan(self, event: Mapping[str, Any]) -> None:
        self._hide_live()
        super()._plan(event)
        self._show_live()

    _plan_change = _plan

    @override
    def _interrupt(self, event: Mapping[str, Any]) -> None:
        self._hide_live()
        super()._interrupt(event)

    @override
    def _final(self, event: Mapping[str, Any]) -> None:
        self._print_block(self._blocks.finish())
        self._hide_live()
        for call in self._calls.values():
            self._line(f"[yellow]…[/] {escape(call.line)}")
        self._calls.clear()
        super()._final(event)

    @override
    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._hide_live()
            super().close()

    @override
    def _summary(self, event: Mapping[str, Any]) -> None:
        if self.checklist:
            self.console.print(self.checklist.all_steps())
        self._line(f"[dim]{escape(self._bill(event))}[/]")
        for line in file_lines(event["artifacts"]):
            self.console.print(Padding(Text(line), (0, 0, 0, 2)))

    def _bill(self, event: Mapping[str, Any]) -> str:
        usage = event["usage"]
        steps = f"{self.step} step{'' if self.step == 1 else 's'}"
        return " · ".join(
            (
                f"{event['status']} ({event['stop_reason']})",
                self.checklist.progress if self.checklist else steps,
                f"{usage['input_tokens'] + usage['output_tokens']:,} tokens "
                f"({usage['cached_tokens']:,} cached)",
                f"${usage['cost_usd']:.4f}",
                _duration(time.monotonic() - self.started),
            )
        )

    @override
    def _answer(self, answer: str) -> None:
        if sys.stdout.isatty():
            self.console.print(Rendered(answer))
        else:
            super()._answer(answer)

    def _print_block(self, block: str) -> None:
        if not block.strip() or self.checklist:
            return
        if self._has_blocks:
            self.console.print()
        self._has_blocks = True
        self.console.print(Rendered(block))

    def _show_live(self) -> None:
        """Show what goes on now; for a plan the checklist does that."""
        if self.checklist:
            self.checklist.show()
        elif self._live is None:
            self._live = Live(
                console=self.console,
                get_renderable=lambda: self,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def _hide_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the live display: the end of the unfinished block, and what is waited for."""
        tail = self._blocks.rest.strip("\n") if self._thinking_since is not None else ""
        if tail:
            yield Rendered(tail[-TAIL_CHARS:], max(3, options.size.height // 2))
        now = time.monotonic()
        frame = self._spinner.render(now)
        calls = list(self._calls.values())
        for call in calls[:RUNNING_CALLS]:
            newest = newest_output(self._thread, _RESOURCES.get(call.tool, ""))
            done = Text.assemble((_duration(now - call.started), "dim"))
            yield _row(options.max_width, frame, Text(call.line), done, Text(newest, style="dim"))
        if calls[RUNNING_CALLS:]:
            yield Text(f"… and {len(calls) - RUNNING_CALLS} more", style="dim")
        if not calls and self._thinking_since is not None:
            doing = "writing" if tail or self._has_blocks else "thinking"
            waited = Text(_duration(now - self._thinking_since), style="dim")
            yield _row(options.max_width, frame, Text(f"step {self.step}: {doing}"), waited)


def _row(width: int, frame: Any, what: Text, *facts: Text) -> Text:
    """Put spinner, what goes on and facts about it into one line; the facts are cut first."""
    rest = Text("  ").join(fact for fact in facts if fact.plain)
    what.truncate(max(width // 2, width - rest.cell_len - 5), overflow="ellipsis")
    row = Text(" ", no_wrap=True, overflow="ellipsis").join((Text.assemble(frame), what, rest))
    row.truncate(width - 1, overflow="ellipsis")
    return row


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s"
