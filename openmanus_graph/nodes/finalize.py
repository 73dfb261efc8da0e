"""`finalize`: every planning run ends here, with an answer made from the steps' results."""

import asyncio
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.runtime import Runtime

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.steering import steering_reader
from openmanus_graph.backends.snapshots.shared_files import put_files_back
from openmanus_graph.conversation.history import ORIGIN_KEY
from openmanus_graph.conversation.replies import read_reply
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.planning import flow
from openmanus_graph.planning.drafting import results_text
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import changed_files
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached, Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import Origin
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools.terminate import structured_completion, structured_value


async def finalize(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Write the answer and collect the files. At a limit the model is not asked again."""
    session, step_runs = await enter_session(runtime), flow.step_runs_of(state)
    update: dict[str, Any] = {}
    if (reason := state.get("stop_reason")) is None:
        done = all(step_run["status"] == "completed" for step_run in step_runs)
        update = {"status": "finished", "stop_reason": "answer"}
        if not done:
            update = {"status": "failed", "stop_reason": "terminate"}
        only = step_runs[0]["result"] if done and len(step_runs) == 1 else ""
        if only and session.settings.response_format is None:
            update["answer"] = only
        else:
            update |= await _summary(state, session, runtime.stream_writer)
    elif not state.get("answer"):
        limit = flow.ended_by(reason, state, session.settings) if flow.is_limit(reason) else None
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
    said = AIMessage(answer, additional_kwargs={ORIGIN_KEY: origin})
    return update | {"messages": [said], "artifacts": artifacts}


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
    return {"answer": said or results, "usage": usage, **_structured(reply, wanted)}


def _structured(reply: AIMessage, wanted: Any) -> dict[str, Any]:
    if wanted is None:
        return {}
    for call in reply.tool_calls:
        try:
            return {"structured": structured_value(call["args"], wanted)}
        except ToolError:
            continue
    return {"structured": read_reply([reply], wanted).structured}
