"""Parses messages of a kernel: they come from the sandbox and may be invalid."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_client.session import Session

_PARTS = ("header", "parent_header", "metadata", "content")
_FAULTS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Errors that the session raises for invalid frames and wrong signatures."""


def read_message(session: "Session", frames: list[bytes]) -> dict[str, Any] | None:
    """Return a message as a dict; None if it is invalid or its signature is wrong."""
    try:
        _, parts = session.feed_identities(frames)
        message: dict[str, Any] = session.deserialize(parts)
    except _FAULTS:
        return None
    return message if all(isinstance(message[name], dict) for name in _PARTS) else None
