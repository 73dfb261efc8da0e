"""`openmanus batch`: the tasks of a file, with a progress bar."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.run import log_file
from openmanus_graph.interfaces.cli.safe_console import SafeConsole, say
from openmanus_graph.interfaces.cli.trust import ask_for_trust
from openmanus_graph.interfaces.service.options import OutputOptions, RunOptions

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.batch import Budget, Worker
    from openmanus_graph.interfaces.service.batch_files import BatchResult, Results


def do_batch(
    tasks_file: str,
    out: str | None,
    agent: str | None,
    jobs: int,
    budget_usd: float | None,
    remote: str | None,
    options: RunOptions,
    output: OutputOptions,
) -> int:
    """Do the tasks of a file that have no result yet, and return the exit code."""
    if remote is None:
        ask_for_trust(options.config)
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.graphs.catalog import agent_names, check_agent
    from openmanus_graph.interfaces.service.batch import Batch, Budget
    from openmanus_graph.interfaces.service.batch_files import open_results, read_tasks
    from openmanus_graph.interfaces.service.batch_worker import LocalWorker

    if remote is None:
        check_agent(agent)
    path = Path(tasks_file)
    tasks = read_tasks(path, agent_names() if remote is None else None)
    out_path = Path(out) if out is not None else path.with_suffix(".results.jsonl")
    if out_path.exists() and out_path.samefile(path):
        raise ConfigError("--out is the file of the tasks. Give another one.")
    place = str(database_url()) if remote is None else remote.rstrip("/")
    with log_file(output.log), open_results(out_path, tasks, place) as results:
        budget = Budget(budget_usd, results.cost_usd)
        worker: Worker
        if remote is None:
            worker = LocalWorker(options, agent, budget)
        else:
            from openmanus_graph.interfaces.service.batch_remote import RemoteWorker

            worker = RemoteWorker(remote, options, agent, budget)
        with BatchProgress(len(tasks), results, budget, quiet=output.quiet) as view:
            code = asyncio.run(
                closing_models(Batch(tasks, results, worker, budget, view, jobs).run())
            )
        if not output.quiet:
            say(_summary(len(tasks), results, budget, out_path))
    return code


async def closing_models(work: Awaitable[int]) -> int:
    """Do some work, and close the models that it used."""
    from openmanus_graph.backends.models.build import close_models

    try:
        return await work
    finally:
        await close_models()


class BatchProgress:
    """Shows a bar on a terminal, else a line for each result; a context manager.

    Args:
        tasks: How many there are.
        results: Of them.
        budget: What they cost.
        quiet: Whether nothing is shown.
        word: Says how a task ended; default its status.
    """

    def __init__(
        self,
        tasks: int,
        results: "Results",
        budget: "Budget",
        *,
        quiet: bool,
        word: "Callable[[BatchResult], str] | None" = None,
    ) -> None:
        console = SafeConsole(stderr=True, highlight=False)
        self._tasks, self._results, self._budget, self._word = tasks, results, budget, word
        self._writes_lines = not quiet and not console.is_terminal
        self._progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        done = len(results.statuses)
        self._bar = self._progress.add_task("", total=tasks, completed=done, figures="")

    def __enter__(self) -> "BatchProgress":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def ended(self, result: "BatchResult") -> None:
        """Show that a task has a result."""
        bar = self._progress.tasks[0]
        rate = "" if bar.speed is None else f"{60 * bar.speed:.3g} a minute, "
        self._progress.update(self._bar, advance=1, figures=f"{rate}${self._budget.spent_usd:.4g}")
        if self._writes_lines:
            done = f"{len(self._results.statuses)}/{self._tasks}"
            word = self._word(result) if self._word else result.status
            say(f"{done} {result.id}: {word}, ${result.cost_usd:.4g}")

    def notice(self, text: str) -> None:
        """Show a sentence, above the bar."""
        self._progress.console.print(text, style="yellow", markup=False)


def _summary(tasks: int, results: "Results", budget: "Budget", path: Path) -> str:
    """Say how a batch ended, and how it goes on if it is not done."""
    counts = Counter(results.statuses.values())
    left = tasks - len(results.statuses)
    parts = [f"{count} {status}" for status, count in counts.most_common()]
    if left:
        parts.append(f"{left} left")
    done = f"{', '.join(parts)}; ${budget.spent_usd:.4g}. The results are in {path}."
    if not left:
        return done
    more = " and a higher --max-cost-usd" if budget.is_spent else ""
    return f"{done} The same command{more} goes on."
