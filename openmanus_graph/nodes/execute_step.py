"""The nodes of the executors: one step of the plan, done by its executor's graph."""

import asyncio
import time
from functools import partial
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime

from openmanus_graph.conversation.history import HANDOVER_KEY, ORIGIN_KEY, STEP_KEY
from openmanus_graph.model_calls.budget import sharing
from openmanus_graph.model_calls.condensed import cut_middle
from openmanus_graph.model_calls.flight_recorder import recorded_fact
from openmanus_graph.nodes.run_step import wave_of
from openmanus_graph.planning.drafting import RESULT_CHARS, RESULTS_CHARS
from openmanus_graph.planning.executor_run import (
    Executor,
    ExecutorRun,
    ExecutorSet,
    metadata_inside,
    named_files,
)
from openmanus_graph.planning.flow import (
    MAX_ATTEMPTS,
    current_step,
    is_limit,
    pause_run,
    resumed_messages,
)
from openmanus_graph.planning.plan_view import emit_step_event
from openmanus_graph.planning.step_outcome import StepLimits, StepOutcome, run_evidence
from openmanus_graph.runtime.artifacts import changed_files, take_baseline
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.safety.provenance import passed_on
from openmanus_graph.safety.value_labels import openings_since
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import WorkerState
from openmanus_graph.state.settings import Settings
from openmanus_graph.tools import web_traits


async def execute_step(
    state: WorkerState, runtime: Runtime[Context], *, executor: Executor
) -> dict[str, Any]:
    """Invoke the executor on the step; whatever it raises is a failure of this step alone."""
    started = time.monotonic()
    session = await enter_session(runtime)
    wave, step_run, run = wave_of(session, state), current_step(state), state["message_id"]
    emit_step_event(session, runtime.stream_writer, "step_start", step_run, "in_progress")
    await asyncio.to_thread(take_baseline, session.workspace, run, anew=False)
    executor_run = ExecutorRun(
        executor,
        step_messages(state),
        step_limits(state, session.settings),
        session,
        outer_context=runtime.context,
        config={"metadata": metadata_inside(get_config(), str(step_run["worker"]), step_run["id"])},
    )
    with sharing(wave.budget):
        outcome = await executor_run.run()
    named, written = await recorded_fact(
        session, f"files of {run}", partial(_files_of, executor_run, outcome, session, run)
    )
    urls = await asyncio.to_thread(passed_on, outcome.text, outcome.messages, web_traits())
    openings = await asyncio.to_thread(openings_since, outcome.messages, web_traits())
    seconds = max(time.monotonic() - started, outcome.elapsed_s)
    paused_by_limit = is_limit(outcome.kind)
    is_answer = bool(state.get("task")) and outcome.kind == "succeeded"
    result = cut_middle(outcome.text, RESULTS_CHARS if is_answer else RESULT_CHARS)
    update = {
        "attempt": step_run["attempt"],
        "outcome": outcome.kind,
        "paused_run": pause_run(executor_run.values_to_resume, run) if paused_by_limit else None,
        "result": "" if paused_by_limit else result,
        "urls": urls,
        "openings": {**step_run.get("openings", {}), str(step_run["attempt"]): openings},
        "evidence": "" if paused_by_limit else run_evidence(outcome.messages),
        "files": named,
        "written_files": sorted({*step_run["written_files"], *written}),
        "seconds": step_run["seconds"] + seconds,
        "cost_usd": step_run["cost_usd"] + outcome.usage["cost_usd"],
    }
    return {
        "steps": {step_run["id"]: update},
        "usage": outcome.usage,
        "step_count": outcome.steps,
        "elapsed_s": max(wave.elapsed_s, state["before"]["elapsed_s"] + seconds),
    }


def _files_of(
    executor_run: ExecutorRun, outcome: StepOutcome, session: Session, run: str
) -> list[list[str]]:
    """Return the changed files that a step's calls name, and those that it has written. Blocks."""
    changed = [file["path"] for file in changed_files(session.workspace, run)]
    return [named_files(changed, outcome.messages), executor_run.written_files.written_files]


async def missing_executor(
    state: WorkerState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> dict[str, Any]:
    """Fail a step whose executor was there when the plan was made; trying again would not help."""
    step_run = current_step(state)
    there = ", ".join(executors.names)
    why = f"There is no executor {step_run['executor']} any more; there is: {there}."
    failed = {"outcome": "failed", "result": why, "failures": MAX_ATTEMPTS - 1}
    return {"steps": {step_run["id"]: {"attempt": step_run["attempt"], **failed}}}


def step_limits(state: WorkerState, settings: Settings) -> StepLimits:
    """Return what bounds a step's run: its own limits, or what is left of the plan's."""
    left_s = float("inf")
    if settings.timeout_s is not None:
        left_s = max(0.1, settings.timeout_s - state["before"]["elapsed_s"])
    return StepLimits(
        seconds=min(settings.step_timeout_s, left_s),
        seconds_of_all=left_s <= settings.step_timeout_s,
        max_steps=settings.max_steps,
        max_steps_of_all=settings.max_steps_set,
    )


def step_messages(state: WorkerState) -> list[AnyMessage]:
    """Return what a step's run is given: its task, or the conversation of its paused run."""
    step_run = current_step(state)
    if step_run["paused_run"] is not None:
        return resumed_messages(step_run["paused_run"], state["message_id"])
    task = state.get("task", "")
    extra: dict[str, Any] = {
        ORIGIN_KEY: state["origin"],
        STEP_KEY: f"{task}\n\n{step_run['text']}".strip(),
        HANDOVER_KEY: not task,
        "images": state["images"],
    }
    return [HumanMessage(state["prompt"], id=state["message_id"], additional_kwargs=extra)]
