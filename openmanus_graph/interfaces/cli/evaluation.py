"""`openmanus eval`: does a suite, shows its results in tables, and writes the report."""

import asyncio
import contextlib
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from openmanus_graph.config.resolve import database_url, resolve_settings
from openmanus_graph.demo.recorded import EVALS_MODEL, SUITE, demo_folder
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, check_agent
from openmanus_graph.interfaces.cli.batch import BatchProgress, DefaultAgent
from openmanus_graph.interfaces.cli.console import SafeConsole, say
from openmanus_graph.interfaces.cli.process import is_own_process
from openmanus_graph.interfaces.cli.run import log_file, require_stdout
from openmanus_graph.interfaces.cli.skills import ask_for_trust
from openmanus_graph.interfaces.service import eval_report
from openmanus_graph.interfaces.service.batch import Batch, BatchResult, Budget, open_results
from openmanus_graph.interfaces.service.batch_runners import LocalTaskRunner
from openmanus_graph.interfaces.service.eval_report import Change, Evaluation, TaskFigures
from openmanus_graph.interfaces.service.eval_suite import (
    RESULTS,
    About,
    Grader,
    Suite,
    prepare_folder,
    read_suite,
    store_about,
)
from openmanus_graph.interfaces.service.options import (
    OutputOptions,
    RunOptions,
    StorageOptions,
    takes,
)
from openmanus_graph.interfaces.service.own_process import SIGNAL_EXIT
from openmanus_graph.interfaces.service.run_setup import to_context
from openmanus_graph.interfaces.service.run_view import model_label
from openmanus_graph.interfaces.service.runner import options_to_keep
from openmanus_graph.runtime.atomic_files import write_own_file

NOT_PASSED_EXIT, LEFT_EXIT = 1, 3
SUFFIX = ".eval"
PIPE_WIDTH = 160
_REASON_CHARS = 100


@dataclass(frozen=True)
class _Attempts:
    """How the attempts of an evaluation are made."""

    repeat: int
    agent: str | None
    jobs: int
    budget_usd: float | None


@takes(RunOptions, OutputOptions, StorageOptions, without=("workspace", "max_cost_usd", "json"))
def evaluate(
    options: RunOptions,
    output: OutputOptions,
    suite: Annotated[
        str | None, typer.Argument(help="JSON lines as those of batch, each with checks.")
    ] = None,
    shipped: Annotated[
        bool,
        typer.Option(
            "--shipped", help="Ten tasks of ours; without --model a recorded one does them."
        ),
    ] = False,
    out: Annotated[
        str | None, typer.Option(help="Folder of the results and the report. Default: SUITE.eval.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Folder of an earlier one: shows what changed.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Attempts at each task.")] = 1,
    agent: DefaultAgent = None,
    jobs: Annotated[int, typer.Option(min=1, help="Attempts that run at the same time.")] = 4,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            "--max-cost-usd", min=0, help="Dollars of all attempts together. Default: no limit."
        ),
    ] = None,
) -> int:
    """Do the tasks of a suite, check each, and report what passes."""
    require_stdout()
    ask_for_trust(options.config)
    check_agent(agent)
    before = eval_report.load_evaluation(Path(against)) if against is not None else None
    attempts = _Attempts(repeat, agent, jobs, budget_usd)
    with (
        log_file(output.log),
        _opened_suite(suite, out, shipped=shipped) as (opened, folder),
    ):
        if against is not None and folder.exists() and folder.samefile(against):
            raise ConfigError("--against is the folder of this evaluation. Give another one.")
        if shipped and options.model is None:
            options = _recorded(options, quiet=output.quiet)
        code = _make_attempts(opened, attempts, options, folder, quiet=output.quiet)
    return _report(eval_report.load_evaluation(folder), before, folder, code, quiet=output.quiet)


@contextlib.contextmanager
def _opened_suite(
    named: str | None, out: str | None, *, shipped: bool
) -> Generator[tuple[Suite, Path]]:
    if (named is None) != shipped:
        raise ConfigError("Name a suite, or give --shipped for the ten tasks that come with it.")
    if named is not None:
        path = Path(named)
        yield read_suite(path, agent_names()), Path(out or path.with_suffix(SUFFIX))
        return
    with demo_folder() as folder:
        suite = read_suite(folder / SUITE, agent_names(), "shipped")
        yield suite, Path(out or f"shipped{SUFFIX}")


