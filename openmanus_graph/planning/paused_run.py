"""Pausing a step's run at a limit of its flow, and resuming it as a new run.

The conversation is the new run's input. The rest of the state is stored in its user message, where
the node that begins a run finds it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.state.planning import PausedRun
from openmanus_graph.state.renamed import with_current_names

PAUSED_RUN_KEY = "openmanus_carried"
"""Key in `additional_kwargs` of that message."""
_PER_RUN = {
    "messages", "run_message", "usage", "step_count", "elapsed_s", "status", "stop_reason",
    "answer", "structured", "artifacts",
}  # fmt: skip
"""State that a new run starts without: its counts and its end."""


def pause_run(values: Mapping[str, Any], message_id: str) -> PausedRun:
    """Return what is needed to resume a run.

    Args:
        values: The state of the run's graph.
        message_id: The id of the message that started it.
    """
    state = {key: value for key, value in values.items() if key not in _PER_RUN}
    messages = _without_open_calls(values.get("messages") or ())
    return PausedRun(message_id=message_id, messages=messages, state=state)


def resumed_messages(paused_run: PausedRun, message_id: str) -> list[AnyMessage]:
    """Return the input messages that resume a run.

    Args:
        paused_run: The run.
        message_id: New id of the message that starts it; on a fork it differs from the old one.
    """
    messages, old = list(paused_run["messages"]), paused_run["message_id"]
    for position, message in enumerate(messages):
        if isinstance(message, HumanMessage) and message.id == old:
            state = dict(paused_run["state"])
            if str(state.get("branch", "")).startswith(old):
                state["branch"] = message_id + state["branch"][len(old) :]
            extra = {**message.additional_kwargs, PAUSED_RUN_KEY: state}
            renamed = message.model_copy(update={"id": message_id, "additional_kwargs": extra})
            messages[position] = renamed
    return messages


def state_of_paused_run(message: AnyMessage | None) -> dict[str, Any]:
    """Return the paused run's state that a user message holds."""
    kept: dict[str, Any] = message.additional_kwargs.get(PAUSED_RUN_KEY, {}) if message else {}
    state = with_current_names(kept)
    return {key: value for key, value in state.items() if key not in _PER_RUN}


def _without_open_calls(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Drop a last reply whose calls were interrupted by a time limit."""
    results = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, AIMessage):
            has_open_calls = any(call["id"] not in results for call in message.tool_calls)
            return list(messages[:position] if has_open_calls else messages)
    return list(messages)
