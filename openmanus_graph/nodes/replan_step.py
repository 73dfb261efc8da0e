"""`replan_step`: the model replaces the part of the plan that broke with a worker's step."""

import datetime
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.runtime import Runtime

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.outcome import failure
from openmanus_graph.model_calls.budget import sharing
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.nodes.create_plan import MAX_DRAFTS, Draft, read_draft
from openmanus_graph.nodes.run_step import wave_of
from openmanus_graph.planning.executors import ExecutorSet
from openmanus_graph.planning.flow import (
    current_step,
    new_step_run,
    plan_of,
    progress_of,
    replanning_text,
    step_runs_of,
    steps_to_replace,
)
from openmanus_graph.planning.wave import report_of, worker_of
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import PlanningState, Replacement, RunEnd, StepRun, StepState
from openmanus_graph.state.reducers import Usage, add_usage, no_usage
from openmanus_graph.tools.planning import PLANNING


async def replan_step(
    state: StepState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> dict[str, Any]:
    """Replace the step that failed for good and those that depend on it, or leave it blocked."""
    session = await enter_session(runtime)
    wave, worker, step_run = wave_of(session, state), worker_of(state), current_step(state)
    wave.learn(worker, report_of(state))
    await wave.begin_replanning(worker)
    try:
        with sharing(wave.budget):
            draft, usage, calls = await _ask(wave.state, step_run, executors, session, wave.emit)
    except LimitReached as ended:
        return {"run_end": RunEnd(status="stopped", stop_reason=ended.reason, answer="")}
    except ModelError as error:
        return {"run_end": failure(error.sentence)}
    spent = {"usage": usage, "step_count": calls, "elapsed_s": wave.elapsed_s}
    if draft.steps is None:
        return {**spent, "steps": {step_run["id"]: {"status": "blocked", "outcome": ""}}}
    now = wave.state
    replaced, _ = steps_to_replace(step_runs_of(now), [step_run["id"]])
    new = [new_step_run(one) for one in draft.steps]
    for one in new:
        if one["id"] in replaced:  # under an old name: what is known of the old one is no longer so
            one["attempt"] = now["steps"][one["id"]]["attempt"]
    replacement = Replacement(number=now["replans"] + 1, replaced=replaced, new=new)
    return {**spent, "steps": {step_run["id"]: None}, "replacements": [replacement]}


async def _ask(
    state: PlanningState,
    failed: StepRun,
    executors: ExecutorSet,
    session: Session,
    emit: Emit,
) -> tuple[Draft, Usage, int]:
    """Ask until there is a plan or a refusal; return it with the usage and count of the calls."""
    messages, usage, asked = [_request(state, failed)], no_usage(), 0
    while True:
        asked += 1
        call = ModelCall(
            system=render(
                "plan_create", roster=executors.roster(), date=datetime.date.today().isoformat()
            ),
            history=[*state["messages"], *messages],
            request_suffix="",
            tools=PLANNING.definitions,
            progress=progress_of(state, session.settings),
            step=asked,
            counts_as_step=True,
        )
        reply, used = await call_model(call, session, emit)
        usage = add_usage(usage, used)
        draft = read_draft(reply, state, executors.names, [failed["id"]])
        if draft.steps is not None or draft.refused or asked == MAX_DRAFTS:
            return draft, usage, asked
        messages += [reply, *draft.answers]


def _request(state: PlanningState, failed: StepRun) -> AnyMessage:
    """Return what the model is asked where a part of the plan failed."""
    replaced, completed = steps_to_replace(step_runs_of(state), [failed["id"]])
    plan, failures = replanning_text(plan_of(state), [failed])
    text = render(
        "plan_replan",
        plan=plan,
        failures=failures,
        replaced=", ".join(replaced),
        completed=", ".join(completed) or "none",
    )
    return HumanMessage(text)
