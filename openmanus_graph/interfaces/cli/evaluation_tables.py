"""What `openmanus eval` shows: a table of the tasks, and one of what changed."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from openmanus_graph.interfaces.cli.safe_console import SafeConsole, say
from openmanus_graph.interfaces.service.evals.evaluation import (
    REGRESSIONS,
    Change,
    Evaluation,
    TaskFigures,
)
from openmanus_graph.interfaces.service.evals.page import (
    differences,
    dollars,
    headline,
    number,
    passed_of,
    reason,
    seconds,
)

PIPE_WIDTH = 160
_REASON_CHARS = 100


def show_evaluation(
    now: Evaluation,
    changes: Sequence[Change] | None,
    page: Path,
    *,
    quiet: bool,
    needs_money: bool,
) -> None:
    """Write the tables to stdout, and where the page is to stderr.

    Args:
        now: The evaluation.
        changes: Since an earlier one; None if there is none.
        page: Where the report lies.
        quiet: Whether only the figures of the whole are shown.
        needs_money: Whether attempts that are left would cost more than was allowed.
    """
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    console = SafeConsole(highlight=False, width=width)
    if not quiet:
        console.print(_tasks(now))
        if changes is not None:
            console.print(_changes(changes))
    console.print(Text(", ".join(f"{name} {value}" for name, value in headline(now))))
    if not quiet:
        more = " and a higher --max-cost-usd" if needs_money else ""
        left = f" The same command{more} goes on." if now.left else ""
        say(f"The report is {page}.{left}")


def _tasks(evaluation: Evaluation) -> Table:
    table = Table("task", "passed", "cost", "steps", "time", "why not", box=None, pad_edge=False)
    for task in evaluation.tasks:
        style = "green" if task.passed == evaluation.about.repeat else "red"
        table.add_row(
            Text(task.id),
            Text(passed_of(task), style if task.counted else ""),
            dollars(task.cost_usd),
            number(task.steps),
            seconds(task.elapsed_s),
            Text(_first_reason(task)),
        )
    return table


def _first_reason(task: TaskFigures) -> str:
    """Say, in one line, why the first attempt that did not pass did not."""
    for result, verdict in task.attempts:
        if verdict.outcome != "passed":
            broken = "broken check: " if verdict.outcome == "error" else ""
            text = " ".join(f"{broken}{reason(result, verdict)}".split())
            return text if len(text) <= _REASON_CHARS else f"{text[:_REASON_CHARS]}..."
    return ""


def _changes(changes: Sequence[Change]) -> Table:
    table = Table("task", "change", "passed", "cost", "steps", "time", box=None, pad_edge=False)
    for change in changes:
        style = "red" if change.kind in REGRESSIONS else "green" if "pass" in change.kind else ""
        others = " (other checks)" if change.other_checks else ""
        table.add_row(
            Text(change.id),
            Text(f"{change.kind}{others}", style),
            f"{passed_of(change.before)} → {passed_of(change.after)}",
            *differences(change),
        )
    return table
