"""`check_step` and the nodes after it: judge a check, replan a part, merge the batch's reports.

`finalize`: every planning run ends here, with an answer made from the steps' results.
"""

import asyncio
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.steering import steering_reader
from openmanus_graph.backends.snapshots.shared_files import put_files_back
from openmanus_graph.backends.snapshots.thread_snapshots import snapshot_files
from openmanus_graph.conversation.answer_sources import sources_of_plan
from openmanus_graph.conversation.history import ORIGIN_KEY
from openmanus_graph.conversation.replies import read_reply
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.budget import sharing
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.nodes.schedule import enter_batch
from openmanus_graph.planning import checks, drafting, flow, plan
from openmanus_graph.planning.drafting import Drafting, next_draft, results_text, steps_text
from openmanus_graph.planning.executor_run import ExecutorSet
from openmanus_graph.planning.parallel_batch import ParallelBatch
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import changed_files
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached, Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ClaimSource, Origin, add_claims, no_claims
from openmanus_graph.state.planning import PlanningState, Replacement, RunEnd, StepRun, WorkerState
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools.closing import structured_completion, structured_value
from openmanus_graph.tools.planning import drafting_toolset


async def check_step(state: WorkerState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Check a step that ran. A failed one is tried again, then replanned, then blocked."""
    session, batch = await enter_batch(state, runtime)
    step_run, emit = flow.current_step(state), batch.emit
    for path, writers in flow.shared_files(flow.step_runs_of(batch.state), [step_run]):
        notice(emit, f"Steps {' and '.join(writers)} wrote the same file: {path}. Look at it.")
    if flow.is_limit(step_run["outcome"]):
        plan.emit_step_event(session, emit, "step_end", step_run, step_run["status"])
        return {"run_end": RunEnd(status="stopped", stop_reason=step_run["outcome"], answer="")}
    try:
        with sharing(batch.budget):
            problem, usage = await checks.check_step_run(step_run, batch.state, session, emit)
    except (LimitReached, ModelError) as error:
        return {"run_end": flow.run_end_of(error)}
    if problem is not None and checks.is_disputed(step_run):
        notice(emit, f"The check of step {step_run['id']} failed again: {problem}")
        update: dict[str, Any] = {"disputed": problem}
    else:
        update = review(step_run, problem, batch, session)
    update["cost_usd"] = step_run["cost_usd"] + usage["cost_usd"]
    return {"steps": {step_run["id"]: update}, "usage": usage, "elapsed_s": batch.elapsed_s}


def review(
    step_run: StepRun, problem: str | None, batch: ParallelBatch, session: Session
) -> dict[str, Any]:
    """Return the update of a checked step, and send its end."""
    if problem is not None:
        notice(batch.emit, f"Step {step_run['id']} failed: {problem}")
    update = flow.reviewed_step_update(step_run, problem, batch.state["replans"])
    status = "blocked" if update.get("outcome") == "failed" else update["status"]
    plan.emit_step_event(session, batch.emit, "step_end", step_run, status)
    return update


async def route_after_check(state: WorkerState) -> str:
    """Have a disputed check judged, run a corrected one, or replan; else take another step."""
    step_run = flow.current_step(state)
    ended = state.get("run_end") or not flow.is_under_way(step_run)
    return "next_step" if ended else flow.reviewing_node(step_run)


async def judge_check(state: WorkerState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Correct the check, so that it runs next, or let the step fail by it."""
    session, batch = await enter_batch(state, runtime)
    step_run = flow.current_step(state)
    try:
        with sharing(batch.budget):
            judged = await checks.judge_disputed_check(step_run, batch.state, session, batch.emit)
    except (LimitReached, ModelError) as error:
        return {"run_end": flow.run_end_of(error)}
    done_when, reason, usage = judged
    if done_when is None:
        problem = f"{step_run.get('disputed')} A judge looked at the check: {reason}"
        update = review(step_run, problem, batch, session)
    else:
        corrected = f"`{step_run['done_when']}` was wrong and is now `{done_when}`"
        notice(batch.emit, f"The check of step {step_run['id']}, {corrected}: {reason}")
        update = {"done_when": done_when}
    update |= {
        "disputed": "",
        "judged_attempt": step_run["attempt"],
        "cost_usd": step_run["cost_usd"] + usage["cost_usd"],
    }
    return {"steps": {step_run["id"]: update}, "usage": usage, "elapsed_s": batch.elapsed_s}


async def replan_step(
    state: WorkerState, runtime: Runtime[Context], *, executors: ExecutorSet
) -> dict[str, Any]:
    """Take one turn to replace a step that has finally failed, and the steps that depend on it.

    The other workers see the plan change only when there is a replacement. Without one the step
    stays blocked.
    """
    session, batch = await enter_batch(state, runtime)
    await batch.begin_replanning(state["worker"])
    now, failed = batch.state, flow.current_step(state)["id"]
    messages = state.get("drafts") or [_replan_request(now, flow.current_step(state))]
    toolset = await drafting_toolset(session)
    drafting = Drafting(now, messages, executors, toolset, failed=[failed])
    try:
        with sharing(batch.budget):
            draft = await next_draft(drafting, session, batch.emit)
    except (LimitReached, ModelError) as error:
        return {"run_end": flow.run_end_of(error), "drafts": []}
    spent = {"usage": draft.usage, "step_count": draft.model_calls, "elapsed_s": batch.elapsed_s}
    if not draft.over:
        return {**spent, "drafts": draft.messages}
    if draft.steps is None:
        return {**spent, "drafts": [], "steps": {failed: {"status": "blocked", "outcome": ""}}}
    replaced = flow.steps_to_replace(flow.step_runs_of(now), [failed])
    new = [flow.new_step_run(one) for one in draft.steps]
    for one in new:
        if one["id"] in replaced:  # so that reports of the old step with this id do not count
            one["attempt"] = now["steps"][one["id"]]["attempt"]
    replacement = Replacement(number=now["replans"] + 1, replaced=replaced, new=new)
    return {**spent, "drafts": [], "steps": {failed: None}, "replacements": [replacement]}


def _replan_request(state: PlanningState, failed: StepRun) -> AnyMessage:
    step_runs = flow.step_runs_of(state)
    completed = [one["id"] for one in step_runs if one["status"] == "completed"]
    text = render(
        "plan_replan",
        plan=steps_text(step_runs),
        failed=failed["id"],
        why=drafting.attempt_text(failed),
        replaced=", ".join(flow.steps_to_replace(step_runs, [failed["id"]])),
        completed=", ".join(completed) or "none",
    )
    return HumanMessage(text)


async def route_after_replan_step(state: WorkerState) -> Literal["replan_step", "next_step"]:
    """Take another turn until there is a new part, or none."""
    return "replan_step" if state["drafts"] else "next_step"


async def review_step(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Merge the workers' reports into the plan. A limit, or a model that failed, ends the run."""
    session = await enter_session(runtime)
    session.files_may_differ = True  # its steps ran in other sessions
    snapshot = await snapshot_files(session, state, runtime.stream_writer)
    reports = state.get("reports", {}).values()
    order, steps, replans = flow.merge_reports(state, reports)
    run_end = next(filter(None, (report["run_end"] for report in reports)), None)
    changed: dict[str, Any] = {
        name: step_run for name, step_run in steps.items() if step_run != state["steps"].get(name)
    }
    changed |= dict.fromkeys(state["steps"].keys() - steps.keys())
    for name, step_run in steps.items():
        if flow.is_limit(step_run["outcome"]):  # it resumes when the run does
            changed[name] = {**step_run, "outcome": ""}
            run_end = run_end or RunEnd(
                status="stopped", stop_reason=step_run["outcome"], answer=""
            )
    if run_end is not None and flow.is_limit(run_end["stop_reason"]):
        limit = flow.ended_by(run_end["stop_reason"], state, session)
        runtime.stream_writer(limit.event())
    return {
        **snapshot,
        **(run_end or {}),
        "order": order,
        "steps": changed,
        "replans": replans,
        "reports": Overwrite({}),
    }


async def route_after_review_step(state: PlanningState) -> Literal["schedule", "finalize"]:
    """Begin what can begin now, unless the run has ended."""
    return "finalize" if state.get("stop_reason") else "schedule"


async def finalize(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Write the answer and collect the files. At a limit the model is not asked again."""
    session, step_runs = await enter_session(runtime), flow.step_runs_of(state)
    update: dict[str, Any] = {}
    if (reason := state.get("stop_reason")) is None:
        done = all(step_run["status"] == "completed" for step_run in step_runs)
        update = {"status": "finished", "stop_reason": "answer"}
        if not done:
            update = {"status": "failed", "stop_reason": "terminate"}
        last = flow.answering_step(step_runs)
        if done and last and last["result"] and session.settings.response_format is None:
            update["answer"] = last["result"]
        else:
            update |= await _summary(state, session, runtime.stream_writer)
    elif not state.get("answer"):
        limit = flow.ended_by(reason, state, session) if flow.is_limit(reason) else None
        why = limit.text(steps="model calls") if limit else ""
        results = results_text(step_runs, with_errors=False)
        update["answer"] = "\n\n".join(filter(None, (results, why)))
    answer = update.get("answer") or state.get("answer", "")
    await put_files_back(session, runtime.stream_writer)
    artifacts = await asyncio.to_thread(changed_files, session.workspace, state["run_message"])
    await (await steering_reader(session)).end_run([], runtime.stream_writer)
    # Later turns of the thread see the answer alone, and have to know what the steps have seen.
    urls = [url for step_run in step_runs for url in step_run["urls"]]
    origin = Origin(words="", urls=urls, tainted=True, openings=dict(flow.openings_of(state)))
    # With the id of the reply, which clients have seen as a stream.
    message_id = update.pop("message_id", None)
    said = AIMessage(answer, id=message_id, additional_kwargs={ORIGIN_KEY: origin})
    sources = await asyncio.to_thread(_sources, answer, state, session)
    return update | {
        "messages": [said],
        "artifacts": artifacts,
        "claims": add_claims(no_claims(), sources),
        "sources": sources,
    }


def _sources(answer: str, state: PlanningState, session: Session) -> list[ClaimSource]:
    """Return where the claims of the answer, and of the steps' reports, come from. Blocks."""
    if session.settings.answer_check == "off":
        return []
    results = [
        (one["id"], one["result"], one.get("sources", ())) for one in flow.step_runs_of(state)
    ]
    reported = [one for *_, sources in results for one in sources if one["file"]]
    return [*sources_of_plan(answer, flow.task_of(state), results), *reported]


async def _summary(state: PlanningState, session: Session, emit: Emit) -> dict[str, Any]:
    """Have the model write the answer. If it cannot, the answer is the results themselves.

    The answer never holds errors of tools: only the model that writes about them reads them.
    """
    wanted = session.settings.response_format
    reported = results_text(flow.step_runs_of(state), with_errors=True)
    results = results_text(flow.step_runs_of(state), with_errors=False)
    tool = None if wanted is None else structured_completion(wanted)
    steering = await (await steering_reader(session)).read_by_steps()
    call = ModelCall(
        system=render("plan_summary"),
        history=[
            HumanMessage(render("plan_results", task=flow.task_of(state), results=reported)),
            *steering,
        ],
        reminder="",
        tools=Toolset({} if tool is None else {tool.name: tool}, None).definitions,
        progress=Progress(0, state["usage"], state["elapsed_s"]),
        step=state["step_count"] + 1,
    )
    try:
        reply, usage = await call_model(call, session, emit)
    except (LimitReached, ModelError) as error:
        notice(emit, f"The summary could not be written: {error}")
        return {"answer": results}
    said = reply.text.strip() if read_reply([reply], None).kind == "answer" else ""
    answer = {"answer": said or results, "message_id": reply.id if said else None}
    return {**answer, "usage": usage, **_structured(reply, wanted)}


def _structured(reply: AIMessage, wanted: Any) -> dict[str, Any]:
    if wanted is None:
        return {}
    for call in reply.tool_calls:
        try:
            return {"structured": structured_value(call["args"], wanted)}
        except ToolError:
            continue
    return {"structured": read_reply([reply], wanted).structured}
