"""What the local OpenAI server answers: replies, their pieces and their faults."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Fault = Literal[
    "reset",  # the connection is reset before any answer
    "reset_mid",  # ... in the middle of the answer
    "cut",  # the connection is closed in the middle, without the end of the body
    "stall",  # nothing more comes from the middle on, and the connection stays open
    "truncated",  # the body ends properly, in the middle of the reply
    "error_inside",  # an error object with status 200
    "error_mid",  # an error object in the middle of the stream
    "no_choices",
    "null_choices",
    "html",
    "broken_json",
    "plain_json",  # a whole completion although a stream was asked for
    "wrong_content_type",  # the right body, announced as text/plain
    "no_done",  # the stream ends without [DONE]
]


@dataclass(frozen=True)
class Call:
    """One tool call; `id=None` leaves the id out."""

    name: str
    args: object = field(default_factory=dict[str, Any])
    """An object is sent as JSON text, a string as it is."""
    id: str | None = "auto"
    index: int | None = -1
    """As given, None leaves it out, -1 counts."""
    as_object: bool = False
    """Send the arguments as an object, not as text."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of the call."""


@dataclass(frozen=True)
class Reply:
    """One answer of the server."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 40},
        }
    )
    finish_reason: str | None = "auto"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    error: object = None
    """Body of an error status, or the object of `error_inside` and `error_mid`."""
    raw: tuple[str, str] | None = None
    """The body as it is, whatever else is said here, and its content type."""
    delay_s: float = 0
    fault: Fault | None = None
    piece_size: int = 7
    """Characters of one streamed piece of text or arguments."""
    repeat_names: bool = False
    """Send id and name with every piece of a call, as some servers do."""
    usage_everywhere: bool = False
    """Send a running usage with every event."""
    further_choices: int = 0
    alter: Callable[[bytes], bytes] | None = None
    """Makes the bytes that are sent, all at once, of those that would be."""


Answer = Reply | Callable[[dict[str, Any]], Reply]


def reply_from_json(data: Mapping[str, Any]) -> Reply:
    """Read a reply of a script file: the fields of `Reply`, calls as objects."""
    calls = tuple(Call(**call) for call in data.get("calls", ()))
    return replace(Reply(), **{**data, "calls": calls})


def completion(reply: Reply, model: str, number: int) -> dict[str, Any]:
    """Build the whole answer to a request without streaming."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message[reply.reasoning_field] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [
            _call(call, n, number, _arguments(call)) for n, call in enumerate(reply.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    others = [{**choice, "index": n + 1} for n in range(reply.further_choices)]
    body: dict[str, Any] = {**_head(model, number, "chat.completion"), "choices": [choice, *others]}
    if reply.usage is not None:
        body["usage"] = dict(reply.usage)
    return body


def events(reply: Reply, model: str, number: int, *, usage: bool) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed answer."""
    head = _head(model, number, "chat.completion.chunk")
    deltas = [{"role": "assistant", "content": ""}, *_deltas(reply, number)]
    running = {"usage": dict(reply.usage)} if reply.usage and reply.usage_everywhere else {}
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        others = [{**choice, "index": n + 1} for n in range(reply.further_choices)]
        yield {**head, "choices": [*others, choice], **running}
    reason = _finish_reason(reply)
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **running}
    if usage and reply.usage is not None:
        yield {**head, "choices": [], "usage": dict(reply.usage)}


def body_of(reply: Reply, model: str, number: int, *, stream: bool, usage: bool) -> bytes:
    """Write a whole answer as it would be sent."""
    if not stream:
        return json.dumps(completion(reply, model, number)).encode()
    parts = [json.dumps(event) for event in events(reply, model, number, usage=usage)]
    return "".join(f"data: {part}\n\n" for part in [*parts, "[DONE]"]).encode()


def _head(model: str, number: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 0, "model": model}


def _deltas(reply: Reply, number: int) -> Iterator[dict[str, Any]]:
    for piece in _pieces(reply.reasoning, reply.piece_size):
        yield {reply.reasoning_field: piece}
    for piece in _pieces(reply.text, reply.piece_size):
        yield {"content": piece}
    for n, call in enumerate(reply.calls):
        text = _arguments(call)
        parts = _pieces(text, reply.piece_size) if isinstance(text, str) else [text]
        for position, part in enumerate(parts or [""]):
            whole = _call(call, n, number, part)
            if position and not reply.repeat_names:
                whole = {"function": {"arguments": part}}
            index = n if call.index == -1 else call.index
            yield {"tool_calls": [whole if index is None else {"index": index, **whole}]}


def _pieces(text: str, size: int) -> list[Any]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _call(call: Call, position: int, number: int, arguments: object) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments}
    if call.id is None:
        return {"type": "function", "function": function, **call.extra}
    call_id = f"call_{number}_{position}" if call.id == "auto" else call.id
    return {"id": call_id, "type": "function", "function": function, **call.extra}


def _arguments(call: Call) -> object:
    if call.as_object or isinstance(call.args, str):
        return call.args
    return json.dumps(call.args, ensure_ascii=False)


def _finish_reason(reply: Reply) -> str | None:
    if reply.finish_reason == "auto":
        return "tool_calls" if reply.calls else "stop"
    return reply.finish_reason
