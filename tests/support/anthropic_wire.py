"""Anthropic's Messages API, streamed: what its service sends, and what it refuses."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.wire_server import Body, WireReply

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 70,
    "cache_creation_input_tokens": 20,
    "output_tokens": 1,
}
SIGNATURE = "EqQBCgIYAhIkc2lnbmF0dXJl"


def thinking(text: str = "I should add.", signature: str = SIGNATURE) -> Body:
    return {"type": "thinking", "thinking": text, "signature": signature}


def text(said: str) -> Body:
    return {"type": "text", "text": said}


def tool_use(name: str, args: Mapping[str, Any] | str, call_id: str = "toolu_1") -> Body:
    return {"type": "tool_use", "id": call_id, "name": name, "input": args}


def message(*blocks: Body, stop_reason: str | None = None, output_tokens: int = 30) -> WireReply:
    """Return a reply of these blocks; without a reason it is what they call for."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    started: Body = {
        "id": "msg_1", "type": "message", "role": "assistant", "content": [],
        "model": "claude-sonnet-4-5-20250929", "stop_reason": None, "stop_sequence": None,
        "usage": USAGE,
    }  # fmt: skip
    events: list[Body] = [{"type": "message_start", "message": started}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        events += _block_events(index, block)
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {**USAGE, "output_tokens": output_tokens}
    events.append({"type": "message_delta", "delta": delta, "usage": usage})
    return WireReply([*events, {"type": "message_stop"}])


def failing(kind: str, said: str, *, after: WireReply) -> WireReply:
    """Return a reply that breaks off with an error event, as an overloaded service does."""
    error = {"type": "error", "error": {"type": kind, "message": said}}
    return WireReply([*after.events[:-2], error])


def error_of(said: str) -> Body:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": said}}


def _block_events(index: int, block: Body) -> list[Body]:
    start: Body = {"type": "content_block_start", "index": index}
    match block["type"]:
        case "thinking":
            start["content_block"] = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                *(
                    {"type": "thinking_delta", "thinking": piece}
                    for piece in _cut(block["thinking"])
                ),
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            start["content_block"] = {**block, "input": {}}
            args = block["input"]
            whole = args if isinstance(args, str) else json.dumps(args)
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in ["", *_cut(whole)]
            ]
        case _:
            start["content_block"] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _cut(block["text"])]
    moved = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [start, *moved, {"type": "content_block_stop", "index": index}]


def _cut(whole: str) -> list[str]:
    return [whole[start : start + 5] for start in range(0, len(whole), 5)]


def complaint(body: Body) -> str | None:
    """Say why the service refuses a request."""
    messages: list[Body] = body["messages"]
    if not messages or messages[0]["role"] != "user":
        return 'messages: first message must use the "user" role'
    if str(body).count("'cache_control'") > 4:
        return "A maximum of 4 blocks with cache_control may be provided."
    open_calls: list[str] = []
    for number, said in enumerate(messages):
        content = said["content"]
        blocks: Sequence[Body] = [text(content)] if isinstance(content, str) else content
        fault = _blocks_fault(said["role"], blocks, open_calls, body)
        if fault:
            return f"messages.{number}: {fault}"
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return f"`tool_use` ids were found without `tool_result`: {open_calls}" if open_calls else None


_ALLOWED = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


def _blocks_fault(
    role: str, blocks: Sequence[Body], open_calls: list[str], body: Body
) -> str | None:
    wrong = [block["type"] for block in blocks if block["type"] not in _ALLOWED[role]]
    if wrong:
        return f"Input tag {wrong[0]!r} found using 'type' does not match any of the expected tags"
    if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        return "text content blocks must contain non-whitespace text"
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if sorted(results) != sorted(open_calls):
        return f"`tool_use` ids were found without `tool_result` blocks: {open_calls}, {results}"
    if any(block["type"] == "thinking" and block["signature"] != SIGNATURE for block in blocks):
        return "Invalid `signature` in `thinking` block"
    calls = [block["type"] for block in blocks]
    thinking: Body = body.get("thinking") or {}
    thinks = thinking.get("type") == "enabled"
    if thinks and "tool_use" in calls and calls[0] != "thinking":
        return "Expected `thinking` or `redacted_thinking`, but found `tool_use`"
    return None
