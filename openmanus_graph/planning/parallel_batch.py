"""The steps of a plan that run at once, and the workers that do them one after another.

A parallel batch is one superstep of the planning graph: `schedule` begins it with a `Send` for each
worker, and `review_step` merges the workers' reports into the plan. A worker that is done with a
step takes the next one as soon as its dependencies are completed. The batch ends when no step runs.
"""

import asyncio
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.types import PregelTask

from openmanus_graph.model_calls.budget import SharedBudget, shared_budget
from openmanus_graph.planning import flow
from openmanus_graph.planning.plan import publish_plan
from openmanus_graph.runtime import checkpoint_lineage as lineage
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.manus import merge_usage, no_usage
from openmanus_graph.state.planning import PlanningState, StepRun, WorkerReport, WorkerState


class ParallelBatch:
    """The plan's current state, and which worker does which step. For one event loop.

    Each node of a worker reports what the node before it has saved, so that a crash between the two
    loses nothing. The `reports` of the plan's state are what the workers have done so far. The runs
    of workers that `left` were over before.
    """

    def __init__(
        self,
        state: PlanningState,
        session: Session,
        max_workers: int,
        *,
        left: Collection[int] = (),
    ) -> None:
        self.emit: Emit = lambda _: None
        """Sends events into the stream of the planning graph itself; set by `run_step`."""
        self._state: PlanningState = {**state, "reports": {}}
        self._session = session
        self._started = time.monotonic()
        self._idle: dict[int, asyncio.Future[StepRun | None]] = {}
        self._max_workers = max_workers
        self._slots = asyncio.Semaphore(max_workers)
        self._entered: set[int] = set()
        self._left = set(left)
        self._ended = False
        self._publishing = asyncio.Lock()
        self._replanning = asyncio.Lock()
        self._replanner: int | None = None
        self.budget = self._make_budget()
        """Shared by the steps, all that runs inside them, and the run around this plan."""
        self._merge(state.get("reports", {}).values())
        self._working = {
            step_run["worker"]: step_run["id"]
            for step_run in flow.step_runs_of(self._state)
            if flow.is_under_way(step_run)
        }

    @property
    def state(self) -> PlanningState:
        """The plan's current state. The budget counts what was spent."""
        now: PlanningState = {**self._state}
        now["usage"], now["step_count"], now["elapsed_s"] = no_usage(), 0, self.elapsed_s
        return now

    @property
    def elapsed_s(self) -> float:
        return self._state["elapsed_s"] + time.monotonic() - self._started

    def step_of(self, worker: int) -> str:
        return self._working.get(worker, "")

    def learn(self, worker: int, report: WorkerReport) -> None:
        """Merge a worker's saved work into the plan."""
        self._merge([report])
        step = self._state["steps"].get(self.step_of(worker))
        if step is None or not flow.is_under_way(step):
            self._working.pop(worker, None)
        self._settle()

    async def enter(self, worker: int) -> None:
        """Wait until this worker may run; it has to `leave` at its end."""
        await self._slots.acquire()
        self._entered.add(worker)

    async def next_step(self, worker: int) -> StepRun | None:
        """Wait for a step for this worker; None if the running steps can make none ready."""
        self._end_replanning(worker)
        waiting: asyncio.Future[StepRun | None] = asyncio.get_running_loop().create_future()
        self._idle[worker] = waiting
        self._settle()
        try:
            async with self._publishing:  # so that an older plan is never shown after a newer one
                await publish_plan(flow.plan_of(self._state), self._session, self.emit)
            return await waiting
        finally:
            self._idle.pop(worker, None)

    def leave(self, worker: int) -> None:
        """End a worker's part: its run is over, or waits for a person."""
        self._left.add(worker)
        self._slots.release()
        self._end_replanning(worker)
        self._settle()

    async def begin_replanning(self, worker: int) -> None:
        """Wait until no other worker replans, because it has to see that worker's replacement."""
        if self._replanner != worker:
            await self._replanning.acquire()
            self._replanner = worker

    def _end_replanning(self, worker: int) -> None:
        """Let others replan, once the worker's replacement is saved."""
        if self._replanner == worker:
            self._replanner = None
            self._replanning.release()

    def _make_budget(self) -> SharedBudget:
        state = self._state
        progress = Progress(state["step_count"], state["usage"], state["elapsed_s"])
        around = shared_budget()
        if around is None:
            openings = flow.hand_on(state).get("openings")
            return SharedBudget(self._session.settings, progress, openings)
        around.count_earlier(self._session.key, progress)  # this flow is a step of another one
        return around

    def _merge(self, reports: Iterable[WorkerReport]) -> None:
        known = list(reports)
        order, steps, replans = flow.merge_reports(self._state, known)
        self._state = {**self._state, "order": order, "steps": steps, "replans": replans}
        limits = (flow.is_limit(step_run["outcome"]) for step_run in steps.values())
        self._ended = self._ended or any(report["run_end"] for report in known) or any(limits)

    def _settle(self) -> None:
        """Assign startable steps to idle workers, and release workers that will get none.

        Nothing is assigned when no step runs. Then the batch ends, and the next one begins with as
        many workers as there is work for. A step that waits for a person keeps the batch open.
        """
        if self._working and not self._ended:
            free = [worker for worker, waiting in self._idle.items() if not waiting.done()]
            step_runs = flow.step_runs_of(self._state)
            started = flow.started_step_updates(step_runs, flow.startable_steps(step_runs), free)
            for name, fields in started.items():
                step_run = cast("StepRun", {**self._state["steps"][name], **fields})
                self._state = {**self._state, "steps": {**self._state["steps"], name: step_run}}
                self._working[step_run["worker"]] = name
                self._idle[step_run["worker"]].set_result(step_run)
            if self._working.keys() - self._left:
                # As many as have a step and no slot to continue it.
                is_full = len(self._entered - self._left) >= self._max_workers
                kept_out = self._working.keys() - self._entered - self._left
                self._release(len(kept_out) if is_full else 0)
                return
        self._release(len(self._idle))

    def _release(self, count: int) -> None:
        waiting = (one for one in self._idle.values() if not one.done())
        for one in list(islice(waiting, count)):
            one.set_result(None)


