"""`create_plan`: the model makes the plan, or replaces a part of it that broke."""

import asyncio
import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from openmanus_graph.artifacts import take_baseline
from openmanus_graph.carried import carried_by
from openmanus_graph.errors import ToolError
from openmanus_graph.events import Emit, notice
from openmanus_graph.flow import (
    failed_for_good,
    jobs_of,
    mended_order,
    mending_text,
    new_job,
    plan_of,
    progress_of,
    task_of,
    unfinished_plan,
)
from openmanus_graph.history import has_task, last_user_message
from openmanus_graph.limits import LimitReached
from openmanus_graph.models.call_model import ModelCall, call_model
from openmanus_graph.models.failures import ModelError
from openmanus_graph.outcome import NO_TASK, failure
from openmanus_graph.plans import PlanError, make_steps
from openmanus_graph.prompts import plan_create, plan_mend, plan_missing
from openmanus_graph.registry import enter_session
from openmanus_graph.sessions import Session
from openmanus_graph.state.context import Context
from openmanus_graph.state.plan import Step
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.state.reducers import no_usage
from openmanus_graph.team import Team
from openmanus_graph.tools.planning import PLANNING, planning

Update = dict[str, Any]
MAX_DRAFTS = 3
"""Replies that the model has for one plan."""
FALLBACK = ("Analyze request", "Execute task", "Verify results")


async def create_plan(state: PlanningState, runtime: Runtime[Context], *, team: Team) -> Update:
    """Ask the model once; a reply that is no plan is answered with the reason in the next pass."""
    started = time.monotonic()
    session = await enter_session(runtime)
    begun = begin_run(state)
    if begun:
        run, fork = begun["run_message"], bool(session.line)
        await asyncio.to_thread(take_baseline, session.workspace, run, anew=fork)
        if state.get("order") and not state["reviewed"] and not state.get("stop_reason"):
            notice(runtime.stream_writer, "The plan before, which nobody approved, is dropped.")
    now: PlanningState = {**state, **begun}  # type: ignore[typeddict-item]  # begun's keys are the state's
    if begun and not has_task(now["messages"]):
        return _begun(begun, session, now) | failure(NO_TASK)
    if begun and unfinished_plan(now) != "create_plan":  # it goes on with a plan it had made
        return _begun(begun, session, now)
    drafts = now["drafts"] or _request(now)
    call = ModelCall(
        system=plan_create(roster=team.roster(), date=datetime.date.today().isoformat()),
        history=[*now["messages"], *drafts],
        steering="",
        tools=PLANNING,
        progress=progress_of(now, session.settings),
        step=now["step_count"] + 1,
        counted=True,
    )
    update: Update = {"status": None, "stop_reason": None, "answer": ""}
    update |= _begun(begun, session, now) if begun else {"branch": session.on_line(now["branch"])}
    spent: Update = {}
    try:
        reply, usage = await call_model(call, session, runtime.stream_writer)
        spent = {"usage": usage, "step_count": 1}
        update |= _planned(reply, now, drafts, team, runtime.stream_writer)
    except LimitReached as limit:
        runtime.stream_writer({"type": "limit", "reason": limit.reason})
        update |= {"status": "stopped", "stop_reason": limit.reason}
    except ModelError as error:
        update |= failure(error.sentence)
    spent["elapsed_s"] = now["elapsed_s"] + time.monotonic() - started
    return update | ({key: Overwrite(value) for key, value in spent.items()} if begun else spent)


def _planned(
    reply: AIMessage, state: PlanningState, drafts: Sequence[AnyMessage], team: Team, emit: Emit
) -> Update:
    """Return what a reply means: another try, the part that was mended, or the plan."""
    draft = read_draft(reply, state, team.names)
    asked = sum(isinstance(message, AIMessage) for message in drafts) + 1
    if draft.steps is None and asked < MAX_DRAFTS and not draft.refused:
        return {"drafts": [*drafts, reply, *draft.answers]}
    if state["mending"]:
        return _mended(state, draft)
    if draft.steps is None:
        notice(emit, "The model made no plan; a plain one is used.")
        draft = Draft(f"Plan for: {task_of(state)[:50]}", make_steps(FALLBACK, team.names))
    return _placed(draft)


