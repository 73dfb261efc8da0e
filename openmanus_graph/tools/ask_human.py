"""`ask_human`: a question to the person by an interrupt, which may be answered days later."""

from typing import Annotated, Any, Literal

from langgraph.prebuilt import ToolRuntime
from pydantic import WithJsonSchema

from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.interrupts import question_request, read_text
from openmanus_graph.tool_calls.declaration import manus_tool

Kind = Literal["question", "browser"]


@manus_tool(effect="read_only", resource="person", timeout_s=10)
async def ask_human(  # the runtime is not the model's to fill
    inquire: str,
    runtime: ToolRuntime[Any, Any],
    kind: Annotated[Kind | None, WithJsonSchema({"type": "string"})] = None,
) -> str:
    """Ask the person; kind browser: to log in or solve a captcha in your browser."""
    call = call_runtime(runtime)
    browser = call.session.worker if kind == "browser" else None
    ask, request = call.ask_person, question_request(inquire, browser=browser)
    while (answer := read_text(await ask(request))) is None:
        request = {**request, "question": f"That was not an answer. {inquire}"}
    return answer
