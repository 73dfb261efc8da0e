"""How a run that a limit of a flow ended goes on as another one: with its conversation and state.

The conversation is the new run's input. What else its graph had kept comes with the user message
in it, where the node that begins a run finds it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.state.planning import Paused

CARRIED_KEY = "openmanus_carried"
"""Where that message keeps it."""
_OF_ONE_RUN = {
    "messages", "run_message", "usage", "step_count", "elapsed_s", "status", "stop_reason",
    "answer", "structured", "artifacts",
}  # fmt: skip
"""What each run has for itself: it counts anew, and ends anew."""


def paused_at(values: Mapping[str, Any], message_id: str) -> Paused:
    """Return where a run goes on.

    Args:
        values: The state of its graph.
        message_id: Of the message that began it.
    """
    state = {key: value for key, value in values.items() if key not in _OF_ONE_RUN}
    messages = _answered(values.get("messages") or ())
    return Paused(message_id=message_id, messages=messages, state=state)


def going_on(paused: Paused, message_id: str) -> list[AnyMessage]:
    """Return the input with which a run goes on.

    Args:
        paused: Where.
        message_id: Names it now. Another one than before on a fork, whose calls are others.
    """
    messages, old = list(paused["messages"]), paused["message_id"]
    for position, message in enumerate(messages):
        if isinstance(message, HumanMessage) and message.id == old:
            state = dict(paused["state"])
            if str(state.get("branch", "")).startswith(old):
                state["branch"] = message_id + state["branch"][len(old) :]
            extra = {**message.additional_kwargs, CARRIED_KEY: state}
            begun = message.model_copy(update={"id": message_id, "additional_kwargs": extra})
            messages[position] = begun
    return messages


def carried_by(message: AnyMessage | None) -> dict[str, Any]:
    """Return the state that a user message brings along."""
    carried: dict[str, Any] = message.additional_kwargs.get(CARRIED_KEY, {}) if message else {}
    return {key: value for key, value in carried.items() if key not in _OF_ONE_RUN}


def _answered(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Leave out a last reply whose calls a time limit cut off."""
    results = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, AIMessage):
            cut_off = any(call["id"] not in results for call in message.tool_calls)
            return list(messages[:position] if cut_off else messages)
    return list(messages)
