"""`check_step`: checks the step that a worker ran, and decides what follows if it failed."""

from typing import Any

from langgraph.runtime import Runtime

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.outcome import failure
from openmanus_graph.model_calls.budget import sharing
from openmanus_graph.nodes.run_step import wave_of
from openmanus_graph.planning.checks import check_step_run, is_disputed
from openmanus_graph.planning.flow import (
    current_step,
    is_limit,
    is_under_way,
    reviewed_step_update,
    reviewing_node,
    shared_files,
    step_runs_of,
)
from openmanus_graph.planning.plan_view import emit_step_event
from openmanus_graph.planning.wave import Wave, report_of, worker_of
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import RunEnd, StepRun, WorkerState


async def check_step(state: WorkerState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Check a step that ran. A failed one is tried again, then planned anew, then blocked."""
    session = await enter_session(runtime)
    wave, step_run = wave_of(session, state), current_step(state)
    emit = wave.emit
    wave.learn(worker_of(state), report_of(state))
    for path, writers in shared_files(step_runs_of(wave.state), [step_run]):
        notice(emit, f"Steps {' and '.join(writers)} wrote the same file: {path}. Look at it.")
    if is_limit(step_run["outcome"]):
        emit_step_event(session, emit, "step_end", step_run, step_run["status"])
        return {"run_end": RunEnd(status="stopped", stop_reason=step_run["outcome"], answer="")}
    try:
        with sharing(wave.budget):
            finding = await check_step_run(step_run, wave.state, session, emit)
    except LimitReached as ended:
        return {"run_end": RunEnd(status="stopped", stop_reason=ended.reason, answer="")}
    except ModelError as error:
        return {"run_end": failure(error.sentence)}
    if finding.problem is not None and is_disputed(step_run):
        notice(emit, f"The check of step {step_run['id']} failed again: {finding.problem}")
        update: dict[str, Any] = {"disputed": finding.problem}
    else:
        update = review(step_run, finding.problem, wave, session)
    update["cost_usd"] = step_run["cost_usd"] + finding.usage["cost_usd"]
    return {
        "steps": {step_run["id"]: update},
        "usage": finding.usage,
        "elapsed_s": wave.elapsed_s,
    }


def review(step_run: StepRun, problem: str | None, wave: Wave, session: Session) -> dict[str, Any]:
    """Return the update of a step that was checked, and show its end.

    Args:
        step_run: The step.
        problem: Why it is not done; None if it is.
        wave: The steps that run at once.
        session: Of the run.
    """
    if problem is not None:
        notice(wave.emit, f"Step {step_run['id']} failed: {problem}")
    update = reviewed_step_update(step_run, problem, wave.state["replans"])
    replanned = update.get("outcome") == "failed"
    status = "blocked" if replanned else update["status"]
    emit_step_event(session, wave.emit, "step_end", step_run, status)
    return update


async def route_after_check(state: WorkerState) -> str:
    """Have a disputed check judged, check by a corrected one, or plan anew; else take a step."""
    step_run = current_step(state)
    ended = state.get("run_end") or not is_under_way(step_run)
    return "next_step" if ended else reviewing_node(step_run)
