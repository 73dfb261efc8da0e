"""What the `final` event of a run says, read off its state: for the command and the server."""

from collections.abc import Mapping
from typing import Any

from langgraph.types import StateSnapshot

from openmanus_graph.events import interrupt_event
from openmanus_graph.history import last_text
from openmanus_graph.state.reducers import Usage, no_usage


def final_event(
    state: StateSnapshot, bill: Usage | None = None, *, cancelled: bool
) -> dict[str, Any]:
    """Return the `final` event of a run that came to an end or was cut off.

    Args:
        state: Of the thread as the run left it.
        bill: What it has cost, where the state does not say it all.
        cancelled: Whether somebody stopped it.
    """
    values = state.values
    status, reason = values.get("status"), values.get("stop_reason")
    answer = values.get("answer", "")
    if state.interrupts:
        asked = interrupt_event(state.interrupts[0])
        status, reason, answer = "waiting", asked["kind"], asked["question"]
    elif status is None and not state.tasks and last_text(values.get("messages", [])):
        # Somebody else's graph: it has messages, and says nothing of how it ended.
        status, reason, answer = "finished", "answer", last_text(values["messages"])
    elif cancelled and state.tasks:
        status = reason = "cancelled"
        answer = last_text(values.get("messages", [])) or "The run was cancelled."
    return {
        "type": "final",
        "status": status or "failed",
        "stop_reason": reason or "error",
        "answer": answer,
        "structured": values.get("structured"),
        "usage": bill or values.get("usage") or no_usage(),
        "artifacts": values.get("artifacts") or [],
    }


def failed_event(sentence: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `final` event of a run that an error ended."""
    return {
        "type": "final",
        "status": "failed",
        "stop_reason": "error",
        "answer": sentence,
        "structured": None,
        "usage": values.get("usage") or no_usage(),
        "artifacts": [],
    }
