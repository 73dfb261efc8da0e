"""Does the tasks of a batch in parallel, each on its own thread, within one budget."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from openmanus_graph.backends.models.build import close_models
from openmanus_graph.config.homes import home_place
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT
from openmanus_graph.interfaces.service.batch_files import BatchResult, BatchTask, Results
from openmanus_graph.interfaces.service.options import InputOptions, RunOptions
from openmanus_graph.interfaces.service.own_process import (
    SIGNAL_EXIT,
    ReportedError,
    RunError,
    Signals,
    describe_failure,
    is_storage_fault,
)
from openmanus_graph.interfaces.service.run_setup import (
    ResumeAnswer,
    new_run,
    read_thread_state,
    resuming_run,
    to_context,
)
from openmanus_graph.interfaces.service.run_view import NO_RESULT, final_event, final_without_state
from openmanus_graph.interfaces.service.runner import (
    Run,
    Stop,
    continue_after_cancellation,
    run_graph,
)
from openmanus_graph.interfaces.service.runs import Final, NoInput, RemoteSink
from openmanus_graph.interfaces.service.threads import find_thread
from openmanus_graph.state.manus import Usage, no_usage

EXITS = (("failed", 1), ("waiting", 4), ("stopped", 3))
"""The exit codes of a batch whose tasks did not all finish, worst first; as for single runs."""
OUT_OF_BUDGET_EXIT = 3
log = logging.getLogger(__name__)


class Budget:
    """The dollars of a batch: what its tasks have cost, running ones included."""

    def __init__(self, most_usd: float | None, spent_usd: float) -> None:
        self.most_usd, self._ended, self._exhausted = most_usd, spent_usd, False
        self._running: dict[str, float] = {}
        """Dollars by thread."""

    @property
    def spent_usd(self) -> float:
        return self._ended + sum(self._running.values())

    @property
    def is_spent(self) -> bool:
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
        """Record the whole cost of a task that has a result."""
        self._running.pop(thread, None)
        self._ended += cost_usd


class TaskRunner(Protocol):
    """Does single tasks: in this process, or on a server."""

    async def begun(self, threads: Sequence[str]) -> set[str]:
        """Return those of these threads that exist."""
        ...

    async def do(self, task: BatchTask, thread: str) -> BatchResult | None:
        """Do a task, or continue it; None if it was cut off before its end.

        ConfigError or RunError if no task can be done, now or without a change.
        """
        ...

    def request_drain(self, reason: str) -> None:
        """Let the running steps finish, and start no others."""
        ...

    async def close(self) -> None:
        """Close the connections that the tasks used."""
        ...


class Judge(Protocol):
    def ungraded(self) -> Sequence[BatchResult]:
        """Return the results of earlier processes that are not judged."""
        ...

    async def grade(self, result: BatchResult) -> None:
        """Judge a result. RunError: no result can be judged."""
        ...


class BatchSink(Protocol):
    def ended(self, result: BatchResult) -> None: ...
    def notice(self, text: str) -> None: ...


@dataclass
class Batch:
    tasks: Sequence[BatchTask]
    results: Results
    runner: TaskRunner
    budget: Budget
    sink: BatchSink
    jobs: int
    """How many tasks run in parallel."""
    judge: Judge | None = None
    """Judges each result once it is written."""
    draining: bool = field(default=False, init=False)

    async def run(self, *, ends_process: bool = False) -> int:
        """Do all tasks that have no result yet, and return the exit code.

        Raises as `TaskRunner.do`; the running tasks can be resumed.
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
                continue_after_cancellation()
            signals.over = True
            code = self._exit_code() if signals.first is None else SIGNAL_EXIT + signals.first
            signals.exit_code = code
        return code

    def request_drain(self, reason: str) -> None:
        """Start no further task, and let the running steps finish. `reason`: the signal's name."""
        self.draining = True
        self.runner.request_drain(reason)

    async def _work(self) -> None:
        left = [task for task in self.tasks if task.id not in self.results.statuses]
        begun = await self.runner.begun([self.results.thread(task) for task in left])
        # Those first that were started: then their costs are known.
        queue = iter(sorted(left, key=lambda task: self.results.thread(task) not in begun))
        ungraded = iter(self.judge.ungraded() if self.judge is not None else ())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.jobs):
                    group.create_task(self._take(ungraded, queue))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

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
                self.sink.ended(result)

    def _exit_code(self) -> int:
        statuses = self.results.statuses
        if len(statuses) < len(self.tasks):
            return OUT_OF_BUDGET_EXIT
        return next((code for status, code in EXITS if status in statuses.values()), 0)

    def _show(self, **event: Any) -> None:
        self.sink.notice("Finishing the running steps; once more stops them at once.")


