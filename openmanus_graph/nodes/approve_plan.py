"""`approve_plan`: a person sees the plan before it is carried out."""

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.messages import HumanMessage
from langgraph.runtime import Runtime
from langgraph.types import Overwrite, interrupt

from openmanus_graph.errors import ToolError
from openmanus_graph.flow import new_job, plan_of
from openmanus_graph.interrupts import plan_request, read_plan_decision
from openmanus_graph.plan_file import show_plan
from openmanus_graph.plans import PlanError, make_steps, plan_text
from openmanus_graph.prompts import plan_rejected
from openmanus_graph.registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.team import Team
from openmanus_graph.tools.planning import PLANNING, planning


async def approve_plan(
    state: PlanningState, runtime: Runtime[Context], *, team: Team
) -> dict[str, Any]:
    """Wait for a person: approve, edit the steps, or reject with what to do better."""
    session = await enter_session(runtime)
    plan = plan_of(state)
    await show_plan(plan, session.workspace, runtime.stream_writer)
    problem = ""
    while True:
        answer = interrupt(plan_request(plan, problem))
        try:
            return _decided(answer, state, team)
        except PlanError as error:
            problem = str(error)


def _decided(answer: Any, state: PlanningState, team: Team) -> dict[str, Any]:
    """Return what an answer means. PlanError: it cannot be carried out, and why."""
    try:
        decision = read_plan_decision(answer)
    except ValueError as error:
        raise PlanError(f"the steps are no JSON ({error})") from error
    if decision is None:
        raise PlanError("that was no decision (approve, edit, reject, or what to change)")
    if decision.type == "approve":
        return {"reviewed": True}
    if decision.type == "edit":
        return _edited(decision.args or {}, state, team)
    if not decision.message:
        answer = "The plan was rejected, and nothing was done."
        return {"status": "failed", "stop_reason": "terminate", "answer": answer}
    feedback = plan_rejected(plan=plan_text(plan_of(state)), reason=decision.message)
    return {"drafts": [HumanMessage(feedback)]}


def _edited(given: Mapping[str, Any], state: PlanningState, team: Team) -> dict[str, Any]:
    args = {"command": "create", **given}
    try:
        PLANNING.check(planning.name, args)
    except ToolError as error:
        raise PlanError(str(error)) from error
    steps = make_steps(args.get("steps") or (), team.names)
    return {
        "reviewed": True,
        "title": args.get("title") or state["title"],
        "order": [step["id"] for step in steps],
        "steps": Overwrite({step["id"]: new_job(step) for step in steps}),
    }


async def route_after_approve_plan(
    state: PlanningState,
) -> Literal["create_plan", "schedule", "finalize"]:
    """A plan that was sent back is made again."""
    if state.get("stop_reason"):
        return "finalize"
    return "create_plan" if state["drafts"] else "schedule"
