"""`ask_human`: a question to the person by an interrupt, which may be answered days later."""

from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.interrupts import question_request, read_text
from openmanus_graph.tool_calls.declaration import manus_tool


@manus_tool(effect="pure", resource="person", timeout_s=10)
async def ask_human(  # the runtime is not the model's to fill
    inquire: str, runtime: ToolRuntime[Any, Any]
) -> str:
    """Ask the person a question."""
    ask, request = call_runtime(runtime).ask_person, question_request(inquire)
    while (answer := read_text(await ask(request))) is None:
        request = {**request, "question": f"That was no answer. {inquire}"}
    return answer
