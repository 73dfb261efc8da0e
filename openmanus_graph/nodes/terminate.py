"""`terminate`: every run ends here, whether or not the tool of that name ended it."""

import asyncio
from typing import Any

from langgraph.runtime import Runtime

from openmanus_graph.backends.persistence.steering import steering_reader
from openmanus_graph.backends.snapshots.shared_files import put_files_back
from openmanus_graph.conversation.history import last_text
from openmanus_graph.runtime.artifacts import changed_files
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusState, no_claims

UNSUPPORTED = (
    "The answer was delivered although {not_found} of {checked} things checked in it occur neither "
    "in the task nor in any result. Check it yourself."
)


async def terminate(state: ManusState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Collect the files and set the answer; at a limit it is the last text."""
    session = await enter_session(runtime)
    await (await steering_reader(session)).end_run(state.get("steering", []), runtime.stream_writer)
    await put_files_back(session, runtime.stream_writer)
    artifacts = await asyncio.to_thread(changed_files, session.workspace, state["run_message"])
    answer = state.get("answer") or final_answer(state)
    claims = state.get("claims") or no_claims()
    if claims["not_found"]:
        notice(runtime.stream_writer, UNSUPPORTED.format(**claims))
    return {"answer": answer, "artifacts": artifacts}


def final_answer(state: ManusState) -> str:
    """Return the answer of a run that ended without one."""
    text = last_text(state["messages"])
    if state.get("stop_reason") != "stuck":
        return text
    why = "The run stopped because its last steps repeated themselves without any result."
    return "\n\n".join(filter(None, (text, why)))
