"""`review_step`: did the steps do what they should, and what becomes of those that did not?"""

import time
from typing import Any, Literal

from langgraph.runtime import Runtime

from openmanus_graph.checks import check_job
from openmanus_graph.events import notice
from openmanus_graph.flow import (
    after_review,
    halted_by,
    is_limit,
    jobs_of,
    plan_of,
    shared_files,
    to_review,
)
from openmanus_graph.limits import LimitReached
from openmanus_graph.models.failures import ModelError
from openmanus_graph.outcome import failure
from openmanus_graph.plan_file import show_plan, tell_step
from openmanus_graph.registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.plan import merge_steps
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.state.reducers import add_usage, no_usage


async def review_step(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Check the steps that ran. A failed one is tried again, then planned anew, then blocked."""
    started = time.monotonic()
    session = await enter_session(runtime)
    emit = runtime.stream_writer
    ran = to_review(jobs_of(state))
    for path, writers in shared_files(jobs_of(state), ran):
        notice(emit, f"Steps {' and '.join(writers)} wrote the same file: {path}. Look at it.")
    usage = no_usage()
    halted = [job for job in ran if is_limit(job["outcome"])]
    steps: dict[str, Any] = {job["id"]: {"outcome": ""} for job in halted}
    ended: dict[str, Any] = {}
    if reason := halted_by(halted):
        emit({"type": "limit", "reason": reason})
        ended = {"status": "stopped", "stop_reason": reason}
    for job in (job for job in ran if job not in halted):
        now: PlanningState = {**state, "usage": add_usage(state["usage"], usage)}
        try:
            finding = await check_job(job, now, session, emit)
        except LimitReached as limit:
            emit({"type": "limit", "reason": limit.reason})
            ended = {"status": "stopped", "stop_reason": limit.reason}
            break
        except ModelError as error:
            ended = failure(error.sentence)
            break
        usage = add_usage(usage, finding.usage)
        if finding.problem is not None:
            notice(emit, f"Step {job['id']} failed: {finding.problem}")
        steps[job["id"]] = {
            **after_review(job, finding.problem, state["replans"]),
            "cost_usd": job["cost_usd"] + finding.usage["cost_usd"],
        }
        tell_step(session, emit, "step_end", job, steps[job["id"]]["status"])
    for job in halted:
        tell_step(session, emit, "step_end", job, job["status"])
    plan = plan_of({**state, "steps": merge_steps(state["steps"], [steps])})
    await show_plan(plan, session, emit)
    return {
        **ended,
        "steps": steps,
        "mending": [
            *state["mending"],
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
    return "create_plan" if state["mending"] else "schedule"