def max_workers(session: Session, config: RunnableConfig) -> int:
    """Return how many workers may run at once: by the settings, and by the caller's own limit."""
    at_once = config.get("max_concurrency") or sys.maxsize
    return min(session.settings.max_parallel_steps, at_once)


def report_of(state: Mapping[str, object] | WorkerState) -> WorkerReport:
    """Return a worker's report from its state; an empty one if it has not begun."""
    worker = cast("WorkerState", state)
    return WorkerReport(
        steps=worker.get("steps") or {},
        replacements=worker.get("replacements") or [],
        run_end=worker.get("run_end"),
    )


AnyGraph = Pregel[Any, Any, Any, Any]


async def plan_around(
    graph: AnyGraph, config: RunnableConfig
) -> tuple[PlanningState, Collection[int]]:
    """Return the saved plan around the node `run_step`, and the workers that have ended."""
    configurable = config.get("configurable", {})
    namespace = lineage.outer_namespace(config)
    inside: dict[str, Any] = {
        "thread_id": configurable["thread_id"],
        "checkpoint_ns": namespace,
        "checkpoint_id": configurable[lineage.MAP_KEY][namespace],
        lineage.CHECKPOINTER_KEY: configurable[lineage.CHECKPOINTER_KEY],
    }
    # After going back to a checkpoint, LangGraph runs all of its tasks again.
    is_replay = configurable.get(lineage.REPLAY_KEY) is not None
    return await _saved_plan(graph, inside, with_tasks=not is_replay)


async def plan_at(graph: AnyGraph, config: RunnableConfig) -> PlanningState:
    """Return a plan's state at a checkpoint, with the steps of its workers."""
    saver = cast("Any", graph).checkpointer
    inside = {**config.get("configurable", {}), lineage.CHECKPOINTER_KEY: saver}
    state, _ = await _saved_plan(graph, inside, with_tasks=True)
    merged = flow.merge_reports(state, state["reports"].values())
    state["order"], state["steps"], state["replans"] = merged
    return state


async def _saved_plan(
    graph: AnyGraph, inside: Mapping[str, Any], *, with_tasks: bool
) -> tuple[PlanningState, Collection[int]]:
    saved = await graph.aget_state({"configurable": dict(inside)})
    state = cast("PlanningState", dict(saved.values))
    state["reports"], left = dict(state.get("reports") or {}), set[int]()
    tasks: Sequence[PregelTask] = saved.tasks if with_tasks else ()
    for task in tasks:
        if task.name != "run_step":
            continue
        if task.result is None:
            values = await _worker_state(graph, task, inside[lineage.CHECKPOINTER_KEY])
            state["reports"][task.id] = report_of(values)
        else:
            values = cast("Mapping[str, Any]", task.result)
            reports = cast("dict[str, WorkerReport]", values.get("reports") or {})
            state["reports"].update(reports)
            left.update(map(int, reports))
        state["usage"] = merge_usage(state["usage"], values.get("usage"))
        state["step_count"] += values.get("step_count") or 0
        state["elapsed_s"] = max(state["elapsed_s"], values.get("elapsed_s") or 0.0)
    return state, left


async def _worker_state(graph: AnyGraph, task: PregelTask, saver: Any) -> Mapping[str, Any]:
    """Return the state of a worker that has not ended; empty if it has not begun."""
    graphs: dict[str, Any] = dict(cast("Any", graph).get_subgraphs())  # typed by their parts only
    inner = cast("RunnableConfig", task.state).get("configurable", {})
    found = await graphs["run_step"].aget_state(
        {"configurable": {**inner, lineage.CHECKPOINTER_KEY: saver}}
    )
    return cast("Mapping[str, Any]", found.values)
