"""Views of a run: for a person on stderr, or as JSON lines on stdout for a program."""

import json
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from openmanus_graph.interfaces.cli.checklist import Checklist
from openmanus_graph.interfaces.cli.safe_console import SafeConsole
from openmanus_graph.interfaces.cli.streams import write_out
from openmanus_graph.planning.plan_view import is_plan_request
from openmanus_graph.runtime.output import printable
from openmanus_graph.safety.open_beneath import shown as quoted_name

OUTPUT_LINES = 6
SHOWN_FILES = 20
_REPLIES = {
    "question": " --answer TEXT",
    "approval": " --approve (or --reject; of several: --all, or one by --id)",
    "unknown_outcome": " --approve (or --reject, or --answer TEXT)",
}
_LIMIT_OPTIONS = {
    "max_steps": "--max-steps",
    "max_cost_usd": "--max-cost-usd",
    "max_total_tokens": "--max-tokens",
    "timeout_s": "--timeout",
}
"""Which of a limit's settings is raised by which option."""
_PLAN_REPLIES = """\
Go on with: [bold]openmanus resume {thread} --approve[/]
  or else:  [bold]openmanus resume {thread} --answer "WHAT TO CHANGE"[/]  (it is planned again)
            [bold]openmanus show {thread} --plan > plan.json[/]  (edit it, then)
            [bold]openmanus resume {thread} --answer "$(cat plan.json)"[/]
            [bold]openmanus resume {thread} --reject[/]  (nothing is done)"""


class JsonSink:
    """One JSON event per line on stdout."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Write an event; after Ctrl-C, stderr says how to resume."""
        write_out(json.dumps(event, ensure_ascii=False, default=str) + "\n")
        if event["type"] == "final" and event["status"] == "cancelled":
            sys.stderr.write(f"Go on with: openmanus resume {shlex.quote(event['thread'])}\n")


