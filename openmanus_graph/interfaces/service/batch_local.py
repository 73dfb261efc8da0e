"""Does a batch's tasks in this process."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from openmanus_graph.backends.models.build import close_models
from openmanus_graph.config import resolve_settings
from openmanus_graph.config.homes import home_place
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT
from openmanus_graph.interfaces.service.batch import Budget
from openmanus_graph.interfaces.service.batch_files import BatchResult, BatchTask
from openmanus_graph.interfaces.service.failures import (
    ReportedError,
    RunError,
    describe_failure,
    is_storage_fault,
)
from openmanus_graph.interfaces.service.final_event import NO_RESULT, failed_event, final_event
from openmanus_graph.interfaces.service.options import InputOptions, RunOptions
from openmanus_graph.interfaces.service.resume import ResumeAnswer, read_thread_state, resuming_run
from openmanus_graph.interfaces.service.run_setup import new_run, to_context
from openmanus_graph.interfaces.service.runner import Run, Stop, run_graph
from openmanus_graph.interfaces.service.runs import Final, NoPerson, RemoteView
from openmanus_graph.interfaces.service.threads import find_thread
from openmanus_graph.state.reducers import Usage, no_usage

log = logging.getLogger(__name__)


class LocalTaskRunner:
    """Runs tasks side by side in this process, as `openmanus run` does one.

    Args:
        options: Of all tasks; a task's own limits go before them.
        agent: Who does the tasks that name nobody.
        budget: What they may cost together.
        notice: Shows a sentence that concerns all tasks.
    """

    def __init__(
        self,
        options: RunOptions,
        agent: str | None,
        budget: Budget,
        notice: Callable[[str], None],
    ) -> None:
        self._options, self._agent, self._budget = options, agent or DEFAULT_AGENT, budget
        self.notice = notice
        self._own_usd = resolve_settings(to_context(options), "batch").max_cost_usd
        self._stops = set[Stop]()
        self._draining = False

    async def begun(self, threads: Sequence[str]) -> set[str]:
        """Return those of these threads that exist."""
        return await asyncio.to_thread(
            lambda: {thread for thread in threads if find_thread(thread) is not None}
        )

    async def do(self, task: BatchTask, thread: str) -> BatchResult | None:
        """Do a task on its thread, or go on with it; None if it was cut off before its end.

        Raises:
            ConfigError: A setting is wrong.
            RunError: Another process works on the thread, or the disk failed.
            sqlite3.Error: The database cannot be used.
        """
        known = await asyncio.to_thread(find_thread, thread)
        if known is not None:
            state = (await read_thread_state(thread, known.agent)).state
            if known.status == "finished":
                return _result(task, thread, final_event(state, cancelled=False))
            self._budget.record(thread, _cost_usd(state.values))
        own_usd = task.limits.get("max_cost_usd", self._own_usd)
        limit_usd = self._budget.limit_usd(thread, own_usd)
        options = replace(self._options, **{**task.limits, "max_cost_usd": limit_usd})

        def plan() -> Run:
            if known is not None:
                return resuming_run(thread, ResumeAnswer(), options)
            given = InputOptions(file=list(task.files))
            return new_run(task.text, given, (thread, task.agent or self._agent, options))

        view = _CostView(self, thread)
        run = await asyncio.to_thread(plan)
        if self._draining:  # meanwhile
            return None
        final = await self._run(run, view)
        self._budget.record(thread, final["usage"]["cost_usd"])
        if view.limit == "max_cost_usd" and limit_usd < own_usd:
            self._budget.exhaust()
            return None
        return None if final["status"] == "cancelled" else _result(task, thread, final)

    def request_drain(self, reason: str) -> None:
        """Let the running steps finish, and nothing begin after them."""
        self._draining = True
        for stop in self._stops:
            stop.after_step(reason)

    async def close(self) -> None:
        """Close the models' connections."""
        await close_models()

    def spend(self, thread: str, cost_usd: float) -> None:
        """Record what a step has cost, and stop all when nothing is left."""
        self._budget.add(thread, cost_usd)
        if self._budget.is_spent:
            self.request_drain("budget")

    async def _run(self, run: Run, view: "_CostView") -> Final:
        stop = Stop()
        self._stops.add(stop)
        try:
            await run_graph(run, view, NoPerson(), stop)
        except ReportedError as error:
            if isinstance(error.__cause__, Exception) and is_storage_fault(error.__cause__):
                raise
        except (ConfigError, RunError):
            raise
        except Exception as error:  # of one task: the others go on
            if is_storage_fault(error):
                raise
            log.exception("the run of thread %s failed", run.thread)
            return view.final or failed_event(describe_failure(error, home_place()), {})
        finally:
            self._stops.discard(stop)
        return view.final or failed_event(NO_RESULT, {})


class _CostView(RemoteView):
    """Remembers how a run ended, and reports what its steps cost and what fails for all."""

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


def _cost_usd(values: Any) -> float:
    """Return what a thread's run has cost; 0 for a foreign graph, whose state may be anything."""
    known = cast("Mapping[str, Any]", values if isinstance(values, Mapping) else {})
    usage: Usage = known.get("usage") or no_usage()
    return usage["cost_usd"]
