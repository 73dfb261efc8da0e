"""OpenAI's Responses API, streamed: what its service sends, and what it refuses."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.wire_server import Body, WireReply

ENCRYPTED = "gAAAAABencrypted"


def reasoning(item_id: str = "rs_1", summary: str = "I should add.") -> Body:
    return {
        "type": "reasoning", "id": item_id, "encrypted_content": ENCRYPTED,
        "summary": [{"type": "summary_text", "text": summary}],
    }  # fmt: skip


def function_call(name: str, args: Mapping[str, Any], number: int = 1) -> Body:
    return {
        "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name,
        "arguments": json.dumps(args), "status": "completed",
    }  # fmt: skip


def message(said: str, item_id: str = "msg_1") -> Body:
    content: list[Body] = [{"type": "output_text", "text": said, "annotations": [], "logprobs": []}]
    return {
        "type": "message", "id": item_id, "role": "assistant", "status": "completed",
        "content": content,
    }  # fmt: skip


def refusal(said: str, item_id: str = "msg_1") -> Body:
    return {**message("", item_id), "content": [{"type": "refusal", "refusal": said}]}


def response(*items: Body, incomplete: str | None = None) -> WireReply:
    """Return a reply of these items, each streamed in pieces."""
    whole: Body = {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5-mini-2025-08-07",
        "status": "in_progress", "output": [], "error": None, "incomplete_details": None,
        "instructions": None, "metadata": {}, "parallel_tool_calls": True, "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0,
    }  # fmt: skip
    events: list[Body] = [{"type": "response.created", "response": whole}]
    for index, item in enumerate(items):
        events += _item_events(index, item)
    usage = {
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 60},
        "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 120,
    }  # fmt: skip
    done = {**whole, "status": "completed", "output": list(items), "usage": usage}
    if incomplete:
        done |= {"status": "incomplete", "incomplete_details": {"reason": incomplete}}
    events.append({"type": f"response.{done['status']}", "response": done})
    return WireReply([{**event, "sequence_number": n} for n, event in enumerate(events)])


def _item_events(index: int, item: Body) -> list[Body]:
    place: Body = {"output_index": index, "item_id": item["id"]}
    begun = {**item}
    deltas: list[Body] = []
    match item["type"]:
        case "function_call":
            begun |= {"arguments": "", "status": "in_progress"}
            deltas = [
                {"type": "response.function_call_arguments.delta", **place, "delta": piece}
                for piece in _cut(item["arguments"])
            ]
        case "message" if item["content"][0]["type"] == "refusal":
            begun |= {"content": [], "status": "in_progress"}
            said, where = item["content"][0]["refusal"], {**place, "content_index": 0}
            deltas = [
                {"type": "response.refusal.delta", **where, "delta": piece} for piece in _cut(said)
            ]
            deltas.append({"type": "response.refusal.done", **where, "refusal": said})
        case "message":
            begun |= {"content": [], "status": "in_progress"}
            part: Body = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            where = {**place, "content_index": 0}
            said = item["content"][0]["text"]
            deltas = [{"type": "response.content_part.added", **where, "part": part}]
            deltas += [
                {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
                for piece in _cut(said)
            ]
            deltas.append(
                {"type": "response.output_text.done", **where, "text": said, "logprobs": []}
            )
        case _:
            begun |= {"summary": []}
            where = {**place, "summary_index": 0}
            part = {"type": "summary_text", "text": ""}
            deltas = [{"type": "response.reasoning_summary_part.added", **where, "part": part}]
            deltas += [
                {"type": "response.reasoning_summary_text.delta", **where, "delta": piece}
                for piece in _cut(item["summary"][0]["text"])
            ]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *deltas,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _cut(whole: str) -> list[str]:
    return [whole[start : start + 7] for start in range(0, len(whole), 7)]


def error_of(said: str) -> Body:
    return {
        "error": {"message": said, "type": "invalid_request_error", "param": None, "code": None}
    }


def complaint(body: Body) -> str | None:
    """Say why the service refuses a request."""
    items: list[Body] = body["input"]
    stored = body.get("store", True)
    made: list[str] = []
    for item, following in zip(items, [*items[1:], {}], strict=True):
        kind = item.get("type", "message")
        if kind == "function_call":
            made.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in made:
                return (
                    f"No tool call found for function call output with call_id {item['call_id']}."
                )
            made.remove(item["call_id"])
        elif kind == "reasoning":
            if not stored and item.get("encrypted_content") != ENCRYPTED:
                return (
                    f"Item with id '{item['id']}' not found. Items are not persisted when `store` "
                    "is set to false."
                )
            if following.get("type", "message") not in ("function_call", "message", "reasoning"):
                return (
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required "
                    "following item."
                )
    return f"No tool output found for function call {made}." if made else None