def _recorded(options: RunOptions, *, quiet: bool) -> RunOptions:

    if not quiet:
        say(
            "The model's replies come from a recording; graph, tools, sandbox, files and checks "
            "are real. To use your model, give --model PROVIDER:NAME."
        )
    return replace(options, model=f"demo:{EVALS_MODEL}")


def _make_attempts(
    suite: Suite, wanted: _Attempts, options: RunOptions, out: Path, *, quiet: bool
) -> int:
    """Make the attempts that are left, and judge them; return the batch's exit code."""
    settings = resolve_settings(to_context(options), "eval")
    kept = options_to_keep(options.stored(), settings)
    about = About(
        suite=suite.name,
        tasks=[one.task.id for one in suite.tasks],
        repeat=wanted.repeat,
        model=model_label(settings),
        agent=wanted.agent or DEFAULT_AGENT,
        options={name: kept[name] for name in kept if name not in ("model", "workspace")},
    )
    prepare_folder(out, about)
    attempts = suite.attempts(wanted.repeat)
    with open_results(out / RESULTS, attempts, str(database_url())) as results:
        store_about(out, about)  # now that the results are known to be of this suite
        budget = Budget(wanted.budget_usd, results.cost_usd)
        grader = Grader(suite, options, out)

        def describe(result: BatchResult) -> str:
            return grader.verdicts[result.id].where or "passed"

        with BatchProgress(len(attempts), results, budget, quiet=quiet, describe=describe) as sink:
            runner = LocalTaskRunner(options, wanted.agent, budget, sink.notice)
            batch = Batch(attempts, results, runner, budget, sink, wanted.jobs, judge=grader)
            return asyncio.run(batch.run(ends_process=is_own_process()))


def _report(
    now: Evaluation, before: Evaluation | None, out: Path, code: int, *, quiet: bool
) -> int:
    """Show an evaluation and what changed, write its page, and return the exit code.

    `code` is the exit code of its batch. With `quiet` only the figures of the whole are shown.
    """
    changes = eval_report.compare(before, now) if before is not None else None
    report = out / eval_report.REPORT
    write_own_file(report, eval_report.report_page(now, changes))
    is_interrupted = code > SIGNAL_EXIT
    console = SafeConsole(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if not quiet:
        console.print(_task_table(now))
        if changes is not None:
            console.print(_change_table(changes))
    console.print(Text(", ".join(f"{name} {value}" for name, value in eval_report.headline(now))))
    if not quiet:
        more = "" if is_interrupted else " and a higher --max-cost-usd"
        left = f" The same command{more} continues." if now.left else ""
        say(f"The report is {report}.{left}")
    if is_interrupted:
        return code
    if now.left:
        return LEFT_EXIT
    if changes is not None:
        return NOT_PASSED_EXIT if any(one.kind in eval_report.REGRESSIONS for one in changes) else 0
    return 0 if now.has_passed else NOT_PASSED_EXIT


def _task_table(evaluation: Evaluation) -> Table:

    table = Table("task", "passed", "cost", "steps", "time", "why not", box=None, pad_edge=False)
    for task in evaluation.tasks:
        style = "green" if task.passed == evaluation.about.repeat else "red"
        table.add_row(
            Text(task.id),
            Text(eval_report.passed_of(task), style if task.counted else ""),
            *eval_report.figures_of(task),
            Text(_first_reason(task)),
        )
    return table


def _first_reason(task: TaskFigures) -> str:
    """Return, in one line, why the first attempt that did not pass did not."""
    for result, verdict in task.attempts:
        if verdict.outcome != "passed":
            broken = "broken check: " if verdict.outcome == "error" else ""
            text = " ".join(f"{broken}{eval_report.reason(result, verdict)}".split())
            return text if len(text) <= _REASON_CHARS else f"{text[:_REASON_CHARS]}..."
    return ""


def _change_table(changes: Sequence[Change]) -> Table:

    table = Table("task", "change", "passed", "cost", "steps", "time", box=None, pad_edge=False)
    for change in changes:
        style = (
            "red"
            if change.kind in eval_report.REGRESSIONS
            else "green"
            if "pass" in change.kind
            else ""
        )
        others = " (other checks)" if change.other_checks else ""
        table.add_row(
            Text(change.id),
            Text(f"{change.kind}{others}", style),
            f"{eval_report.passed_of(change.before)} → {eval_report.passed_of(change.after)}",
            *eval_report.differences(change),
        )
    return table
