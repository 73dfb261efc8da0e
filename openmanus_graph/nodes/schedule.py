"""`schedule` begins the steps that can start; `run_step` and the nodes inside it run them."""

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.runtime import Runtime
from langgraph.types import Send

from openmanus_graph.backends.snapshots.thread_snapshots import snapshot_files
from openmanus_graph.conversation import history
from openmanus_graph.conversation.answer_sources import supported
from openmanus_graph.model_calls import budget, recorder, summaries
from openmanus_graph.model_calls.projection import media_paths, picture_paths
from openmanus_graph.planning import drafting, executor_run, flow, plan
from openmanus_graph.planning.drafting import RESULT_CHARS, RESULTS_CHARS, step_prompt
from openmanus_graph.planning.executor_run import (
    Executor,
    ExecutorRun,
    ExecutorSet,
    metadata_inside,
    named_files,
)
from openmanus_graph.planning.parallel_batch import (
    AnyGraph,
    ParallelBatch,
    max_workers,
    plan_around,
    report_of,
)
from openmanus_graph.planning.plan import most_at_once
from openmanus_graph.runtime import artifacts, limits, session_registry
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.provenance import seen_links
from openmanus_graph.safety.value_labels import openings_since
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import Origin, no_usage
from openmanus_graph.state.planning import (
    FlowProgress,
    PlanningState,
    StepRun,
    WorkerInput,
    WorkerState,
    merge_steps,
)
from openmanus_graph.state.settings import Settings
from openmanus_graph.tools import web_traits


