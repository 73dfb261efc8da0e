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
from openmanus_graph.planning.drafting import results_text
from openmanus_graph.planning.flow import (
    ended_by,
    final_status,
    is_limit,
    only_result,
    openings_of,
    step_runs_of,
    task_of,
)
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import changed_files
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.limits import LimitReached, Progress
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.plan import Origin
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools.terminate import structured_completion, structured_value


async def finalize(state: PlanningState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Write the answer and collect the files. At a limit the model is not asked once more."""
    session = await enter_session(runtime)
    update: dict[str, Any] = {}
    if state.get("stop_reason") is None:
        update = final_status(step_runs_of(state))
        update |= await _answer(state, session, runtime.stream_writer)
    elif not state.get("answer"):
        reason = state.get("stop_reason")
        why = ""
        if is_limit(reason):
            why = ended_by(reason, state, session.settings).text(steps="model calls")
        results = results_text(step_runs_of(state), with_errors=False)
        update["answer"] = "\n\n".join(filter(None, (results, why)))
    answer = update.get("answer") or state.get("answer", "")
    await put_files_back(session, runtime.stream_writer)
    artifacts = await asyncio.to_thread(changed_files, session.workspace, state["run_message"])
    await (await steering_reader(session)).end_run([], runtime.stream_writer)
    said = AIMessage(answer, additional_kwargs={ORIGIN_KEY: _origin(state)})
    return update | {"messages": [said], "artifacts": artifacts}


def _origin(state: PlanningState) -> Origin:
    """Return what a later turn of the thread must know of the steps: the answer alone stays."""
    urls = [url for step_run in step_runs_of(state) for url in step_run["urls"]]
    return Origin(words="", urls=urls, tainted=True, openings=dict(openings_of(state)))


async def _answer(state: PlanningState, session: Session, emit: Emit) -> dict[str, Any]:
    """Return the answer: of a plan of one step its result; else, or in a format, a summary."""
    if session.settings.response_format is None and (answer := only_result(state)):
        return {"answer": answer}
    return await _summary(state, session, emit)


async def _summary(state: PlanningState, session: Session, emit: Emit) -> dict[str, Any]:
    """Have the model write the answer; where it cannot, the results themselves are the answer.

    The errors of tools never are: only the model that writes about them gets to read them.
    """
    wanted = session.settings.response_format
    reported = results_text(step_runs_of(state), with_errors=True)
    results = results_text(step_runs_of(state), with_errors=False)
    tool = None if wanted is None else structured_completion(wanted)
    steering = await (await steering_reader(session)).read_by_steps()
    call = ModelCall(
        system=render("plan_summary"),
        history=[
            HumanMessage(render("plan_results", task=task_of(state), results=reported)),
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
    """Return the validated object of a reply, if the caller wants one and it is there."""
    if wanted is None:
        return {}
    for call in reply.tool_calls:
        try:
            return {"structured": structured_value(call["args"], wanted)}
        except ToolError:
            continue
    return {"structured": read_reply([reply], wanted).structured}
