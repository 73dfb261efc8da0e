"""The request as a pure projection of the state.

Its prefix stays the same, byte for byte, from step to step, so that providers' prompt caches hit;
what changes (hints, the next-step prompt) stands at its end and is never stored. A tool message
is never parted from its call: strict servers refuse such conversations.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

Pictures = Mapping[str, str]
"""Workspace-relative path -> data URL."""

CUT_OFF = "This call was cut off before it had a result."


def project(
    messages: Sequence[AnyMessage], *, system: str, steering: str, pictures: Pictures | None
) -> list[BaseMessage]:
    """Make the messages of a request.

    Args:
        messages: The conversation.
        system: The system prompt.
        steering: What to add at the end of this request only.
        pictures: The pictures to send; None when the model does not see.
    """
    request: list[BaseMessage] = [SystemMessage(system)]
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, AIMessage):
            results: dict[str, ToolMessage] = {}
            while position < len(messages) and messages[position].type == "tool":
                result = cast("ToolMessage", messages[position])
                results.setdefault(result.tool_call_id, result)
                position += 1
            request += _turn(message, results, pictures)
        elif message.type != "tool":
            request.append(_with_pictures(message, picture_paths(message), pictures))
    if steering:
        request.append(HumanMessage(steering))
    return request


def pictured(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return the messages that a seeing model would be shown pictures with."""
    return [m for m in messages if m.type != "ai" and (picture_paths(m) or _inline_pictures(m))]


def picture_paths(message: BaseMessage) -> Sequence[str]:
    """Return the workspace pictures that belong to a message."""
    held: Any = getattr(message, "artifact", None) or message.additional_kwargs
    if not held or not isinstance(held, dict):
        return ()
    return tuple(cast("dict[str, Sequence[str]]", held).get("images", ()))


def _turn(
    reply: AIMessage, results: Mapping[str, ToolMessage], pictures: Pictures | None
) -> list[BaseMessage]:
    calls = [call["id"] or "" for call in (*reply.tool_calls, *reply.invalid_tool_calls)]
    if not calls and not reply.text.strip():
        return []  # an empty reply tells the model nothing, and strict servers refuse it
    turn: list[BaseMessage] = [_readable(reply)]
    shown: list[str] = []
    for call_id in calls:
        result = results.get(call_id)
        turn.append(result or ToolMessage(CUT_OFF, tool_call_id=call_id, status="error"))
        if pictures is not None and result is not None:
            shown += picture_paths(result)
    if shown:
        turn.append(_with_pictures(HumanMessage(f"Pictures: {', '.join(shown)}"), shown, pictures))
    return turn


def _readable(reply: AIMessage) -> AIMessage:
    """Replace arguments that are no JSON: servers that parse them would refuse the request."""
    if not reply.invalid_tool_calls:
        return reply
    repaired: list[ToolCall] = [
        {"id": call["id"], "name": call["name"] or "unknown", "args": {}, "type": "tool_call"}
        for call in reply.invalid_tool_calls
    ]
    return reply.model_copy(
        update={"tool_calls": [*reply.tool_calls, *repaired], "invalid_tool_calls": []}
    )


def _with_pictures(
    message: BaseMessage, paths: Sequence[str], pictures: Pictures | None
) -> BaseMessage:
    inline = _inline_pictures(message)
    if pictures is None:
        if not paths and not inline:
            return message
        note = f"[{len(paths) or len(inline)} picture(s) not shown: this model does not see.]"
        return HumanMessage(f"{message.text}\n{note}", id=message.id)
    found = [pictures[path] for path in paths if path in pictures]
    if not found:
        return message
    content: list[str | dict[str, Any]] = [{"type": "text", "text": message.text}]
    content += inline
    content += [{"type": "image_url", "image_url": {"url": url}} for url in found]
    return HumanMessage(content, id=message.id)


def _inline_pictures(message: BaseMessage) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return []
    return [
        block
        for block in message.content
        if isinstance(block, dict) and block.get("type") in ("image", "image_url")
    ]
