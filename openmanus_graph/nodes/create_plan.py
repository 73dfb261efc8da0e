"""`create_plan`: the model makes the plan."""

import asyncio
import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.history import has_task, last_user_message
from openmanus_graph.conversation.outcome import NO_TASK, failure
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.planning.executors import ExecutorSet
from openmanus_graph.planning.flow import (
    new_step_run,
    progress_of,
    state_of_paused_run,
    step_runs_of,
    steps_to_replace,
    task_of,
    unfinished_plan,
)
from openmanus_graph.planning.plan import PlanError, make_steps
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import take_baseline
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.plan import Step
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.state.reducers import no_usage
from openmanus_graph.tools.planning import PLANNING, planning

Update = dict[str, Any]
MAX_DRAFTS = 3
"""Replies that the model has for one plan."""
FALLBACK = ("Analyze request", "Execute task", "Verify results")


async def create_plan(
    state: PlanningState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> Update:
    """Ask the model once; a reply that is no plan is answered with the reason in the next pass."""
    started = time.monotonic()
    session = await enter_session(runtime)
    begun = begin_run(state)
    if begun:
        run, fork = begun["run_message"], bool(session.fork_id)
        await asyncio.to_thread(take_baseline, session.workspace, run, anew=fork)
        if state.get("order") and not state["reviewed"] and not state.get("stop_reason"):
            notice(runtime.stream_writer, "The plan before, which nobody approved, is dropped.")
    now: PlanningState = {**state, **begun}  # type: ignore[typeddict-item]  # begun's keys are the state's
    if begun and not has_task(now["messages"]):
        return _begun(begun, session, now) | failure(NO_TASK)
    if begun and unfinished_plan(now) != "create_plan":  # it goes on with a plan it had made
        return _begun(begun, session, now)
    if now["replanning"]:  # since there are workers, the one whose step failed does that
        return {"replanning": [], "drafts": []}
    drafts = now["drafts"]
    call = ModelCall(
        system=render(
            "plan_create", roster=executors.roster(), date=datetime.date.today().isoformat()
        ),
        history=[*now["messages"], *drafts],
        request_suffix="",
        tools=PLANNING.definitions,
        progress=progress_of(now, session.settings),
        step=now["step_count"] + 1,
        counts_as_step=True,
    )
    update: Update = {"status": None, "stop_reason": None, "answer": ""}
    update |= _begun(begun, session, now) if begun else {"branch": session.on_fork(now["branch"])}
    spent: Update = {}
    try:
        reply, usage = await call_model(call, session, runtime.stream_writer)
        spent = {"usage": usage, "step_count": 1}
        update |= _apply_reply(reply, now, drafts, executors, runtime.stream_writer)
    except LimitReached as ended:
        runtime.stream_writer(ended.limit.event())
        update |= {"status": "stopped", "stop_reason": ended.reason}
    except ModelError as error:
        update |= failure(error.sentence)
    spent["elapsed_s"] = now["elapsed_s"] + time.monotonic() - started
    return update | ({key: Overwrite(value) for key, value in spent.items()} if begun else spent)


def _apply_reply(
    reply: AIMessage,
    state: PlanningState,
    drafts: Sequence[AnyMessage],
    executors: ExecutorSet,
    emit: Emit,
) -> Update:
    """Return what a reply means: another try, or the plan."""
    draft = read_draft(reply, state, executors.names, [])
    asked = sum(isinstance(message, AIMessage) for message in drafts) + 1
    if draft.steps is None and asked < MAX_DRAFTS and not draft.refused:
        return {"drafts": [*drafts, reply, *draft.answers]}
    title, steps = draft.title, draft.steps
    if steps is None:
        notice(emit, "The model made no plan; a plain one is used.")
        title, steps = f"Plan for: {task_of(state)[:50]}", make_steps(FALLBACK, executors.names)
    return {
        "title": title,
        "order": [step["id"] for step in steps],
        "steps": Overwrite({step["id"]: new_step_run(step) for step in steps}),
        "drafts": [],
    }


def _begun(begun: Update, session: Session, state: PlanningState) -> Update:
    """Return the update that begins a run: what counts up in the state begins anew."""
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


def begin_run(state: PlanningState) -> Update:
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
        "replanning": [],
        "replans": 0,
        "step_count": 0,
        "elapsed_s": 0.0,
        "usage": no_usage(),
        "status": None,
        "stop_reason": None,
        "answer": "",
        "structured": None,
        "artifacts": [],
        **state_of_paused_run(message),
    }


@dataclass(frozen=True)
class Draft:
    """What a reply of the model holds: a plan, or what is wrong with it."""

    title: str
    steps: list[Step] | None
    answers: Sequence[AnyMessage] = ()
    """What the model gets as answers, where it made no plan."""
    refused: bool = False
    """It says in words that there is no other way."""


def read_draft(
    reply: AIMessage, state: PlanningState, executors: Sequence[str], failed: Sequence[str]
) -> Draft:
    """Take the first plan of a reply, or say what is wrong with each of its calls.

    Args:
        reply: The model's.
        state: The plan as it stands, if there is one.
        executors: The names that steps may have.
        failed: The steps whose part is planned anew; none in a new plan.
    """
    problems: dict[str, str] = {
        str(call["id"]): call["error"] or "the arguments are no JSON object"
        for call in reply.invalid_tool_calls
    }
    for call in reply.tool_calls:
        try:
            return _draft_of_call(call["name"], call["args"], state, executors, failed)
        except (PlanError, ToolError) as error:
            problems[str(call["id"])] = str(error)
    answers: list[AnyMessage] = [
        ToolMessage(
            render("plan_invalid", problem=problem.rstrip(".")),
            tool_call_id=call_id,
            status="error",
        )
        for call_id, problem in problems.items()
    ]
    if not problems:
        answers = [HumanMessage(render("plan_invalid", problem="it has no call of planning"))]
    refused = bool(failed) and not problems and bool(reply.text.strip())
    return Draft("", None, answers, refused)


def _draft_of_call(
    name: str,
    args: Mapping[str, Any],
    state: PlanningState,
    executors: Sequence[str],
    failed: Sequence[str],
) -> Draft:
    if name != planning.name:
        raise PlanError(f"there is no tool {name!r} here")
    PLANNING.check(name, args)
    if args["command"] not in ("create", "update"):
        raise PlanError(f"the command {args['command']!r} makes no plan")
    given = args.get("steps") or ()
    if not failed:
        title = args.get("title") or task_of(state)[:80]
        return Draft(title, make_steps(given, executors))
    replaced, _ = steps_to_replace(step_runs_of(state), failed)
    kept = [step_run for step_run in step_runs_of(state) if step_run["id"] not in replaced]
    prefix = f"r{state['replans'] + 1}."
    return Draft(state["title"], make_steps(given, executors, kept=kept, prefix=prefix))
