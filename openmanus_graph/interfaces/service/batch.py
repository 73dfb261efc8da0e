"""Does the tasks of a batch side by side, each on a thread of its own, within one budget."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from openmanus_graph.interfaces.service.batch_files import BatchResult, BatchTask, Results
from openmanus_graph.interfaces.service.signals import SIGNAL_EXIT, Signals

EXITS = (("failed", 1), ("waiting", 4), ("stopped", 3))
"""What a batch ends with whose tasks did not all finish, worst first; as for single runs."""
OUT_OF_BUDGET_EXIT = 3


class Budget:
    """The dollars of a batch: what its tasks have cost, those at work included."""

    def __init__(self, most_usd: float | None, spent_usd: float) -> None:
        """Make a budget.

        Args:
            most_usd: None for no limit.
            spent_usd: By tasks that have a result.
        """
        self.most_usd, self._ended, self._exhausted = most_usd, spent_usd, False
        self._running: dict[str, float] = {}

    @property
    def spent_usd(self) -> float:
        """What all tasks have cost so far."""
        return self._ended + sum(self._running.values())

    @property
    def is_spent(self) -> bool:
        """Whether no further task can begin."""
        left = self.most_usd is None or self.spent_usd < self.most_usd
        return self._exhausted or not left

    def limit_usd(self, thread: str, own_usd: float) -> float:
        """Return what a task may cost: its own limit, or what it has cost and what is left."""
        if self.most_usd is None:
            return own_usd
        return min(own_usd, self._running.get(thread, 0.0) + self.most_usd - self.spent_usd)

    def record(self, thread: str, cost_usd: float) -> None:
        """Record what a running task has cost so far, in all its runs."""
        self._running[thread] = cost_usd

    def add(self, thread: str, cost_usd: float) -> None:
        """Record what a running task has cost since the last record."""
        self._running[thread] = self._running.get(thread, 0.0) + cost_usd

    def exhaust(self) -> None:
        """Record that what is left was too little for a task's next step."""
        self._exhausted = True

    def end(self, thread: str, cost_usd: float) -> None:
        """Record what a task has cost that has a result."""
        self._running.pop(thread, None)
        self._ended += cost_usd


class TaskRunner(Protocol):
    """Does single tasks: in this process, or on a server."""

    async def begun(self, threads: Sequence[str]) -> set[str]:
        """Return those of these threads that exist."""
        ...

    async def do(self, task: BatchTask, thread: str) -> BatchResult | None:
        """Do a task, or go on with it; None if it was cut off before its end.

        Raises:
            ConfigError, RunError: No task can be done, now or without a change.
        """
        ...

    def request_drain(self, reason: str) -> None:
        """Let the running steps finish, and nothing begin after them."""
        ...

    async def close(self) -> None:
        """Close the connections that the tasks used."""
        ...


class Judge(Protocol):
    """Judges results."""

    def ungraded(self) -> Sequence[BatchResult]:
        """Return the results of earlier processes that are not judged."""
        ...

    async def grade(self, result: BatchResult) -> None:
        """Judge a result. RunError: no result can be judged."""
        ...


class BatchView(Protocol):
    """Shows how a batch goes on."""

    def ended(self, result: BatchResult) -> None:
        """Show that a task has a result."""
        ...

    def notice(self, text: str) -> None:
        """Show a sentence."""
        ...


@dataclass
class Batch:
    """A batch at work."""

    tasks: Sequence[BatchTask]
    results: Results
    runner: TaskRunner
    budget: Budget
    view: BatchView
    jobs: int
    judge: Judge | None = None
    """Judges each result once it is written; None if nobody does."""
    draining: bool = field(default=False, init=False)

    async def run(self, *, ends_process: bool = False) -> int:
        """Do all tasks that have no result yet, and return the exit code.

        Args:
            ends_process: As for `Signals`.

        Raises:
            ConfigError, RunError: As `TaskRunner.do`. The tasks at work can be resumed.
        """
        signals = Signals(self, self._show, ends_process=ends_process)
        with signals.handled():
            try:
                async with contextlib.AsyncExitStack() as closing:
                    closing.push_async_callback(self.runner.close)
                    await self._work()
            except asyncio.CancelledError:
                if signals.first is None:
                    raise
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
            signals.over = True
            code = self._exit_code() if signals.first is None else SIGNAL_EXIT + signals.first
            signals.exit_code = code
        return code

    def request_drain(self, reason: str) -> None:
        """Begin no further task, and let the running steps of those at work finish.

        Args:
            reason: The signal's name.
        """
        self.draining = True
        self.runner.request_drain(reason)

    async def _work(self) -> None:
        queue = iter(await self._in_order())
        ungraded = iter(self.judge.ungraded() if self.judge is not None else ())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.jobs):
                    group.create_task(self._take(ungraded, queue))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _in_order(self) -> list[BatchTask]:
        """Return the tasks to do, those first that were begun: what they cost is known then."""
        threads = {
            task.id: self.results.thread(task)
            for task in self.tasks
            if task.id not in self.results.statuses
        }
        begun = await self.runner.begun(list(threads.values()))
        left = [task for task in self.tasks if task.id in threads]
        return sorted(left, key=lambda task: threads[task.id] not in begun)

    async def _take(self, ungraded: Iterator[BatchResult], queue: Iterator[BatchTask]) -> None:
        for known in ungraded:
            if self.draining or self.judge is None:
                return
            await self.judge.grade(known)
        for task in queue:
            if self.draining or self.budget.is_spent:
                return
            thread = self.results.thread(task)
            result = await self.runner.do(task, thread)
            if result is not None:
                self.results.add(result)
                self.budget.end(thread, result.cost_usd)
                if self.judge is not None:
                    await self.judge.grade(result)
                self.view.ended(result)

    def _exit_code(self) -> int:
        statuses = self.results.statuses
        if len(statuses) < len(self.tasks):
            return OUT_OF_BUDGET_EXIT
        return next((code for status, code in EXITS if status in statuses.values()), 0)

    def _show(self, **event: Any) -> None:
        self.view.notice("Finishing the running steps; once more stops them at once.")
