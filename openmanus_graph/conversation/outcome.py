"""Decides how a run ends: pure functions of the conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AnyMessage
from pydantic import BaseModel, ValidationError

from openmanus_graph.conversation.history import last_results
from openmanus_graph.errors import ToolError
from openmanus_graph.state.validation import schema_problems, validation_problems

ResponseFormat = dict[str, Any] | type[BaseModel]
Ending = Literal["answer", "success", "failure"]
NO_TASK = (
    "There is no task: no message of the user says or shows anything. "
    'Give one, e.g. {"messages": [{"role": "user", "content": "..."}]}.'
)


@dataclass(frozen=True)
class ToolEnding:
    ending: Ending
    text: str
    structured: Any
    failed: tuple[str, ...]
    """Failed calls of the same reply, because of which the run continues."""


def tool_ending(messages: Sequence[AnyMessage]) -> ToolEnding | None:
    """Return the request of the newest results to end the run, if there is one.

    It counts only if no other call of the step failed. `terminate(failure)` always counts.
    """
    results = last_results(messages)
    result = next(filter(ends_run, results), None)
    if result is None:
        return None
    failed = tuple(other.name or "?" for other in results if other.status == "error")
    asked: dict[str, Any] = result.artifact
    ending: Ending = asked["ends_run"]
    failed = () if ending == "failure" else failed
    return ToolEnding(ending, result.text, asked.get("structured"), failed)


def ends_run(result: AnyMessage) -> bool:
    noted: Any = getattr(result, "artifact", None)
    return isinstance(noted, dict) and "ends_run" in noted


def asked_to_end_before(messages: Sequence[AnyMessage]) -> bool:
    """Return True if the previous step also asked to end the run, and could have."""
    before = tool_ending(messages[: len(messages) - len(last_results(messages)) - 1])
    return before is not None and not before.failed


def tool_outcome(ending: ToolEnding, said: str) -> dict[str, Any] | None:
    """Return the state update that ends a run as a tool requested; None if it lacks an answer.

    `said` is the answer in the text next to the calls, if there is one.
    """
    if ending.ending == "answer":
        ended = {"status": "finished", "stop_reason": "answer", "structured": ending.structured}
        return {**ended, "answer": ending.text}
    if ending.ending == "failure":
        answer = said or "The task could not be done."
        return {"status": "failed", "stop_reason": "terminate", "answer": answer}
    return {"status": "finished", "stop_reason": "terminate", "answer": said} if said else None


def failure(sentence: str) -> dict[str, Any]:
    return {"status": "failed", "stop_reason": "error", "answer": sentence}


def validated(value: Any, response_format: ResponseFormat) -> Any:
    """Return an object as plain data, validated against the caller's format.

    Raises ToolError if it is invalid; its text tells the model why.
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
