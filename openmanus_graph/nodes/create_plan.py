"""`create_plan`: the model makes the plan."""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from typing import Any, Literal, cast

from langchain_core.messages import HumanMessage
from langgraph.runtime import Runtime
from langgraph.types import Overwrite, interrupt

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.history import has_task, last_user_message, resumed_state
from openmanus_graph.conversation.replies import NO_TASK, failure
from openmanus_graph.model_calls.recorder import awaited_fact, run_path
from openmanus_graph.planning import flow
from openmanus_graph.planning.drafting import Draft, Drafting, next_draft
from openmanus_graph.planning.executor_run import ExecutorSet
from openmanus_graph.planning.plan import (
    PlanError,
    make_steps,
    plan_request,
    plan_text,
    publish_plan,
)
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import take_baseline
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.interrupts import Decision, read_decision
from openmanus_graph.state.manus import Step, no_usage
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.tools.planning import PLANNING, drafting_toolset, planning

Update = dict[str, Any]
ONLY_STEP = "Do the task."
"""The plan of a model that made none."""


async def create_plan(
    state: PlanningState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> Update:
    """Take a turn at the plan. The node is repeated until there is a plan."""
    started = time.monotonic()
    session = await enter_session(runtime)
    begun = fresh_plan(state)
    if begun:
        run, fork = begun["run_message"], bool(session.fork_id)
        await asyncio.to_thread(take_baseline, session.workspace, run, fresh=fork)
        if state.get("order") and not state["reviewed"] and not state.get("stop_reason"):
            notice(runtime.stream_writer, "The previous plan, which was not approved, is dropped.")
    now: PlanningState = {**state, **begun}  # type: ignore[typeddict-item]  # begun's keys are the state's
    if begun and not has_task(now["messages"]):
        return _begun(begun, session, now) | failure(NO_TASK)
    if begun and flow.unfinished_plan(now) != "create_plan":  # the run resumes with its plan
        return _begun(begun, session, now)
    drafting = Drafting(now, now["drafts"], executors, await drafting_toolset(session))
    update: Update = {"status": None, "stop_reason": None, "answer": ""}
    update |= _begun(begun, session, now) if begun else {"branch": session.on_fork(now["branch"])}
    spent: Update = {}
    try:
        draft = await next_draft(drafting, session, runtime.stream_writer)
        spent = {"usage": draft.usage, "step_count": draft.model_calls}
        update |= _apply_draft(draft, executors, runtime.stream_writer)
    except LimitReached as ended:
        runtime.stream_writer(ended.limit.event())
        update |= {"status": "stopped", "stop_reason": ended.reason}
    except ModelError as error:
        update |= failure(error.sentence)
    spent["elapsed_s"] = now["elapsed_s"] + time.monotonic() - started
    return update | ({key: Overwrite(value) for key, value in spent.items()} if begun else spent)


def _apply_draft(draft: Draft, executors: ExecutorSet, emit: Emit) -> Update:
    seen = {"planned_from_files": True} if draft.saw_files else {}
    if not draft.over:
        return {"drafts": draft.messages, **seen}
    title, steps = draft.title, draft.steps
    if steps is None:
        notice(emit, "The model made no plan; the task is done in one step.")
        title, steps = "The task in one step", make_steps([ONLY_STEP], executors.names)
    return {**_new_plan(title, steps), "drafts": [], **seen}


def _new_plan(title: str, steps: Sequence[Step]) -> Update:
    step_runs = {step["id"]: flow.new_step_run(step) for step in steps}
    return {"title": title, "order": list(step_runs), "steps": Overwrite(step_runs)}


def _begun(begun: Update, session: Session, state: PlanningState) -> Update:
    """Return the update that begins a run: sums in the state are overwritten."""
    fresh = {key: Overwrite(begun[key]) for key in ("usage", "elapsed_s", "step_count", "steps")}
    reviewed = begun.get("reviewed", not session.settings.review_plan)
    return {**begun, **fresh, "reviewed": reviewed, "branch": session.on_fork(state["branch"])}


async def route_after_create_plan(
    state: PlanningState,
) -> Literal["create_plan", "approve_plan", "schedule", "finalize"]:
    """Ask again until there is a plan; a limit or an error ends the run."""
    if state.get("stop_reason"):
        return "finalize"
    if state["drafts"]:
        return "create_plan"
    return "schedule" if state["reviewed"] else "approve_plan"


def fresh_plan(state: PlanningState) -> Update:
    """Return the fresh state of a run that a new user message begins, else nothing."""
    message = last_user_message(state["messages"])
    message_id = (message.id if message else None) or "start"
    if state.get("run_message") == message_id:
        return {}
    return {
        "run_message": message_id,
        "branch": message_id,
        "title": "",
        "order": [],
        "steps": {},
        "drafts": [],
        "planned_from_files": False,
        "replans": 0,
        "step_count": 0,
        "elapsed_s": 0.0,
        "usage": no_usage(),
        "status": None,
        "stop_reason": None,
        "answer": "",
        "structured": None,
        "artifacts": [],
        **resumed_state(message),
    }


_AS_JSON = re.compile(r'\s*(\{|\[\s*[]{"])')
"""How JSON begins; `[SWE] shall do it` are words."""


async def approve_plan(
    state: PlanningState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> dict[str, Any]:
    """Wait for a person, who approves, edits the steps, or rejects with a reason."""
    session = await enter_session(runtime)
    plan = flow.plan_of(state)
    await publish_plan(plan, session, runtime.stream_writer)
    problem, review = "", f"review of the plan {run_path()}".rstrip()

    async def ask() -> Any:
        return interrupt(plan_request(plan, problem))

    while True:
        answer = await awaited_fact(session, review, ask)
        try:
            return _apply_decision(read_review(answer), state, executors)
        except PlanError as error:
            problem = str(error)


def read_review(answer: Any) -> Decision | None:
    """Read an answer about a plan: a decision, the wanted steps, or what to change.

    PlanError: it begins like JSON, but is not.
    """
    if isinstance(answer, str) and _AS_JSON.match(answer):
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"the answer is not JSON ({error})") from error
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
    """Return the update for a decision. PlanError: it cannot be carried out, and why."""
    if decision is None:
        raise PlanError(
            "that is not a decision (`approve`, `reject`, the steps, or what to change)"
        )
    if decision.type == "approve":
        return {"reviewed": True}
    if decision.type == "edit":
        args = {"command": "create", **(decision.args or {})}
        if problems := PLANNING.problems(planning.name, args):
            raise PlanError("; ".join(problems))
        steps = make_steps(args.get("steps") or (), executors.names)
        return {"reviewed": True, **_new_plan(args.get("title") or state["title"], steps)}
    if not decision.message:
        answer = "The plan was rejected, and nothing was done."
        return {"status": "failed", "stop_reason": "terminate", "answer": answer}
    feedback = render("plan_rejected", plan=plan_text(flow.plan_of(state)), reason=decision.message)
    return {"drafts": [HumanMessage(feedback)]}


async def route_after_approve_plan(
    state: PlanningState,
) -> Literal["create_plan", "schedule", "finalize"]:
    """Make a rejected plan again; carry out an approved one."""
    if state.get("stop_reason"):
        return "finalize"
    return "create_plan" if state["drafts"] else "schedule"