def _begun(begun: Update, session: Session, state: PlanningState) -> Update:
    """Return the update that begins a run: what counts up in the state begins anew."""
    fresh = {key: Overwrite(begun[key]) for key in ("usage", "elapsed_s", "step_count", "steps")}
    reviewed = begun.get("reviewed", not session.settings.review_plan)
    return {**begun, **fresh, "reviewed": reviewed, "branch": session.on_line(state["branch"])}


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
        "mending": [],
        "replans": 0,
        "step_count": 0,
        "elapsed_s": 0.0,
        "usage": no_usage(),
        "status": None,
        "stop_reason": None,
        "answer": "",
        "structured": None,
        "artifacts": [],
        **carried_by(message),
    }


@dataclass(frozen=True)
class Draft:
    """What a reply came to."""

    title: str
    steps: list[Step] | None
    answers: Sequence[AnyMessage] = ()
    """What the model is told, where it made no plan."""
    refused: bool = False
    """It says in words that there is no other way."""


def read_draft(reply: AIMessage, state: PlanningState, executors: Sequence[str]) -> Draft:
    """Take the first plan of a reply, or say what is wrong with each of its calls."""
    problems: dict[str, str] = {
        str(call["id"]): call["error"] or "the arguments are no JSON object"
        for call in reply.invalid_tool_calls
    }
    for call in reply.tool_calls:
        try:
            return _plan(call["name"], call["args"], state, executors)
        except (PlanError, ToolError) as error:
            problems[str(call["id"])] = str(error)
    answers: list[AnyMessage] = [
        ToolMessage(plan_missing(problem=problem.rstrip(".")), tool_call_id=call_id, status="error")
        for call_id, problem in problems.items()
    ]
    if not problems:
        answers = [HumanMessage(plan_missing(problem="it has no call of planning"))]
    refused = bool(state["mending"]) and not problems and bool(reply.text.strip())
    return Draft("", None, answers, refused)


def _plan(
    name: str, args: Mapping[str, Any], state: PlanningState, executors: Sequence[str]
) -> Draft:
    if name != planning.name:
        raise PlanError(f"there is no tool {name!r} here")
    PLANNING.check(name, args)
    if args["command"] not in ("create", "update"):
        raise PlanError(f"the command {args['command']!r} makes no plan")
    given = args.get("steps") or ()
    if not state["mending"]:
        title = args.get("title") or task_of(state)[:80]
        return Draft(title, make_steps(given, executors))
    replaced, _ = failed_for_good(jobs_of(state), state["mending"])
    kept = [job for job in jobs_of(state) if job["id"] not in replaced]
    prefix = f"r{state['replans'] + 1}."
    return Draft(state["title"], make_steps(given, executors, kept=kept, prefix=prefix))


def _placed(draft: Draft) -> Update:
    steps = draft.steps or []
    return {
        "title": draft.title,
        "order": [step["id"] for step in steps],
        "steps": Overwrite({step["id"]: new_job(step) for step in steps}),
        "drafts": [],
    }


def _mended(state: PlanningState, draft: Draft) -> Update:
    """Replace the broken part, or leave its failed steps blocked."""
    if draft.steps is None:
        blocked = {name: {"status": "blocked"} for name in state["mending"]}
        return {"steps": blocked, "mending": [], "drafts": []}
    replaced, _ = failed_for_good(jobs_of(state), state["mending"])
    new = [step["id"] for step in draft.steps]
    steps: Update = dict.fromkeys(replaced)
    return {
        "order": mended_order(state["order"], replaced, new),
        "steps": steps | {step["id"]: new_job(step) for step in draft.steps},
        "mending": [],
        "drafts": [],
        "replans": state["replans"] + 1,
    }


def _request(state: PlanningState) -> list[AnyMessage]:
    """Return what the model is asked beside the task."""
    if not state["mending"]:
        return []
    jobs = jobs_of(state)
    failed = [job for job in jobs if job["id"] in state["mending"]]
    replaced, completed = failed_for_good(jobs, state["mending"])
    plan, failures = mending_text(plan_of(state), failed)
    text = plan_mend(
        plan=plan,
        failures=failures,
        replaced=", ".join(replaced),
        completed=", ".join(completed) or "none",
    )
    return [HumanMessage(text)]
