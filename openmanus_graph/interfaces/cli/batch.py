"""`openmanus batch` and `eval`: do the tasks of a file with a progress bar, and check them.

`eval` also shows its results in tables and writes the report.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.table import Column, Table
from rich.text import Text
from typing_extensions import override

from openmanus_graph import demo
from openmanus_graph.config.resolve import database_url, resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, check_agent
from openmanus_graph.interfaces.cli.console import SafeConsole, say
from openmanus_graph.interfaces.cli.process import is_own_process, silent_keys
from openmanus_graph.interfaces.cli.run import log_file, require_stdout
from openmanus_graph.interfaces.cli.skills import ask_before_run
from openmanus_graph.interfaces.service import eval_report, eval_suite
from openmanus_graph.interfaces.service.batch import (
    Batch,
    BatchResult,
    Budget,
    Results,
    TaskRunner,
    open_results,
    read_tasks,
)
from openmanus_graph.interfaces.service.batch_runners import LocalTaskRunner, RemoteTaskRunner
from openmanus_graph.interfaces.service.eval_suite import RESULTS, Grader, Suite, read_suite
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
from openmanus_graph.interfaces.service.threads import find_thread
from openmanus_graph.runtime.atomic_files import write_own_file
from openmanus_graph.runtime.output import money

BAR_WIDTH = 24
"""Columns, so that a terminal of 80 has room for the figures."""
NOT_PASSED_EXIT, LEFT_EXIT = 1, 3
SUFFIX = ".eval"
PIPE_WIDTH = 160
_REASON_CHARS = 100
SHOWN_WAITING = 20

DefaultAgent = Annotated[
    str | None, typer.Option(help="Which agent does tasks that name none. Default manus.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option("--max-cost-usd", min=0, help="Dollars of all runs together. Default: no limit."),
]
_NOT_OF_MANY = ("workspace", "max_cost_usd", "json", "sources")
_takes_options_of_runs = takes(RunOptions, OutputOptions, StorageOptions, without=_NOT_OF_MANY)


@_takes_options_of_runs
def batch(
    options: RunOptions,
    output: OutputOptions,
    tasks: Annotated[
        str, typer.Argument(help="JSON lines, one a task: task, id, files, agent, limits.")
    ],
    out: Annotated[
        str | None,
        typer.Option(help="File of the results, one a line. Default: TASKS.results.jsonl."),
    ] = None,
    agent: DefaultAgent = None,
    jobs: Annotated[int, typer.Option(min=1, help="Tasks that run at the same time.")] = 4,
    budget_usd: BudgetOption = None,
    remote: Annotated[
        str | None,
        typer.Option(help="Address of a server that does them; its token is in OPENMANUS_TOKEN."),
    ] = None,
) -> int:
    """Do many tasks; run it again to continue where it stopped."""
    if remote is None:
        ask_before_run(options.config)
        check_agent(agent)
    path = Path(tasks)
    todo = read_tasks(path, agent_names() if remote is None else None)
    out_path = Path(out) if out is not None else path.with_suffix(".results.jsonl")
    if out_path.exists() and out_path.samefile(path):
        raise ConfigError("--out is the file of the tasks. Give another one.")
    place = str(database_url()) if remote is None else remote.rstrip("/")

    def still_waits(thread: str) -> bool:
        known = find_thread(thread) if remote is None else None
        return known is None or known.status in ("waiting", "running")

    opened = open_results(out_path, todo, place, still_waits)
    with log_file(output.log), opened as results:
        budget = Budget(budget_usd, results.cost_usd)
        sink = BatchProgress(len(todo), results, budget, quiet=output.quiet)
        runner: TaskRunner
        if remote is None:
            runner = LocalTaskRunner(options, agent, budget, sink.notice)
        else:
            runner = RemoteTaskRunner(remote, options, agent, budget, sink.notice)
        with sink.shown():
            running = Batch(todo, results, runner, budget, sink, jobs)
            code = asyncio.run(running.run(ends_process=is_own_process()))
        if not output.quiet:
            counts = Counter(results.statuses.values()).most_common()
            parts = [f"{count} {status}" for status, count in counts]
            left = len(todo) - len(results.statuses)
            parts += [f"{left} left"] if left else []
            more = " and a higher --max-cost-usd" if budget.is_spent else ""
            hint = f" The same command{more} continues." if left else ""
            spent = money(budget.spent_usd)
            say(f"{', '.join(parts)}; {spent}. The results are in {out_path}.{hint}")
            waiting = [one for one in todo if results.statuses.get(one.id) == "waiting"]
            for one in waiting[:SHOWN_WAITING]:
                command, place = f"openmanus resume {results.thread(one)}", f" (of {remote})"
                say(f"{one.id} waits for you: {command}{place if remote else ''}")
    return code


class BatchProgress:
    """Shows a bar on a terminal, else a line for each result.

    With `quiet` only notices are shown. `describe` returns how a task ended, by default its status.
    """

    def __init__(
        self,
        tasks: int,
        results: Results,
        budget: Budget,
        *,
        quiet: bool,
        describe: Callable[[BatchResult], str] = lambda result: result.status,
    ) -> None:
        console = SafeConsole(stderr=True, highlight=False)
        self._tasks, self._ended, self._describe = tasks, len(results.statuses), describe
        draws = console.is_terminal and not console.is_dumb_terminal
        self._writes_lines = not quiet and not draws
        self._figures = _Figures(budget)
        columns = (BarColumn(BAR_WIDTH), MofNCompleteColumn(), self._figures)
        self._progress = Progress(*columns, console=console, disable=quiet or not draws)
        self._bar = self._progress.add_task("", total=tasks, completed=len(results.statuses))
        self._noticed = set[str]()

    @contextmanager
    def shown(self) -> Generator[None]:
        with nullcontext() if self._progress.disable else silent_keys(), self._progress:
            yield

    def ended(self, result: BatchResult) -> None:
        self._progress.update(self._bar, advance=1)
        self._figures.measure(self._progress.tasks[0])
        if self._writes_lines:
            self._ended += 1
            done = f"{self._ended}/{self._tasks}"
            say(f"{done} {result.id}: {self._describe(result)}, {money(result.cost_usd)}")

    def notice(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            console = self._progress.console
            soft_wrap = not console.is_terminal
            console.print(text, style="yellow", markup=False, soft_wrap=soft_wrap)


class _Figures(ProgressColumn):
    """Tasks per minute, total cost, and how long the others will take.

    Measured over the whole time since the start. Rich's own speed is that between the latest
    results, and those of parallel tasks come at the same time.
    """

    max_refresh = 0.5

    def __init__(self, budget: Budget) -> None:
        super().__init__(Column(no_wrap=True, justify="right"))
        self._budget = budget
        self._ended = 0
        self._per_s = 0.0
        self._ends_at_s = 0.0

    def measure(self, task: Task) -> None:
        self._ended += 1
        if task.elapsed:
            self._per_s = self._ended / task.elapsed
            self._ends_at_s = task.elapsed + (task.remaining or 0) / self._per_s

    @override
    def render(self, task: Task) -> Text:
        cost = money(self._budget.spent_usd)
        if not self._per_s:
            return Text(cost)
        rate = f"{60 * self._per_s:.3g} a minute"
        if task.finished:
            return Text(f"{rate}, {cost}")
        left_s = max(0, round(self._ends_at_s - (task.elapsed or 0)))
        return Text(f"{rate}, {cost}, {timedelta(seconds=left_s)} left")


@_takes_options_of_runs
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
    budget_usd: BudgetOption = None,
) -> int:
    """Do the tasks of a suite, check each, and report what passes."""
    require_stdout()
    ask_before_run(options.config)
    check_agent(agent)
    before = eval_report.load_evaluation(Path(against)) if against is not None else None
    with log_file(output.log), _opened_suite(suite, out, shipped=shipped) as (opened, folder):
        if against is not None and folder.exists() and folder.samefile(against):
            raise ConfigError("--against is the folder of this evaluation. Give another one.")
        if shipped and options.model is None:
            options = replace(options, model=f"demo:{demo.EVALS_MODEL}")
            if not output.quiet:
                say(
                    "The model's replies come from a recording; graph, tools, sandbox, files and "
                    "checks are real. To use your model, give --model PROVIDER:NAME."
                )
        about = _about(opened, repeat, agent, options)
        eval_suite.prepare_folder(folder, about)
        attempts = opened.attempts(repeat)
        with open_results(folder / RESULTS, attempts, str(database_url())) as results:
            eval_suite.store_about(
                folder, about
            )  # now that the results are known to be of this suite
            budget = Budget(budget_usd, results.cost_usd)
            grader = Grader(opened, options, folder)
            sink = BatchProgress(
                len(attempts),
                results,
                budget,
                quiet=output.quiet,
                describe=lambda result: grader.verdicts[result.id].where or "passed",
            )
            runner = LocalTaskRunner(options, agent, budget, sink.notice)
            running = Batch(attempts, results, runner, budget, sink, jobs, judge=grader)
            with sink.shown():
                code = asyncio.run(running.run(ends_process=is_own_process()))
    return _report(eval_report.load_evaluation(folder), before, folder, code, quiet=output.quiet)


@contextmanager
def _opened_suite(
    named: str | None, out: str | None, *, shipped: bool
) -> Generator[tuple[Suite, Path]]:
    if (named is None) != shipped:
        raise ConfigError("Name a suite, or give --shipped for the ten tasks that come with it.")
    if named is not None:
        path = Path(named)
        yield read_suite(path, agent_names()), Path(out or path.with_suffix(SUFFIX))
        return
    with demo.demo_folder() as folder:
        suite = read_suite(folder / demo.SUITE, agent_names(), "shipped")
        yield suite, Path(out or f"shipped{SUFFIX}")


def _about(suite: Suite, repeat: int, agent: str | None, options: RunOptions) -> eval_suite.About:
    settings = resolve_settings(to_context(options), "eval")
    kept = options_to_keep(options.stored(), settings)
    return eval_suite.About(
        suite=suite.name,
        tasks=[one.task.id for one in suite.tasks],
        repeat=repeat,
        model=model_label(settings),
        agent=agent or DEFAULT_AGENT,
        options={name: kept[name] for name in kept if name not in ("model", "workspace")},
    )


def _report(
    now: eval_report.Evaluation,
    before: eval_report.Evaluation | None,
    out: Path,
    code: int,
    *,
    quiet: bool,
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


def _task_table(evaluation: eval_report.Evaluation) -> Table:
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


def _first_reason(task: eval_report.TaskFigures) -> str:
    """Return, in one line, why the first attempt that did not pass did not."""
    for result, verdict in task.attempts:
        if verdict.outcome != "passed":
            broken = "broken check: " if verdict.outcome == "error" else ""
            text = " ".join(f"{broken}{eval_report.reason(result, verdict)}".split())
            return text if len(text) <= _REASON_CHARS else f"{text[:_REASON_CHARS]}..."
    return ""


def _change_table(changes: Sequence[eval_report.Change]) -> Table:
    table = Table("task", "change", "passed", "cost", "steps", "time", box=None, pad_edge=False)
    for change in changes:
        is_regression = change.kind in eval_report.REGRESSIONS
        style = "red" if is_regression else "green" if "pass" in change.kind else ""
        others = " (other checks)" if change.other_checks else ""
        table.add_row(
            Text(change.id),
            Text(f"{change.kind}{others}", style),
            f"{eval_report.passed_of(change.before)} → {eval_report.passed_of(change.after)}",
            *eval_report.differences(change),
        )
    return table
