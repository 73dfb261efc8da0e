"""`replan_step`: the model replaces the part of the plan that broke with a worker's step."""

from typing import Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.runtime import Runtime

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.conversation.outcome import failure
from openmanus_graph.model_calls.budget import sharing
from openmanus_graph.nodes.run_step import wave_of
from openmanus_graph.planning.drafting import Drafting, next_draft, steps_text
from openmanus_graph.planning.executor_run import ExecutorSet
from openmanus_graph.planning.flow import (
    current_step,
    new_step_run,
    step_runs_of,
    steps_to_replace,
)
from openmanus_graph.planning.step_outcome import attempt_text
from openmanus_graph.planning.wave import report_of, worker_of
from openmanus_graph.prompts import render
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.planning import PlanningState, Replacement, RunEnd, StepRun, WorkerState
from openmanus_graph.tools.planning import drafting_toolset


async def replan_step(
    state: WorkerState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> dict[str, Any]:
    """Take a turn at what replaces the step that failed for good, and those that depend on it.

    The other workers see the plan change only when there is a replacement; without one the step
    stays blocked.
    """
    session = await enter_session(runtime)
    wave, worker, step_run = wave_of(session, state), worker_of(state), current_step(state)
    wave.learn(worker, report_of(state))
    await wave.begin_replanning(worker)
    now, failed = wave.state, step_run["id"]
    messages = state.get("drafts") or [_request(now, step_run)]
    toolset = await drafting_toolset(session)
    drafting = Drafting(now, messages, executors, toolset, failed=[failed])
    try:
        with sharing(wave.budget):
            draft = await next_draft(drafting, session, wave.emit)
    except LimitReached as ended:
        run_end = RunEnd(status="stopped", stop_reason=ended.reason, answer="")
        return {"run_end": run_end, "drafts": []}
    except ModelError as error:
        return {"run_end": failure(error.sentence), "drafts": []}
    spent = {"usage": draft.usage, "step_count": draft.model_calls, "elapsed_s": wave.elapsed_s}
    if not draft.over:
        return {**spent, "drafts": draft.messages}
    if draft.steps is None:
        return {**spent, "drafts": [], "steps": {failed: {"status": "blocked", "outcome": ""}}}
    replaced, _ = steps_to_replace(step_runs_of(now), [failed])
    new = [new_step_run(one) for one in draft.steps]
    for one in new:
        if one["id"] in replaced:  # under an old name: what is known of the old one is no longer so
            one["attempt"] = now["steps"][one["id"]]["attempt"]
    replacement = Replacement(number=now["replans"] + 1, replaced=replaced, new=new)
    return {**spent, "drafts": [], "steps": {failed: None}, "replacements": [replacement]}


async def route_after_replan_step(state: WorkerState) -> Literal["replan_step", "next_step"]:
    """Take another turn until there is a new part, or none."""
    return "replan_step" if state["drafts"] else "next_step"


def _request(state: PlanningState, failed: StepRun) -> AnyMessage:
    """Return what the model is asked where a part of the plan failed."""
    step_runs = step_runs_of(state)
    replaced, completed = steps_to_replace(step_runs, [failed["id"]])
    text = render(
        "plan_replan",
        plan=steps_text(step_runs),
        failed=failed["id"],
        why=attempt_text(failed),
        replaced=", ".join(replaced),
        completed=", ".join(completed) or "none",
    )
    return HumanMessage(text)
