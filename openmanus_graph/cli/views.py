"""How a run is shown: to a person on stderr, or to a program as JSON lines on stdout."""

import contextlib
import json
import re
import shlex
import sys
import time
from collections.abc import Generator, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from rich.text import Text

from openmanus_graph.cli.failures import silence, write_out
from openmanus_graph.cli.options import OutputOptions
from openmanus_graph.cli.runner import View
from openmanus_graph.plans import MARKS

OUTPUT_LINES = 6
_REPLIES = {
    "question": " --answer TEXT",
    "approval": " --approve (or --reject; --all answers several at once)",
    "unknown_outcome": " --approve (or --reject, or --answer TEXT)",
}


@contextlib.contextmanager
def make_view(output: OutputOptions) -> Generator[View]:
    """Open the view that the options ask for."""
    if output.json:
        yield JsonView()
        return
    view = TerminalView(quiet=output.quiet)
    try:
        yield view
    finally:
        view.close()


class JsonView:
    """One JSON event per line on stdout."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Write an event; a reader that went away does not end the run."""
        write_out(json.dumps(event, ensure_ascii=False, default=str) + "\n")


class _Console(Console):
    """Writes to stderr; a reader that went away does not end the run."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Go on without a reader; rich would exit."""
        silence(sys.stderr)


class TerminalView:
    """What a person reads on stderr while it happens; the answer alone goes to stdout."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = _Console()
        self.quiet = quiet
        self.started = time.monotonic()
        self.step = 0
        self.spinner: Status | None = None
        self.line_open = False
        self.workspace = ""
        self.plan: dict[str, str] = {}
        """Lines of the plan's steps as they were last shown."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Show an event."""
        kind = str(event["type"])
        if self.quiet and kind not in ("final", "interrupt"):
            return
        getattr(self, f"_{kind}", self._ignore)(event)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._stop_spinner()

    def _ignore(self, event: Mapping[str, Any]) -> None:
        """Show nothing of this event."""

    def _run_start(self, event: Mapping[str, Any]) -> None:
        self.workspace = str(event["workspace"])
        facts = f"{event['agent']} · {event['model']} · thread {event['thread']}"
        self._line(f"[bold]{escape(facts)}[/]\n[dim]files in {escape(self.workspace)}[/]")

    def _think_start(self, event: Mapping[str, Any]) -> None:
        self.step = int(event["step"])
        self._end_line()
        if self.console.is_terminal:
            self.spinner = self.console.status(f"step {self.step}: thinking")
            self.spinner.start()

    def _token(self, event: Mapping[str, Any]) -> None:
        self._stop_spinner()
        if self.plan:
            return  # steps that run at once would write into each other's lines
        self.console.print(Text(printable(event["text"])), end="")
        self.line_open = True

    def _think_end(self, event: Mapping[str, Any]) -> None:
        self._stop_spinner()
        self._end_line()

    def _tool_start(self, event: Mapping[str, Any]) -> None:
        shown = printable(json.dumps(event["args"], ensure_ascii=False))
        shown = shown if len(shown) <= 160 else f"{shown[:160]}…"
        self._line(f"[cyan]{self.step}[/] [bold]{escape(event['tool'])}[/] {escape(shown)}")

    def _tool_end(self, event: Mapping[str, Any]) -> None:
        mark = "[green]✓[/]" if event["ok"] else "[red]✗[/]"
        self._line(f"  {mark} {escape(event['tool'])} [dim]{event['seconds']:.2f} s[/]")
        lines = printable(event["output"]).splitlines()
        shown = lines[:OUTPUT_LINES]
        if len(lines) > OUTPUT_LINES:
            shown.append(f"… {len(lines) - OUTPUT_LINES} more lines")
        for line in shown:
            self.console.print(Text(f"    {line[:200]}", style="dim"))

    def _notice(self, event: Mapping[str, Any]) -> None:
        style = {"info": "dim", "warning": "yellow", "error": "red"}[event["level"]]
        self._line(f"[{style}]{escape(printable(event['text']))}[/]")

    def _plan(self, event: Mapping[str, Any]) -> None:
        """Show the checklist: all of it when it is new, then the steps that changed."""
        for step in event["steps"]:
            line = _checklist_line(step)
            if self.plan.get(step["id"]) != line:
                self._line(line)
            self.plan[step["id"]] = line

    def _limit(self, event: Mapping[str, Any]) -> None:
        self._line(f"[yellow]limit reached: {escape(event['reason'])}[/]")

    def _interrupt(self, event: Mapping[str, Any]) -> None:
        self._line(f"[magenta]? {escape(printable(event['question']))}[/]")
        for call in event["calls"]:
            self._line(f"  {escape(call['tool'])} {escape(printable(json.dumps(call['args'])))}")

    def _final(self, event: Mapping[str, Any]) -> None:
        self._stop_spinner()
        self._end_line()
        if not self.quiet:
            self._summary(event)
        status, reason, answer = event["status"], event["stop_reason"], event["answer"]
        if reason == "error":
            self._line(f"[red]{escape(answer)}[/]")
        if status in ("waiting", "stopped", "cancelled") or reason == "error":
            command = f"openmanus resume {shlex.quote(event['thread'])}{_REPLIES.get(reason, '')}"
            self._line(f"Go on with: [bold]{escape(command)}[/]")
        # On a terminal the answer was just streamed; it is not shown twice.
        streamed = sys.stdout.isatty() and reason == "answer" and not self.quiet and not self.plan
        if answer and status != "waiting" and reason != "error" and not streamed:
            write_out(printable(answer).rstrip() + "\n")

    def _summary(self, event: Mapping[str, Any]) -> None:
        usage = event["usage"]
        tokens = f"{usage['input_tokens']:,} in ({usage['cached_tokens']:,} cached), "
        table = Table(show_header=False, box=None, padding=(0, 1))
        table.add_row("status", f"{event['status']} ({event['stop_reason']})")
        table.add_row("steps", str(self.step))
        table.add_row("tokens", f"{tokens}{usage['output_tokens']:,} out")
        table.add_row("cost", f"${usage['cost_usd']:.4f}")
        table.add_row("time", f"{time.monotonic() - self.started:.1f} s")
        for index, artifact in enumerate(event["artifacts"]):
            name = Text(f"{printable(artifact['path'])} ({artifact['size']:,} bytes)")
            table.add_row("" if index else "files", name)
        self.console.print(table)

    def _line(self, markup: str) -> None:
        self._stop_spinner()
        self._end_line()
        self.console.print(printable(markup))

    def _end_line(self) -> None:
        if self.line_open:
            self.console.print()
            self.line_open = False

    def _stop_spinner(self) -> None:
        if self.spinner is not None:
            self.spinner.stop()
            self.spinner = None


def _checklist_line(step: Mapping[str, Any]) -> str:
    facts = [step["executor"]]
    if step.get("seconds"):
        facts += [f"{step['seconds']:.1f} s", f"${step.get('cost_usd', 0.0):.4f}"]
    mark, text = escape(MARKS[step["status"]]), escape(printable(step["text"]))
    return f"{mark} [bold]{escape(step['id'])}[/] {text} [dim]({escape(', '.join(facts))})[/]"


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but line feed and tab, and what turns the direction of text around."""


def printable(text: str) -> str:
    """Make text safe for a terminal: no control sequences, nothing that cannot be encoded."""
    return _CONTROLS.sub("", text).encode("utf-8", "replace").decode()
