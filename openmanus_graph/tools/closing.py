"""`ask_human`, and the tools that end a run."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolRuntime
from pydantic import WithJsonSchema

from openmanus_graph.conversation.replies import ResponseFormat, validated
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.interrupts import question_request, read_text
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool

WRAPPED = "response"
Kind = Literal["question", "browser"]


@manus_tool(effect="read_only", resource="person", timeout_s=10)
async def ask_human(  # the runtime is not the model's to fill
    inquire: str,
    runtime: ToolRuntime[Any, Any],
    kind: Annotated[Kind | None, WithJsonSchema({"type": "string"})] = None,
) -> str:
    """Ask the person.

    Args:
        inquire: The question.
        kind: browser: in your browser.
    """
    call = call_runtime(runtime)
    browser = call.session.worker if kind == "browser" else None
    ask, request = call.ask_person, question_request(inquire, browser=browser)
    while (answer := read_text(await ask(request))) is None:
        request = {**request, "question": f"That was not an answer. {inquire}"}
    return answer


@manus_tool(effect="read_only", resource="ending")
def terminate(status: Literal["success", "failure"], answer: str = "") -> Observation:
    """End the run if the task cannot be done.

    Args:
        status: failure.
        answer: What is missing, and why.
    """
    del answer  # read from the call; without it the text of the same reply is the answer
    return Observation(f"The run ends with status {status}.", ends_run=status)


@manus_tool(effect="read_only", resource="ending")
def create_chat_completion(response: str) -> Observation:
    """End the run with this answer.

    Args:
        response: The answer.
    """
    return Observation(response, ends_run="answer")


def structured_completion(response_format: ResponseFormat) -> BaseTool:
    """Make the tool for a caller that wants its answer in a format.

    The format's own fields are the arguments; if it is not an object, it is wrapped in `response`.
    """
    schema = _arguments_schema(response_format)

    def deliver(**arguments: Any) -> tuple[str, Observation]:
        value = structured_value(arguments, response_format)
        text = json.dumps(value, ensure_ascii=False)
        return text, Observation(text, structured=value, ends_run="answer")

    return StructuredTool(
        name=create_chat_completion.name,
        description="Deliver the final answer in the caller's format and end the run.",
        args_schema=schema,
        func=deliver,
        response_format="content_and_artifact",
        metadata=create_chat_completion.metadata,
    )


def structured_value(arguments: Mapping[str, Any], response_format: ResponseFormat) -> Any:
    """Return the validated value of a call of that tool. ToolError says what is wrong with it."""
    value = arguments.get(WRAPPED) if _is_wrapped(response_format) else dict(arguments)
    return validated(value, response_format)


def _is_wrapped(response_format: ResponseFormat) -> bool:
    return isinstance(response_format, dict) and response_format.get("type", "object") != "object"


def _arguments_schema(response_format: ResponseFormat) -> dict[str, Any]:
    if not isinstance(response_format, dict):
        return response_format.model_json_schema()
    if not _is_wrapped(response_format):
        return {"properties": {}, **response_format, "type": "object"}
    definitions: Mapping[str, Any] = response_format.get("$defs", {})
    inner = {key: value for key, value in response_format.items() if key != "$defs"}
    return {
        "type": "object",
        "properties": {WRAPPED: inner},
        "required": [WRAPPED],
        **({"$defs": definitions} if definitions else {}),
    }
