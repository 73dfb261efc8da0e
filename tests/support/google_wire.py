"""Google's `streamGenerateContent`: what its service sends, and what it refuses."""

from collections.abc import Mapping
from typing import Any

from tests.support.wire_server import Body, WireReply

SIGNATURE = "c2lnbmF0dXJl"


def thought(said: str) -> Body:
    return {"text": said, "thought": True}


def text(said: str) -> Body:
    return {"text": said}


def call(name: str, args: Mapping[str, Any], signature: str | None = None) -> Body:
    part: Body = {"functionCall": {"name": name, "args": dict(args)}}
    return {**part, "thoughtSignature": signature} if signature else part


def reply(*parts: Body, finish_reason: str = "STOP") -> WireReply:
    """Return a reply, each part an event of its own; the running usage stands in each."""
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 125,
    }
    events: list[Body] = []
    for number, part in enumerate(parts or ({"text": ""},), 1):
        candidate: Body = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if number >= len(parts):
            candidate["finishReason"] = finish_reason
        events.append({
            "candidates": [candidate], "usageMetadata": usage,
            "modelVersion": "gemini-3-flash", "responseId": "r1",
        })  # fmt: skip
    return WireReply(events)


def error_of(said: str, code: int = 400, status: str = "INVALID_ARGUMENT") -> Body:
    return {"error": {"code": code, "message": said, "status": status}}


def complaint(body: Body) -> str | None:
    """Say why the service refuses a request."""
    contents: list[Body] = body["contents"]
    if not contents or contents[0]["role"] != "user":
        return "Please ensure that multiturn requests begin with a user role."
    open_calls: list[str] = []
    asked = [n for n, content in enumerate(contents) if "functionResponse" not in str(content)]
    turn = max(n for n in asked if contents[n]["role"] == "user")
    for number, content in enumerate(contents):
        parts: list[Body] = content["parts"]
        if not parts or any(not part for part in parts):
            return "Unable to submit request because it must have a parts field."
        answered = [
            part["functionResponse"]["name"] for part in parts if "functionResponse" in part
        ]
        if answered != open_calls:
            return (
                "Please ensure that the number of function response parts is equal to the number "
                f"of function call parts: {answered}, {open_calls}"
            )
        calls = [part for part in parts if "functionCall" in part]
        if number > turn and calls and not calls[0].get("thoughtSignature"):
            return "Function call is missing a thought_signature in functionCall parts."
        open_calls = [part["functionCall"]["name"] for part in calls]
    return f"unanswered function calls {open_calls}" if open_calls else None
