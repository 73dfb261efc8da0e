"""How a run ends: pure decisions over the conversation."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from pydantic import BaseModel, ValidationError

from openmanus_graph.errors import ToolError
from openmanus_graph.history import last_reply, last_results, last_text
from openmanus_graph.schemas import schema_problems, validation_problems

ResponseFormat = dict[str, Any] | type[BaseModel]
Ending = Literal["answer", "success", "failure"]
NO_TASK = (
    "There is no task: no message of the user says or shows anything. "
    'Give one, e.g. {"messages": [{"role": "user", "content": "..."}]}.'
)


@dataclass(frozen=True)
class ToolEnding:
    """A tool's wish to end the run."""

    ending: Ending
    text: str
    """The result's own text."""
    structured: Any
    failed: tuple[str, ...]
    """Calls beside it that failed: the wish is not granted then."""


def tool_ending(messages: Sequence[AnyMessage]) -> ToolEnding | None:
    """Return the wish of the newest results to end the run, if there is one.

    It counts only after all calls of the step have finished; `terminate(failure)` always does.
    """
    results = last_results(messages)
    wishes = [result for result in results if _wish(result)]
    if not wishes:
        return None
    wish: dict[str, Any] = wishes[0].artifact  # `_wish` looked
    failed = tuple(result.name or "?" for result in results if result.status == "error")
    ending: Ending = wish["ends_run"]
    failed = () if ending == "failure" else failed
    return ToolEnding(ending, wishes[0].text, wish.get("structured"), failed)


def tool_outcome(messages: Sequence[AnyMessage], ending: ToolEnding) -> dict[str, Any]:
    """Return what the state says of a run that a tool ended."""
    if ending.ending == "answer":
        return {
            "status": "finished",
            "stop_reason": "answer",
            "structured": ending.structured,
            "answer": ending.text,
        }
    succeeded = ending.ending == "success"
    silent = "The task is done." if succeeded else "The task could not be done."
    reply = last_reply(messages)
    said = reply.text.strip() if reply else ""
    return {
        "status": "finished" if succeeded else "failed",
        "stop_reason": "terminate",
        "answer": said or last_text(messages) or silent,
    }


def failure(sentence: str) -> dict[str, Any]:
    """Return what the state says of a run that an error ended."""
    return {"status": "failed", "stop_reason": "error", "answer": sentence}


def _wish(result: ToolMessage) -> bool:
    artifact: Any = result.artifact
    return isinstance(artifact, dict) and "ends_run" in artifact


def answers(reply: AIMessage, response_format: ResponseFormat | None) -> tuple[bool, Any]:
    """Say whether a reply ends the run as its answer, and its structured value.

    Where the caller wants a structured answer, plain text counts only if it is one.
    """
    if reply.tool_calls or reply.invalid_tool_calls or not reply.text.strip():
        return False, None
    if response_format is None:
        return True, None
    text = reply.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        return True, validated(json.loads(text), response_format)
    except (ValueError, ToolError):
        return False, None


def validated(value: Any, response_format: ResponseFormat) -> Any:
    """Validate an object against the caller's format and return it as plain data.

    Raises:
        ToolError: What does not fit, for the model.
    """
    if isinstance(response_format, dict):
        problems = schema_problems(response_format, value)
        if problems:
            raise ToolError(f"That does not fit the schema. {'; '.join(problems)}.")
        return value
    try:
        return response_format.model_validate(value).model_dump(mode="json")
    except ValidationError as error:
        details = "; ".join(validation_problems(error))
        raise ToolError(f"That does not fit the schema. {details}.") from error
