"""`review_step`: checks the steps that ran, and decides what follows for those that failed."""

import time
from typing import Any, Literal

from langgraph.runtime import Runtime

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.outcome import failure
from openmanus_graph.planning.checks import check_step_run
from openmanus_graph.planning.flow import (
    is_limit,
    limit_of,
    plan_of,
    reviewed_step_update,
    shared_files,
    step_runs_of,
    steps_to_review,
)
from openmanus_graph.planning.plan_view import emit_step_event, publish_plan
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.plan import merge_steps
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.state.reducers import add_usage, no_usage
from openmanus_graph.tools.bash import bash


async def review_step(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Check the steps that ran. A failed one is tried again, then planned anew, then blocked."""
    started = time.monotonic()
    session = await enter_session(runtime)
    emit = runtime.stream_writer
    ran = steps_to_review(step_runs_of(state))
    for path, writers in shared_files(step_runs_of(state), ran):
        notice(emit, f"Steps {' and '.join(writers)} wrote the same file: {path}. Look at it.")
    usage = no_usage()
    paused_by_limit = [step_run for step_run in ran if is_limit(step_run["outcome"])]
    steps: dict[str, Any] = {step_run["id"]: {"outcome": ""} for step_run in paused_by_limit}
    ended: dict[str, Any] = {}
    if reason := limit_of(paused_by_limit):
        emit({"type": "limit", "reason": reason})
        ended = {"status": "stopped", "stop_reason": reason}
    for step_run in (step_run for step_run in ran if step_run not in paused_by_limit):
        now: PlanningState = {**state, "usage": add_usage(state["usage"], usage)}
        try:
            finding = await check_step_run(step_run, now, bash, session, emit)
        except LimitReached as reached:
            emit(reached.limit.event())
            ended = {"status": "stopped", "stop_reason": reached.reason}
            break
        except ModelError as error:
            ended = failure(error.sentence)
            break
        usage = add_usage(usage, finding.usage)
        if finding.problem is not None:
            notice(emit, f"Step {step_run['id']} failed: {finding.problem}")
        steps[step_run["id"]] = {
            **reviewed_step_update(step_run, finding.problem, state["replans"]),
            "cost_usd": step_run["cost_usd"] + finding.usage["cost_usd"],
        }
        emit_step_event(session, emit, "step_end", step_run, steps[step_run["id"]]["status"])
    for step_run in paused_by_limit:
        emit_step_event(session, emit, "step_end", step_run, step_run["status"])
    plan = plan_of({**state, "steps": merge_steps(state["steps"], [steps])})
    await publish_plan(plan, session, emit)
    return {
        **ended,
        "steps": steps,
        "replanning": [
            *state["replanning"],
            *(name for name, fields in steps.items() if fields.get("outcome") == "failed"),
        ],
        "usage": usage,
        "elapsed_s": state["elapsed_s"] + time.monotonic() - started,
    }


async def route_after_review_step(
    state: PlanningState,
) -> Literal["create_plan", "schedule", "finalize"]:
    """A part of the plan that broke is planned anew first."""
    if state.get("stop_reason"):
        return "finalize"
    return "create_plan" if state["replanning"] else "schedule"
