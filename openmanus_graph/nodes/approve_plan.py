"""`approve_plan`: asks a person about the plan before its steps run."""

import json
import re
from functools import partial
from typing import Any, Literal, cast

from langchain_core.messages import HumanMessage
from langgraph.runtime import Runtime
from langgraph.types import Overwrite, interrupt

from openmanus_graph.model_calls.flight_recorder import awaited_fact, run_path
from openmanus_graph.planning.executor_run import ExecutorSet
from openmanus_graph.planning.flow import new_step_run, plan_of
from openmanus_graph.planning.plan import PlanError, make_steps, plan_text
from openmanus_graph.planning.plan_view import plan_request, publish_plan
from openmanus_graph.prompts import render
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.interrupts import Decision, read_decision
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.tools.planning import PLANNING, planning

_AS_JSON = re.compile(r'\s*(\{|\[\s*[]{"])')
"""How JSON begins; `[SWE] shall do it` are words."""


async def approve_plan(
    state: PlanningState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> dict[str, Any]:
    """Wait for a person: approve, edit the steps, or reject with what to do better."""
    session = await enter_session(runtime)
    plan = plan_of(state)
    await publish_plan(plan, session, runtime.stream_writer)
    problem, review = "", f"review of the plan {run_path()}".rstrip()
    while True:
        answer = await awaited_fact(session, review, partial(_ask, plan_request(plan, problem)))
        try:
            return _apply_decision(read_review(answer), state, executors)
        except PlanError as error:
            problem = str(error)


async def _ask(request: dict[str, Any]) -> Any:
    """Pause the run until a person has answered, and return the answer."""
    return interrupt(request)


def read_review(answer: Any) -> Decision | None:
    """Understand an answer about a plan: a decision, the steps that are wanted, or what to change.

    Raises:
        PlanError: It begins as JSON does, and is none.
    """
    if isinstance(answer, str) and _AS_JSON.match(answer):
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"the answer is no JSON ({error})") from error
    if isinstance(answer, list):
        items = cast("list[Any]", answer)
        decisions = bool(items) and all(isinstance(one, dict) and "type" in one for one in items)
        if decisions:
            return read_decision({"decisions": items})
        return Decision("edit", args={"steps": items})
    if isinstance(answer, dict) and "steps" in answer and "type" not in answer:
        return Decision("edit", args=cast("dict[str, Any]", answer))
    decision = read_decision(answer)
    if decision is None and isinstance(answer, str) and answer.strip():
        return Decision("respond", message=answer.strip())
    return decision


def _apply_decision(
    decision: Decision | None, state: PlanningState, executors: ExecutorSet
) -> dict[str, Any]:
    """Return the update that a decision means. PlanError: it cannot be carried out, and why."""
    if decision is None:
        raise PlanError("that is no decision (`approve`, `reject`, the steps, or what to change)")
    if decision.type == "approve":
        return {"reviewed": True}
    if decision.type == "edit":
        args = {"command": "create", **(decision.args or {})}
        if problems := PLANNING.problems(planning.name, args):
            raise PlanError("; ".join(problems))
        steps = make_steps(args.get("steps") or (), executors.names)
        return {
            "reviewed": True,
            "title": args.get("title") or state["title"],
            "order": [step["id"] for step in steps],
            "steps": Overwrite({step["id"]: new_step_run(step) for step in steps}),
        }
    if not decision.message:
        answer = "The plan was rejected, and nothing was done."
        return {"status": "failed", "stop_reason": "terminate", "answer": answer}
    feedback = render("plan_rejected", plan=plan_text(plan_of(state)), reason=decision.message)
    return {"drafts": [HumanMessage(feedback)]}


async def route_after_approve_plan(
    state: PlanningState,
) -> Literal["create_plan", "schedule", "finalize"]:
    """A plan that was sent back is made again."""
    if state.get("stop_reason"):
        return "finalize"
    return "create_plan" if state["drafts"] else "schedule"
