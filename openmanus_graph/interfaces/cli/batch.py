"""`openmanus batch`: the tasks of a file, with a progress bar."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text
from typing_extensions import override

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.console import SafeConsole, say
from openmanus_graph.interfaces.cli.process import is_own_process, silent_keys
from openmanus_graph.interfaces.cli.run import log_file
from openmanus_graph.interfaces.service.options import (
    OutputOptions,
    RunOptions,
    StorageOptions,
    takes,
)

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.batch import BatchResult, Budget, Results, TaskRunner

BAR_WIDTH = 24
"""Columns, so that a terminal of 80 has room for the figures."""

DefaultAgent = Annotated[
    str | None, typer.Option(help="Which agent does tasks that name none. Default manus.")
]


@takes(RunOptions, OutputOptions, StorageOptions, without=("workspace", "max_cost_usd", "json"))
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
    budget_usd: Annotated[
        float | None,
        typer.Option(
            "--max-cost-usd", min=0, help="Dollars of all tasks together. Default: no limit."
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(help="Address of a server that does them; its token is in OPENMANUS_TOKEN."),
    ] = None,
) -> int:
    """Do many tasks; run it again to continue where it stopped."""
    if remote is None:
        from openmanus_graph.interfaces.cli.skills import ask_for_trust

        ask_for_trust(options.config)
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.graphs.catalog import agent_names, check_agent
    from openmanus_graph.interfaces.service.batch import Batch, Budget, open_results, read_tasks
    from openmanus_graph.interfaces.service.batch_runners import LocalTaskRunner, RemoteTaskRunner

    if remote is None:
        check_agent(agent)
    path = Path(tasks)
    todo = read_tasks(path, agent_names() if remote is None else None)
    out_path = Path(out) if out is not None else path.with_suffix(".results.jsonl")
    if out_path.exists() and out_path.samefile(path):
        raise ConfigError("--out is the file of the tasks. Give another one.")
    place = str(database_url()) if remote is None else remote.rstrip("/")
    with log_file(output.log), open_results(out_path, todo, place) as results:
        budget = Budget(budget_usd, results.cost_usd)
        sink = BatchProgress(len(todo), results, budget, quiet=output.quiet)
        runner: TaskRunner
        if remote is None:
            runner = LocalTaskRunner(options, agent, budget, sink.notice)
        else:
            runner = RemoteTaskRunner(remote, options, agent, budget, sink.notice)
        with sink:
            running = Batch(todo, results, runner, budget, sink, jobs)
            code = asyncio.run(running.run(ends_process=is_own_process()))
        if not output.quiet:
            say(_summary(len(todo), results, budget, out_path))
    return code


def _summary(tasks: int, results: "Results", budget: "Budget", path: Path) -> str:
    """Describe how a batch ended, and how to continue it if it is not done."""
    counts = Counter(results.statuses.values())
    left = tasks - len(results.statuses)
    parts = [f"{count} {status}" for status, count in counts.most_common()]
    if left:
        parts.append(f"{left} left")
    done = f"{', '.join(parts)}; ${budget.spent_usd:.4g}. The results are in {path}."
    if not left:
        return done
    more = " and a higher --max-cost-usd" if budget.is_spent else ""
    return f"{done} The same command{more} continues."


class BatchProgress:
    """Shows a bar on a terminal, else a line for each result; a context manager.

    With `quiet` only notices are shown. `describe` returns how a task ended, by default its status.
    """

    def __init__(
        self,
        tasks: int,
        results: "Results",
        budget: "Budget",
        *,
        quiet: bool,
        describe: "Callable[[BatchResult], str] | None" = None,
    ) -> None:
        console = SafeConsole(stderr=True, highlight=False)
        self._tasks, self._results, self._describe = tasks, results, describe
        draws = console.is_terminal and not console.is_dumb_terminal
        self._writes_lines = not quiet and not draws
        self._figures = _Figures(budget)
        self._progress = Progress(
            BarColumn(BAR_WIDTH),
            MofNCompleteColumn(),
            self._figures,
            console=console,
            disable=quiet or not draws,
        )
        self._bar = self._progress.add_task("", total=tasks, completed=len(results.statuses))
        self._noticed = set[str]()
        self._closing = ExitStack()

    def __enter__(self) -> "BatchProgress":
        if not self._progress.disable:
            self._closing.enter_context(silent_keys())
        self._closing.enter_context(self._progress)
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    def ended(self, result: "BatchResult") -> None:
        self._progress.update(self._bar, advance=1)
        self._figures.measure(self._progress.tasks[0])
        if self._writes_lines:
            done = f"{len(self._results.statuses)}/{self._tasks}"
            outcome = self._describe(result) if self._describe else result.status
            say(f"{done} {result.id}: {outcome}, ${result.cost_usd:.4g}")

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

    def __init__(self, budget: "Budget") -> None:
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
        cost = f"${self._budget.spent_usd:.4g}"
        if not self._per_s:
            return Text(cost)
        rate = f"{60 * self._per_s:.3g} a minute"
        if task.finished:
            return Text(f"{rate}, {cost}")
        left_s = max(0, round(self._ends_at_s - (task.elapsed or 0)))
        return Text(f"{rate}, {cost}, {timedelta(seconds=left_s)} left")