class LocalTaskRunner:
    """Runs tasks in this process, as `openmanus run` does.

    A task's own limits have priority over `options`; `notice` shows what concerns all tasks.
    """

    def __init__(
        self, options: RunOptions, agent: str | None, budget: Budget, notice: Callable[[str], None]
    ) -> None:
        self._options, self._agent, self._budget = options, agent or DEFAULT_AGENT, budget
        self.notice = notice
        self._own_usd = resolve_settings(to_context(options), "batch").max_cost_usd
        self._stops = set[Stop]()
        self._draining = False

    async def begun(self, threads: Sequence[str]) -> set[str]:
        return await asyncio.to_thread(
            lambda: {thread for thread in threads if find_thread(thread) is not None}
        )

    async def do(self, task: BatchTask, thread: str) -> BatchResult | None:
        """Do what `TaskRunner.do` says. Also raises StorageError: the database cannot be used."""
        known = await asyncio.to_thread(find_thread, thread)
        if known is not None:
            state = (await read_thread_state(thread, known.agent)).state
            if known.status == "finished":
                return _result(task, thread, final_event(state, cancelled=False))
            known_values: dict[str, Any] = {}
            if isinstance(state.values, Mapping):  # a third-party graph may have anything there
                known_values = {**cast("Mapping[str, Any]", state.values)}
            usage: Usage = known_values.get("usage") or no_usage()
            self._budget.record(thread, usage["cost_usd"])
        own_usd = task.limits.get("max_cost_usd", self._own_usd)
        limit_usd = self._budget.limit_usd(thread, own_usd)
        options = replace(self._options, **{**task.limits, "max_cost_usd": limit_usd})

        def plan() -> Run:
            if known is not None:
                return resuming_run(thread, ResumeAnswer(), options)
            given = InputOptions(file=list(task.files))
            return new_run(task.text, given, (thread, task.agent or self._agent, options))

        sink = _CostSink(self, thread)
        run = await asyncio.to_thread(plan)
        if self._draining:  # meanwhile
            return None
        final = await self._run(run, sink)
        self._budget.record(thread, final["usage"]["cost_usd"])
        if sink.limit == "max_cost_usd" and limit_usd < own_usd:
            self._budget.exhaust()
            return None
        return None if final["status"] == "cancelled" else _result(task, thread, final)

    def request_drain(self, reason: str) -> None:
        self._draining = True
        for stop in self._stops:
            stop.after_step(reason)

    async def close(self) -> None:
        await close_models()

    def spend(self, thread: str, cost_usd: float) -> None:
        """Record what a step has cost, and stop all tasks when nothing is left."""
        self._budget.add(thread, cost_usd)
        if self._budget.is_spent:
            self.request_drain("budget")

    async def _run(self, run: Run, sink: "_CostSink") -> Final:
        stop = Stop()
        self._stops.add(stop)
        try:
            await run_graph(run, sink, NoInput(), stop)
        except ReportedError as error:
            if isinstance(error.__cause__, Exception) and is_storage_fault(error.__cause__):
                raise
        except (ConfigError, RunError):
            raise
        except Exception as error:  # of one task: the others continue
            if is_storage_fault(error):
                raise
            log.exception("the run of thread %s failed", run.thread)
            return sink.final or final_without_state(describe_failure(error, home_place()))
        finally:
            self._stops.discard(stop)
        return sink.final or final_without_state(NO_RESULT)


class _CostSink(RemoteSink):
    """Remembers how a run ended, and reports what its steps cost and what fails for all tasks."""

    def __init__(self, runner: LocalTaskRunner, thread: str) -> None:
        super().__init__(self._take)
        self._runner, self._thread = runner, thread
        self.limit: str | None = None
        """The setting whose limit ended the run."""

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "think_end":
            self._runner.spend(self._thread, event["usage"]["cost_usd"])
        elif event["type"] == "notice" and event["level"] == "error":
            self._runner.notice(event["text"])
        elif event["type"] == "limit":
            self.limit = event.get("setting")


def _result(task: BatchTask, thread: str, final: Final) -> BatchResult:
    names = ("status", "answer", "usage", "artifacts")
    return BatchResult(id=task.id, thread=thread, **{name: final[name] for name in names})
