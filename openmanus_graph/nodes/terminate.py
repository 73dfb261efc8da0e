"""`terminate`: every run ends here, whether the tool of that name ended it or not."""

import asyncio
from typing import Any

from langgraph.runtime import Runtime

from openmanus_graph.artifacts import changed_files
from openmanus_graph.history import last_text
from openmanus_graph.inbox import open_inbox
from openmanus_graph.limits import limit_text
from openmanus_graph.registry import enter_session
from openmanus_graph.settings import Settings
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusState


async def terminate(state: ManusState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Collect the files and the answer, which is always set: at a limit it is what there is."""
    session = await enter_session(runtime)
    await (await open_inbox(session)).leave(state.get("remarks", []), runtime.stream_writer)
    artifacts = await asyncio.to_thread(changed_files, session.workspace, state["run_message"])
    answer = state.get("answer") or final_answer(state, session.settings)
    return {"answer": answer, "artifacts": artifacts}


def final_answer(state: ManusState, settings: Settings) -> str:
    """Return the answer of a run to which nothing gave one."""
    said = last_text(state["messages"])
    match state.get("stop_reason"):
        case "max_steps" | "budget" | "timeout" as reason:
            return "\n\n".join(filter(None, (said, limit_text(reason, settings))))
        case "stuck":
            why = "The run stopped because its last steps repeated themselves without any result."
            return "\n\n".join(filter(None, (said, why)))
        case _:
            return said
