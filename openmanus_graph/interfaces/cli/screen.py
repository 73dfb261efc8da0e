"""Shows a run on a terminal: Markdown as it streams, calls as lines, and what is running now."""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text
from typing_extensions import override

from openmanus_graph.interfaces.cli.call_view import (
    diff_texts,
    edit_diff,
    end_mark,
    first_lines,
    label,
)
from openmanus_graph.interfaces.cli.console import MarkdownBlocks, Rendered
from openmanus_graph.interfaces.cli.terminal import TerminalSink, file_lines
from openmanus_graph.interfaces.service.call_titles import Args, describe_call
from openmanus_graph.interfaces.service.run_view import claims_line
from openmanus_graph.runtime.output import money, printable
from openmanus_graph.runtime.session_registry import newest_output
from openmanus_graph.state.interrupts import REACH_HOST

REFRESH_S = 0.12
DIFF_LINES = 40
LINE_CHARS = 400
"""The longest line of output."""
TAIL_CHARS = 8_000
"""How much of the end of an unfinished block is rendered while it streams."""
RUNNING_CALLS = 4
"""How many are shown with a line each."""
_RESOURCES = {"bash": "bash", "python_execute": "python"}
"""The handle whose output shows the progress of a tool's call."""


@dataclass
class _Call:
    tool: str
    args: Args
    line: str
    started: float
    printed: str = ""
    """The newest line of its output."""


class ScreenSink(TerminalSink):
    """Shows progress to a person at a terminal, the newest of it in a live display."""

    def __init__(self, *, sources: bool = False) -> None:
        super().__init__(wrap_words=True, sources=sources)
        self._thread = ""
        self._blocks = MarkdownBlocks()
        self._has_blocks = False
        """Whether a block of the reply was printed."""
        self._thinking_since: float | None = None
        self._thought = ""  # the end of the newest reply's reasoning
        self._calls: dict[str, _Call] = {}
        """The running ones, by id."""
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        self._lock = threading.RLock()
        """Held while something is written: else rich's refreshing may come between what a print
        erases and what it writes, and then removes lines."""
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
        if event["thread"] == self._thread:
            self._begin(event)  # a chat's next turn
        else:
            self._thread = str(event["thread"])
            super()._run_start(event)

    @override
    def _think_start(self, event: Mapping[str, Any]) -> None:
        super()._think_start(event)
        self._blocks, self._has_blocks, self._thought = MarkdownBlocks(), False, ""
        self._thinking_since = time.monotonic()
        self._show_live()

    @override
    def _stream(self, text: str) -> None:
        for block in self._blocks.feed(text):
            self._print_block(block)

    def _reasoning(self, event: Mapping[str, Any]) -> None:
        if not event.get("plan_step"):
            self._thought = (self._thought + printable(event["text"]))[-LINE_CHARS:]

    @override
    def _think_end(self, event: Mapping[str, Any]) -> None:
        self._thinking_since = None
        self._print_block(self._blocks.finish())
        super()._think_end(event)

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
        head, line = Text.from_markup(f"{label(event)}{end_mark(event)} "), Text(call.line)
        took = Text(f" {_duration(event['seconds'])}", style="dim")
        room = self.console.width - head.cell_len - took.cell_len
        line.truncate(max(1, room), overflow="ellipsis")
        self.console.print(Text.assemble(head, line, took))
        done, output = event["ok"] and not event.get("by_person"), event["output"]
        diff = edit_diff(call.tool, call.args, DIFF_LINES, output=output) if done else iter(())
        shown = diff_texts(diff, LINE_CHARS)
        told = shown or (done and call.tool == REACH_HOST)  # its result is for the model
        output = () if told else first_lines(output, LINE_CHARS)
        for text in (*shown, *(Text(one, style="dim") for one in output)):
            self.console.print(Padding(text, (0, 0, 0, 4)))

    @override
    def _plan(self, event: Mapping[str, Any]) -> None:
        if not event.get("plan_step"):  # a plan inside a step is not shown
            self._hide_live()
            self.checklist.update(event)
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
            if call.printed:
                printed = Text(call.printed[:LINE_CHARS], style="dim")
                self.console.print(Padding(printed, (0, 0, 0, 4)))
        self._calls.clear()
        super()._final(event)

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._hide_live()

    @override
    def _summary(self, event: Mapping[str, Any]) -> None:
        if self.checklist:
            self.console.print(self.checklist.rows(self.console.width))
        usage = event["usage"]
        steps = f"{self.step} step{'' if self.step == 1 else 's'}"
        facts = (
            f"{event['status']} ({event['stop_reason']})",
            self.checklist.progress if self.checklist else steps,
            f"{usage['input_tokens'] + usage['output_tokens']:,} tokens "
            f"({usage['cached_tokens']:,} cached)",
            money(usage["cost_usd"]),
            _duration(time.monotonic() - self.started),
            *filter(None, [claims_line(event["claims"])]),
        )
        self._line(f"[dim]{escape(' · '.join(facts))}[/]")
        for line in file_lines(event["artifacts"]):
            self.console.print(Padding(Text(line), (0, 0, 0, 2)))

    @override
    def _answer(self, answer: str) -> None:
        if sys.stdout.isatty():
            self.console.print(Rendered(answer))
        else:
            super()._answer(answer)

    def _print_block(self, block: str) -> None:
        if block.strip() and not self.checklist:
            if self._has_blocks:
                self.console.print()
            self._has_blocks = True
            self.console.print(Rendered(block))

    def live_text(self) -> str:
        with self._lock, self.console.capture() as shown:
            self.console.print(self)
        return shown.get()

    def _show_live(self) -> None:
        if self._live is None and not self.has_line:
            self._live = Live(
                console=self.console,
                get_renderable=lambda: self,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,  # the answer goes there unchanged
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def _hide_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render what is running: a plan, or calls and the end of the unfinished block."""
        if self.checklist:
            yield self.checklist
            return
        tail = self._blocks.rest.strip("\n") if self._thinking_since is not None else ""
        if tail:
            yield Rendered(tail[-TAIL_CHARS:], max(3, options.size.height // 2))
        now = time.monotonic()
        frame = self._spinner.render(now)
        calls = list(self._calls.values())
        for call in calls[:RUNNING_CALLS]:
            newest = newest_output(self._thread, _RESOURCES.get(call.tool, ""))
            call.printed = newest or call.printed
            done = Text.assemble((_duration(now - call.started), "dim"))
            yield _row(options.max_width, frame, Text(call.line), done, Text(newest, style="dim"))
        if calls[RUNNING_CALLS:]:
            yield Text(f"… and {len(calls) - RUNNING_CALLS} more", style="dim")
        if not calls and self._thinking_since is not None:
            doing = "writing" if tail or self._has_blocks else "thinking"
            waited = Text(_duration(now - self._thinking_since), style="dim")
            newest = self._thought.strip().rpartition("\n")[2] if doing == "thinking" else ""
            facts = waited, Text(newest, style="dim")
            yield _row(options.max_width, frame, Text(f"step {self.step}: {doing}"), *facts)


def _row(width: int, frame: Any, what: Text, *facts: Text) -> Text:
    """Put spinner, what is running and facts about it into one line; the facts are cut first."""
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