async def schedule(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Start a parallel batch of steps whose dependencies are completed; at a limit stop the run."""
    session = await session_registry.enter_session(runtime)
    settings, branch = session.settings, session.on_fork(state["branch"])
    begins: dict[str, Any] = {"branch": branch, "status": None, "stop_reason": None, "answer": ""}
    if flow.unfinished_plan(state):  # a run that was stopped there resumes
        return begins
    step_runs = flow.step_runs_of(state)
    not_started = (step_run["status"] == "not_started" for step_run in step_runs)
    if flow.steps_under_way(step_runs) or any(not_started):
        limit = limits.reached_limit(flow.progress_of(state, settings), settings)
        if limit is not None:
            runtime.stream_writer(limit.event())
            return {"status": "stopped", "stop_reason": limit.reason}
    blocked = flow.blocked_step_updates(step_runs)
    begins |= await snapshot_files(session, state, runtime.stream_writer, only_first=True)
    most = max_workers(session, get_config())
    begun = flow.begun_step_updates(step_runs, most)
    steps = merge_steps(state["steps"], [blocked, begun])
    now: PlanningState = {**state, "steps": steps, "batch": uuid.uuid4().hex}
    await plan.publish_plan(flow.plan_of(now), session, runtime.stream_writer)
    current = flow.step_runs_of(now)
    under_way = flow.steps_under_way(current)
    left = [step_run for step_run in current if step_run["status"] == "not_started"]
    width = min(most, most_at_once([*under_way, *left])) if len(under_way) > 1 else len(under_way)
    session.cached((ParallelBatch, now["batch"]), lambda: ParallelBatch(now, session, most))
    return {
        **begins,
        "steps": {**blocked, **begun},
        "batch": now["batch"],
        "workers": width,
    }


async def route_after_schedule(state: PlanningState) -> list[Send] | str:
    """Send the workers to `run_step`, with the steps that begin. Without any the run is over."""
    if state.get("stop_reason"):
        return "finalize"
    if again := flow.unfinished_plan(state):
        return again
    begun = flow.steps_under_way(flow.step_runs_of(state))
    given = [step_input(step_run, state) for step_run in begun]
    free = sorted({*range(state["workers"])} - {step_run["worker"] for step_run in begun})
    idle = [{"batch": state["batch"], "worker": worker} for worker in free]
    sends = [Send("run_step", one) for one in (*given, *idle[: state["workers"] - len(begun)])]
    return sends or "finalize"


def step_input(step_run: StepRun, state: PlanningState) -> WorkerInput:
    user = history.last_user_message(state["messages"])
    return WorkerInput(
        batch=state["batch"],
        worker=step_run["worker"],
        step_run=step_run,
        message_id=f"{state['branch']}/{state['replans']}/{step_run['id']}/{step_run['attempt']}",
        prompt=step_prompt(step_run, state),
        given="\n\n".join(
            [
                flow.task_of(state),
                *(
                    supported(one["result"], one.get("sources", ()))
                    for one in map(state["steps"].__getitem__, step_run["depends_on"])
                ),
            ]
        ),
        task=flow.task_of(state) if flow.is_whole_plan(state) else "",
        origin=step_origin(step_run, state),
        images=[] if user is None else [*picture_paths(user), *media_paths(user)],
        before=FlowProgress(
            steps=state["step_count"], usage=state["usage"], elapsed_s=state["elapsed_s"]
        ),
    )


def step_origin(step_run: StepRun, state: PlanningState) -> Origin:
    """Return the origin that verifies addresses in a step: the user's words and earlier links."""
    urls = [url for name in step_run["depends_on"] for url in state["steps"][name]["urls"]]
    steps = state["steps"].values()
    # The plan shows the results of steps, so any of them may have influenced its text.
    nothing_ran = step_run["attempt"] == 1 and not any(
        other["result"] or other["notes"] for other in steps
    )
    tainted = any(other["attempt"] for other in steps) and not nothing_ran
    # So may files, and failures in a replaced part of the plan.
    tainted |= state.get("planned_from_files", False) or state["replans"] > 0
    return flow.hand_on(state, urls, tainted=tainted)


@dataclass
class Flow:
    """The planning graph, for its nodes that read its saved state."""

    graph: AnyGraph | None = None
    """Set when it is compiled."""


async def run_step(
    given: WorkerInput, runtime: Runtime[Context], *, worker: AnyGraph, planning: Flow
) -> dict[str, Any]:
    """Have a worker do its steps until the parallel batch ends."""
    session, number = await session_registry.enter_session(runtime), given["worker"]
    batch = await _batch_of(given["batch"], session, planning)
    batch.emit = runtime.stream_writer
    await batch.enter(number)
    try:
        done = await worker.ainvoke(given)
    except GraphInterrupt as asked:
        # At once: LangGraph reports it when the other workers have ended as well.
        for waiting in () if session.is_nested else asked.args[0]:
            runtime.stream_writer({"plan_step": batch.step_of(number), **interrupt_event(waiting)})
        raise
    finally:
        batch.leave(number)
    return {
        "reports": {str(number): report_of(done)},
        "usage": done.get("usage") or no_usage(),
        "step_count": done.get("step_count", 0),
        "elapsed_s": done.get("elapsed_s", 0.0),
    }


async def _batch_of(name: str, session: Session, planning: Flow) -> ParallelBatch:
    """Return the parallel batch; from the saved plan if its process has ended."""
    key = (ParallelBatch, name)
    if session.find_cached(key) is None:
        async with session.cached((asyncio.Lock, name), asyncio.Lock):
            if session.find_cached(key) is None and planning.graph is not None:
                saved, left = await plan_around(planning.graph, get_config())
                most = max_workers(session, get_config())
                batch = ParallelBatch(saved, session, most, left=left)
                session.cached(key, lambda: batch)
    return _known_batch(name, session)


def _known_batch(name: str, session: Session) -> ParallelBatch:
    batch = session.find_cached((ParallelBatch, name))
    if not isinstance(batch, ParallelBatch):
        raise RuntimeError("This node runs outside of the parallel batch that it belongs to.")
    return batch


async def enter_batch(
    state: WorkerState, runtime: Runtime[Context]
) -> tuple[Session, ParallelBatch]:
    """Return the session and the parallel batch of a worker, after merging its saved report."""
    session = await session_registry.enter_session(runtime)
    batch = _known_batch(state["batch"], session)
    batch.learn(state["worker"], report_of(state))
    return session, batch


async def next_step(state: WorkerState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Report the last step, and take the next one that can start."""
    _, batch = await enter_batch(state, runtime)
    step_run = await batch.next_step(state["worker"])
    if step_run is None:
        return {"step_run": None, "elapsed_s": batch.elapsed_s}
    taken = {key: step_run[key] for key in ("status", "attempt", "worker")}
    return {**step_input(step_run, batch.state), "steps": {step_run["id"]: taken}}


async def execute_step(
    state: WorkerState, runtime: Runtime[Context], *, executor: Executor
) -> dict[str, Any]:
    """Invoke the executor on the step. Whatever it raises is a failure of this step alone."""
    started = time.monotonic()
    session = await session_registry.enter_session(runtime)
    batch, step_run = _known_batch(state["batch"], session), flow.current_step(state)
    run = state["message_id"]
    plan.emit_step_event(session, runtime.stream_writer, "step_start", step_run, "in_progress")
    await asyncio.to_thread(artifacts.take_baseline, session.workspace, run, fresh=False)
    executor_run = ExecutorRun(
        executor,
        step_messages(state),
        step_limits(state, session.settings),
        session,
        outer_context=runtime.context,
        config={"metadata": metadata_inside(get_config(), str(step_run["worker"]), step_run["id"])},
    )
    with budget.sharing(batch.budget):
        outcome = await executor_run.run()

    def files_of_run() -> list[list[str]]:
        changed = [file["path"] for file in artifacts.changed_files(session.workspace, run)]
        return [named_files(changed, outcome.messages), executor_run.written_files.written_files]

    named, written = await recorder.recorded_fact(session, f"files of {run}", files_of_run)
    urls = await asyncio.to_thread(seen_links, outcome.text, outcome.messages, web_traits())
    openings = await asyncio.to_thread(openings_since, outcome.messages, web_traits())
    seconds = max(time.monotonic() - started, outcome.elapsed_s)
    paused_by_limit = flow.is_limit(outcome.kind)
    paused_run = flow.pause_run(executor_run.values_to_resume, run) if paused_by_limit else None
    last = flow.answering_step(flow.step_runs_of(batch.state))
    is_answer = last is not None and last["id"] == step_run["id"] and outcome.kind == "succeeded"
    result = summaries.cut_middle(outcome.text, RESULTS_CHARS if is_answer else RESULT_CHARS)
    update = {
        "attempt": step_run["attempt"],
        "outcome": outcome.kind,
        "paused_run": paused_run,
        "result": "" if paused_by_limit else result,
        "urls": urls,
        "openings": {**step_run.get("openings", {}), str(step_run["attempt"]): openings},
        "evidence": "" if paused_by_limit else drafting.run_evidence(outcome),
        "sources": [*outcome.sources],
        "files": named,
        "written_files": sorted({*step_run["written_files"], *written}),
        "seconds": step_run["seconds"] + seconds,
        "cost_usd": step_run["cost_usd"] + outcome.usage["cost_usd"],
    }
    return {
        "steps": {step_run["id"]: update},
        "usage": outcome.usage,
        "step_count": outcome.steps,
        "elapsed_s": max(batch.elapsed_s, state["before"]["elapsed_s"] + seconds),
    }


def step_limits(state: WorkerState, settings: Settings) -> executor_run.StepLimits:
    left_s = float("inf")
    if settings.timeout_s is not None:
        left_s = max(0.1, settings.timeout_s - state["before"]["elapsed_s"])
    return executor_run.StepLimits(
        seconds=min(settings.step_timeout_s, left_s),
        seconds_of_all=left_s <= settings.step_timeout_s,
        max_steps=settings.max_steps,
        max_steps_of_all=settings.max_steps_set,
    )


def step_messages(state: WorkerState) -> list[AnyMessage]:
    """Return the input of a step's run: its task, or the conversation of its paused run."""
    step_run = flow.current_step(state)
    if step_run["paused_run"] is not None:
        return flow.resumed_messages(step_run["paused_run"], state["message_id"])
    task = state.get("task", "")
    extra: dict[str, Any] = {
        history.ORIGIN_KEY: state["origin"],
        history.STEP_KEY: f"{task}\n\n{step_run['text']}".strip(),
        history.HANDOVER_KEY: not task,
        "images": state["images"],
        history.GIVEN_KEY: state.get("given", ""),
    }
    return [HumanMessage(state["prompt"], id=state["message_id"], additional_kwargs=extra)]


async def missing_executor(
    state: WorkerState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> dict[str, Any]:
    """Fail a step whose executor no longer exists. Trying again would not help."""
    step_run = flow.current_step(state)
    there = ", ".join(executors.names)
    why = f"There is no executor {step_run['executor']} any more. Available: {there}."
    failed = {"outcome": "failed", "result": why, "failures": flow.MAX_ATTEMPTS - 1}
    return {"steps": {step_run["id"]: {"attempt": step_run["attempt"], **failed}}}
