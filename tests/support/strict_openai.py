"""What an endpoint that takes the protocol at its word refuses."""

import json
import re
from typing import Any

Message = dict[str, Any]


def complaint(body: dict[str, Any]) -> str | None:
    """Say why a strict endpoint refuses a request, or None when it takes it."""
    messages: list[Message] = body.get("messages") or []
    if not messages:
        return "[] is too short - 'messages'"
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        found = _fault(message, open_calls)
        if found:
            return f"messages[{position}]: {found}"
    return _unanswered(open_calls)


def _fault(message: Message, open_calls: list[str]) -> str | None:
    role = message.get("role")
    if role == "tool":
        return _tool_fault(message, open_calls)
    if found := _unanswered(open_calls):
        return found
    if role == "assistant":
        return _assistant_fault(message, open_calls)
    if role not in ("system", "developer", "user"):
        return f"unknown role {role!r}"
    return None if message.get("content") else "content is null, missing or empty"


def _unanswered(open_calls: list[str]) -> str | None:
    if not open_calls:
        return None
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        f"each 'tool_call_id'. The following did not have response messages: {open_calls}"
    )


def _tool_fault(message: Message, open_calls: list[str]) -> str | None:
    content: str | list[Message] | None = message.get("content")
    if content is None:
        return "content is null or missing"
    if not isinstance(content, str) and any(part.get("type") != "text" for part in content):
        return "role tool takes text parts only"
    call_id = message.get("tool_call_id")
    if call_id not in open_calls:
        return f"tool_call_id {call_id!r} answers no call of the message before, or one answered"
    open_calls.remove(call_id)
    return None


def _assistant_fault(message: Message, open_calls: list[str]) -> str | None:
    content = message.get("content")
    calls: list[Message] | None = message.get("tool_calls")
    if content is None:
        return "content is null or missing"
    if not content and not calls:
        return "an assistant message needs content or tool calls"
    if calls is not None and not calls:
        return "[] is too short - 'tool_calls'"
    for call in calls or ():
        if found := _call_fault(call, open_calls):
            return found
        open_calls.append(call["id"])
    return None


def _call_fault(call: Message, open_calls: list[str]) -> str | None:
    function: dict[str, Any] = call.get("function") or {}
    if not call.get("id"):
        return "a tool call has no id"
    if call["id"] in open_calls:
        return f"two tool calls have the id {call['id']!r}"
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", str(function.get("name", ""))):
        return f"tool name {function.get('name')!r} does not match '^[a-zA-Z0-9_-]{{1,64}}$'"
    try:
        arguments = json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError):
        return "arguments are not JSON"
    return None if isinstance(arguments, dict) else "arguments are not an object"
