"""`review_step`: takes what the workers of a wave did into the plan."""

from typing import Any, Literal

from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from openmanus_graph.planning.flow import ended_by, is_limit, merge_reports
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import PlanningState, RunEnd


async def review_step(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Update the plan. A limit, or a model that failed, ends the run."""
    session = await enter_session(runtime)
    reports = state.get("reports", {}).values()
    order, steps, replans = merge_reports(state, reports)
    run_end = next(filter(None, (report["run_end"] for report in reports)), None)
    changed: dict[str, Any] = {
        name: step_run for name, step_run in steps.items() if step_run != state["steps"].get(name)
    }
    changed |= dict.fromkeys(state["steps"].keys() - steps.keys())
    for name, step_run in steps.items():
        if is_limit(step_run["outcome"]):  # it goes on when the run does
            changed[name] = {**step_run, "outcome": ""}
            run_end = run_end or RunEnd(
                status="stopped", stop_reason=step_run["outcome"], answer=""
            )
    if run_end is not None and is_limit(run_end["stop_reason"]):
        limit = ended_by(run_end["stop_reason"], state, session.settings)
        runtime.stream_writer(limit.event())
    return {
        **(run_end or {}),
        "order": order,
        "steps": changed,
        "replans": replans,
        "reports": Overwrite({}),
    }


async def route_after_review_step(state: PlanningState) -> Literal["schedule", "finalize"]:
    """Begin what can begin now, unless the run has ended."""
    return "finalize" if state.get("stop_reason") else "schedule"
