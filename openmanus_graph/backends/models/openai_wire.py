"""Messages as OpenAI-compatible servers take them, each made once.

The history of a run only grows, so a message's wire form is kept as long as the message lives.
"""

import json
import re
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    ToolMessage,
    convert_to_openai_data_block,
    is_data_content_block,
)

from openmanus_graph.backends.models.dialects import Dialect, Reasoning

WireMessage = dict[str, Any]


def wire_message(message: BaseMessage, dialect: Dialect) -> WireMessage:
    """Return a message in the form that strict and simple servers take as well.

    Raises:
        ValueError: It is of a kind, or holds a block, that chat completions do not have.
    """
    form: WireMessage = {"role": _role(message, dialect)}
    form["content"] = _content(message.content, form["role"])
    if isinstance(message, ToolMessage):
        form["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        form["name"] = message.name
    if isinstance(message, AIMessage):
        if calls := _tool_calls(message):
            form["tool_calls"] = calls
        _return_reasoning(form, message, dialect.reasoning)
        if (audio := message.additional_kwargs.get("audio")) and "id" in audio:
            form["audio"] = {"id": audio["id"]}
    return form


_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "function": "function"}


def _role(message: BaseMessage, dialect: Dialect) -> str:
    kind = message.type.removesuffix("MessageChunk").lower()
    if kind == "system":
        return dialect.system_role
    role = message.role if isinstance(message, ChatMessage) else _ROLES.get(kind)
    if role is None:
        raise ValueError(f"A message of the kind {message.type!r} cannot be sent to a model.")
    return role


def _content(content: str | list[str | dict[str, Any]], role: str) -> object:
    """Join blocks that are all plain text; many servers take lists for pictures only."""
    if isinstance(content, str):
        return _sendable(content)
    if role == "tool":  # pictures are refused there
        blocks = [
            block if isinstance(block, str) or block.get("type") == "text" else "(picture left out)"
            for block in content
        ]
    else:
        blocks = [sent for block in content if (sent := _block(block)) is not None]
    texts = [_plain_text(block) for block in blocks]
    if all(text is not None for text in texts):
        return ("" if role == "assistant" else "\n\n").join(cast("list[str]", texts))
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in blocks]


_NOT_SENT = frozenset({
    "tool_use", "tool_call", "invalid_tool_call", "function_call", "code_interpreter_call",
    "thinking", "reasoning", "reasoning_content",
})  # fmt: skip
"""Blocks of other providers' replies: calls, which are sent as such, and thoughts."""


def _block(block: str | dict[str, Any]) -> str | dict[str, Any] | None:
    """Return a block as chat completions have it; None for one that is left out."""
    if isinstance(block, str):
        return block
    if block.get("type") in _NOT_SENT:
        return None
    if block.get("type") == "image" and isinstance(block.get("source"), dict):  # Anthropic's
        source = cast("dict[str, Any]", block["source"])
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    return convert_to_openai_data_block(block) if is_data_content_block(block) else block


def _plain_text(block: str | dict[str, Any]) -> str | None:
    if isinstance(block, str):
        return _sendable(block)
    # Further keys (cache_control) are hints that joining would lose.
    if block.get("type") == "text" and set(block) <= {"type", "text", "id", "index"}:
        return _sendable(str(block["text"]))
    return None


def _sendable(text: str) -> str:
    """Replace lone surrogates, which file names and broken output hold and no request can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _tool_calls(message: AIMessage) -> list[dict[str, Any]]:
    extras = cast("dict[str, Any]", message.additional_kwargs.get("tool_call_extras", {}))
    return [
        {
            "type": "function",
            "id": call["id"],
            "function": {
                "name": re.sub(r"[^a-zA-Z0-9_-]", "_", call["name"] or "unnamed")[:64],
                "arguments": _object_text(call["args"]),
            },
            **extras.get(call["id"] or "", {}),
        }
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    ]


def _object_text(arguments: object) -> str:
    """Arguments as JSON text of an object: templates of several servers crash on anything else."""
    if not isinstance(arguments, str):
        return _sendable(json.dumps(arguments or {}, ensure_ascii=False))
    text = _sendable(arguments)
    try:
        if isinstance(json.loads(text, strict=False), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return json.dumps({"not_a_json_object": text}, ensure_ascii=False) if text.strip() else "{}"


def _return_reasoning(form: WireMessage, message: AIMessage, wanted: Reasoning) -> None:
    """Send a model its own reasoning back."""
    extra = message.additional_kwargs
    reasoning = str(extra.get("reasoning_content") or "")
    if wanted in ("every", "filled"):  # also where a model had none, or it was another model's
        form["reasoning_content"] = reasoning or ("" if wanted == "every" else " ")
    elif "tool_calls" not in form:
        return
    elif details := extra.get("reasoning_details"):  # OpenRouter's, which may be signed
        form["reasoning_details"] = details
    elif wanted == "calls" and reasoning:
        form[extra.get("reasoning_field", "reasoning_content")] = reasoning