class TerminalSink:
    """Shows progress to a person on stderr; only the answer goes to stdout.

    Nothing that was written is written over, so that it is right in files, pipes and logs, too.
    """

    def __init__(self, *, quiet: bool = False, wrap_words: bool = False) -> None:
        self.console = SafeConsole(stderr=True, highlight=False, soft_wrap=not wrap_words)
        self.quiet = quiet
        self.started = time.monotonic()
        self.step = 0
        self.line_open = False
        self.said = ""
        """What the newest model call has streamed."""
        self.workspace = ""
        self.checklist = Checklist(self.console)
        self.reviewing = False
        """Whether the question that is open is about a plan."""
        self._higher_limit = ""
        """The option with which the run goes on beyond the limit that ended it."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Show an event."""
        kind = str(event["type"])
        if self.quiet and kind not in ("final", "interrupt", "limit"):
            return
        show = getattr(self, f"_{kind}", None)
        if show is not None:  # other events are for programs
            show(event)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.checklist.hide()

    def _run_start(self, event: Mapping[str, Any]) -> None:
        self._begin(event)
        facts = f"{event['agent']} · {event['model']} · thread {event['thread']}"
        self._line(f"[bold]{escape(facts)}[/]\n[dim]files in {escape(self.workspace)}[/]")

    def _begin(self, event: Mapping[str, Any]) -> None:
        self.workspace, self.started = str(event["workspace"]), time.monotonic()
        self.checklist, self.reviewing = Checklist(self.console), False

    def _think_start(self, event: Mapping[str, Any]) -> None:
        self._count_step(event)
        self.said = ""
        self._end_line()
        if self.checklist:
            self._doing(event, "thinking")
            self.checklist.show()

    def _token(self, event: Mapping[str, Any]) -> None:
        if self.checklist or event.get("plan_step"):
            return  # steps that run at once would write into each other's lines
        self.said += event["text"]
        self.console.print(Text(printable(event["text"])), end="")
        self.line_open = True

    def _think_end(self, event: Mapping[str, Any]) -> None:
        self._end_line()
        self._doing(event, "" if event["tool_calls"] else "answered")

    def _tool_start(self, event: Mapping[str, Any]) -> None:
        shown = printable(json.dumps(event["args"], ensure_ascii=False))
        shown = shown if len(shown) <= 160 else f"{shown[:160]}…"
        self._doing(event, event["tool"])
        self.checklist.show()
        place = label(event) or f"[cyan]{self.step}[/] "
        self._line(f"{place}[bold]{escape(event['tool'])}[/] {escape(shown)}")

    def _tool_end(self, event: Mapping[str, Any]) -> None:
        mark = "[green]✓[/]" if event["ok"] else "[red]✗[/]"
        self._doing(event, "")
        place = label(event) or "  "
        self._line(f"{place}{mark} {escape(event['tool'])} [dim]{event['seconds']:.2f} s[/]")
        lines = printable(event["output"]).splitlines()
        shown = lines[:OUTPUT_LINES]
        if len(lines) > OUTPUT_LINES:
            shown.append(f"… {len(lines) - OUTPUT_LINES} more lines")
        for line in shown:
            self.console.print(Text(f"    {line[:200]}", style="dim"))

    def _notice(self, event: Mapping[str, Any]) -> None:
        style = {"info": "dim", "warning": "yellow", "error": "red"}[event["level"]]
        self._line(f"{label(event)}[{style}]{escape(printable(event['text']))}[/]")

    def _plan(self, event: Mapping[str, Any]) -> None:
        """Show the checklist: all of it when it is new, then the steps that changed."""
        if event.get("plan_step"):
            return  # a plan inside a step is not shown
        for line in self.checklist.update(event):
            self._line(line)

    _plan_change = _plan

    def _limit(self, event: Mapping[str, Any]) -> None:
        if not self.quiet:
            self._line(f"[yellow]limit reached: {escape(event['reason'])}[/]")
        if (option := _LIMIT_OPTIONS.get(event.get("setting", ""))) is not None:
            self._higher_limit = f" {option} {_option_value(event['higher'])}"

    def _interrupt(self, event: Mapping[str, Any]) -> None:
        self.checklist.hide()
        self._line(f"{label(event)}[magenta]? {escape(printable(event['question']))}[/]")
        self.reviewing = is_plan_request(event)
        if self.reviewing:
            return  # the question shows the plan as people read it
        for call in event["calls"]:
            args = printable(json.dumps(call["args"], ensure_ascii=False))
            self._line(f"  {escape(call['tool'])} {escape(args)}")

    def _final(self, event: Mapping[str, Any]) -> None:
        self._end_line()
        self.checklist.hide()
        if not self.quiet:
            self._summary(event)
        status, reason, answer = event["status"], event["stop_reason"], event["answer"]
        if reason == "error":
            self._line(f"[red]{escape(answer)}[/]")
        if status in ("waiting", "stopped", "cancelled") or reason == "error":
            thread = escape(shlex.quote(event["thread"]))
            reply = _REPLIES.get(reason, self._higher_limit)
            line = f"Go on with: [bold]openmanus resume {thread}{reply}[/]"
            self._line(_PLAN_REPLIES.format(thread=thread) if self.reviewing else line)
        # On a terminal the answer was just streamed; it is not shown twice.
        streamed = reason == "answer" or answer.strip() == self.said.strip()
        streamed &= sys.stdout.isatty() and not self.quiet and not self.checklist
        if answer and status != "waiting" and reason != "error" and not streamed:
            self._answer(answer)

    def _answer(self, answer: str) -> None:
        """Write the answer to stdout."""
        write_out(printable(answer).rstrip() + "\n")

    def _summary(self, event: Mapping[str, Any]) -> None:
        usage = event["usage"]
        tokens = f"{usage['input_tokens']:,} in ({usage['cached_tokens']:,} cached), "
        table = Table(show_header=False, box=None, padding=(0, 1))
        table.add_row("status", f"{event['status']} ({event['stop_reason']})")
        table.add_row("steps", self.checklist.progress if self.checklist else str(self.step))
        table.add_row("tokens", f"{tokens}{usage['output_tokens']:,} out")
        table.add_row("cost", f"${usage['cost_usd']:.4f}")
        table.add_row("time", f"{time.monotonic() - self.started:.1f} s")
        for index, line in enumerate(file_lines(event["artifacts"])):
            table.add_row("" if index else "files", Text(line))
        self.console.print(table)

    def _count_step(self, event: Mapping[str, Any]) -> None:
        if not event.get("plan_step"):  # a subagent counts its own
            self.step = int(event["step"])

    def _doing(self, event: Mapping[str, Any], what: str) -> None:
        self.checklist.doing(str(event.get("plan_step", "")).partition("/")[0], what)

    def _line(self, markup: str) -> None:
        self._end_line()
        self.console.print(printable(markup))

    def _end_line(self) -> None:
        if self.line_open:
            self.console.print()
            self.line_open = False


def file_lines(artifacts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each of a run's files, up to a bound, and how many more there are."""
    lines = [
        f"{quoted_name(artifact['path'])} ({artifact['size']:,} bytes)"
        for artifact in artifacts[:SHOWN_FILES]
    ]
    more = len(artifacts) - SHOWN_FILES
    return [*lines, f"and {more:,} more"] if more > 0 else lines


def _option_value(limit: float) -> str:
    """Write a limit as an option takes it: without an exponent, large ones whole."""
    return str(math.ceil(limit)) if limit >= 1000 else f"{limit:.4g}"


def label(event: Mapping[str, Any]) -> str:
    """Return a label with an event's plan step: steps run in parallel."""
    step = event.get("plan_step")
    return f"[cyan]{escape(printable(f'[{step}]'))}[/] " if step else ""
