"""Reads chat completions, whole or streamed, into LangChain's chunks, with the errors servers make.

LangChain's and OpenAI's own readers follow OpenAI's documents; this one follows what servers send.
"""

import asyncio
import codecs
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from openmanus_graph.backends.models.chunks import WHOLE_CALLS, SurrogateBuffer, parse_arguments
from openmanus_graph.backends.models.failures import FailureKind, ReplyError
from openmanus_graph.state.json_values import as_list, as_object, json_or

Event = dict[str, Any]
Fields = Mapping[str, Any]
DONE: Event = {"done": True}
"""Replaces `data: [DONE]`."""
_KIND_BY_CODE: dict[str, FailureKind] = {
    "invalid_api_key": "auth",
    "rate_limit_exceeded": "retry",
    "server_error": "retry",
    "overloaded_error": "retry",
}
_ABOUT = {
    "model": "model_name",
    "id": "id",
    "system_fingerprint": "system_fingerprint",
    "service_tier": "service_tier",
    "provider": "upstream",
}
"""Fields of events, and their names in a reply's metadata."""


async def read_events(body: AsyncGenerator[bytes]) -> AsyncIterator[Event]:
    """Yield the JSON objects of an answer, and DONE where the server sends it.

    ReplyError: the body is neither one JSON object nor a stream of them.
    """
    try:
        start = b""
        while not start and (piece := await anext(body, None)) is not None:
            start = piece.removeprefix(codecs.BOM_UTF8).lstrip()  # sent to keep clients waiting
        if start[:1] in (b"{", b"[", b"<", b""):
            yield _document(start + b"".join([part async for part in body]))
            return
        lines, seen = EventLines(), False
        piece = start
        while piece:
            for data in lines.add(piece):
                seen = True
                if data.strip() == b"[DONE]":
                    yield DONE
                    await _drain(body)
                    return
                yield _parse(data)
            piece = b"" if piece is _END else await anext(body, _END)
        if not seen:
            raise ReplyError(f"the server sent no event of a reply: {_shown(start)}")
    finally:
        await body.aclose()


_END = b"\n\n"


class EventLines:
    """Joins the data of server-sent events from the pieces in which they arrive.

    Only CR and LF end a line, never U+2028 as in `splitlines`. A line of megabytes is joined once.
    """

    def __init__(self) -> None:
        self._open_line: list[bytes] = []
        self._data: list[bytes] = []

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of the events that a piece completes."""
        *ended, rest = piece.split(b"\n")
        for end in ended:
            line = b"".join([*self._open_line, end]).removesuffix(b"\r")
            self._open_line.clear()
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line[:1] == b"{":  # a bare error object within the stream
                self._data.append(line)
            elif not line and self._data:
                yield b"\n".join(self._data)
                self._data.clear()
        self._open_line.append(rest)


def _document(body: bytes) -> Event:
    try:
        parsed = _loads(body)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, list) and parsed:  # Google wraps its errors in a list
        parsed = cast("list[object]", parsed)[0]
    if isinstance(parsed, dict):
        return cast("Event", parsed)
    shown = _shown(body)
    if body[:1] == b"<":  # from a web server, not a model's
        raise ReplyError(f"the server sent an HTML page: {shown}", kind="page")
    what = f"something that is not a chat completion: {shown}" if shown else "nothing"
    raise ReplyError(f"the server sent {what}")


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read what follows the end, so that the connection can be used again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            async for _ in body:
                pass


def _parse(data: bytes) -> Event:
    try:
        parsed = _loads(data)
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"the stream holds something that is not JSON: {_shown(data)}") from error
    if not isinstance(parsed, dict):
        raise ReplyError(f"the stream holds something that is not an object: {str(parsed)[:200]}")
    return cast("Event", parsed)


def _loads(data: bytes) -> object:
    """Parse JSON; bytes that are not UTF-8 become surrogates, which are replaced later."""
    return json.loads(data.decode("utf-8", "surrogateescape"))


def _shown(data: bytes) -> str:
    return data[:200].decode("utf-8", "replace").strip()


class ReplyReader:
    """Reads the events of one reply. A whole completion is a stream of one event."""

    def __init__(self) -> None:
        self._seen_choice = self._seen_text = self._done = False
        self._finish_reason: str | None = None
        self._usage: Fields | None = None
        self._keys: set[str] = set()
        self._about: dict[str, Any] = {}
        self._kwargs: dict[str, Any] = {}
        self._details: list[dict[str, Any]] = []
        self._calls = ToolCallAssembler()
        self._text = SurrogateBuffer()

    def read(self, event: Event) -> ChatGenerationChunk | None:
        """Take one event; return what it adds to the reply. ReplyError: it holds an error."""
        if event is DONE:
            self._done = True
            return None
        # vLLM and some gateways send the error object itself.
        bare = "choices" not in event and "error" in (event.get("object"), event.get("type"))
        if event.get("error") or bare:
            raise reply_error(event.get("error") or event)
        self._keys.update(event)
        self._about |= {name: event[key] for key, name in _ABOUT.items() if event.get(key)}
        if isinstance(event.get("usage"), Mapping):
            self._usage = event["usage"]  # each is a running total: the last one counts
        choices = map(as_object, as_list(event.get("choices")))
        choice = next((one for one in choices if one and not one.get("index")), None)
        if choice is None:
            return None
        if choice.get("error"):
            raise reply_error(choice["error"])
        self._seen_choice = True
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        whole = choice.get("message")
        if whole is not None:
            self._done = True
        delta = whole if whole is not None else choice.get("delta")
        return self._chunk(cast("Fields", delta)) if isinstance(delta, Mapping) else None

    def finish(self) -> ChatGenerationChunk:
        """Return the last chunk: tool calls, usage, finish reason and what must be sent back.

        Calls come whole: LangChain parses the arguments again with every piece, which is quadratic
        if they are not JSON. It does not get to see those. ReplyError: there was no reply, or it
        broke off.
        """
        if not self._seen_choice:
            keys = ", ".join(sorted(self._keys)) or "nothing"
            raise ReplyError(f"the answer holds no choices (it holds: {keys})")
        if self._finish_reason is None and not self._done:
            raise ReplyError("the stream broke off before the reply's end")
        if self._finish_reason == "error":
            raise ReplyError("the provider reported an error in the middle of its reply")
        calls = self._calls.calls()
        if self._finish_reason == "content_filter" and not (self._seen_text or calls):
            raise ReplyError("the reply was withheld", kind="withheld")
        extra = {
            "reasoning_details": self._details,
            "tool_call_extras": self._calls.extras,
            WHOLE_CALLS: calls,
        }
        message = AIMessageChunk(
            content=self._text.rest(),
            additional_kwargs=self._kwargs | {key: value for key, value in extra.items() if value},
            tool_call_chunks=[c for c in calls if parse_arguments(c["args"])[0] is not None],
            usage_metadata=usage_metadata(self._usage) if self._usage else None,
            chunk_position="last",
        )
        info: dict[str, Any] = {
            "finish_reason": self._finish_reason or "stop",
            "model_provider": "openai",
        }
        if self._usage and isinstance(cost := self._usage.get("cost"), int | float):
            info["cost_usd"] = float(cost)  # OpenRouter says what it charged
        return ChatGenerationChunk(message=message, generation_info=info | self._about)

    def _chunk(self, delta: Fields) -> ChatGenerationChunk | None:
        text, thought = _text_and_thought(delta)
        text = self._text.add(text)
        self._calls.read(delta.get("tool_calls"))
        kwargs: dict[str, Any] = {}
        if thought:
            kwargs["reasoning_content"] = thought
            if not delta.get("reasoning_content") and isinstance(delta.get("reasoning"), str):
                self._kwargs["reasoning_field"] = "reasoning"
        for detail in as_list(delta.get("reasoning_details")):
            _add_detail(self._details, detail)
        if not (text or kwargs):
            return None
        self._seen_text = self._seen_text or bool(text)
        return ChatGenerationChunk(message=AIMessageChunk(content=text, additional_kwargs=kwargs))


def _text_and_thought(delta: Fields) -> tuple[str, str]:
    """Split what a model says from its reasoning; a refusal is something it says."""
    content = delta.get("content")
    thoughts: list[object] = [delta.get("reasoning_content") or delta.get("reasoning")]
    texts: list[object] = [content, None if content else delta.get("refusal")]
    for part in as_list(content):  # Mistral's reasoning models
        texts.append(part if isinstance(part, str) else as_object(part).get("text"))
        pieces = as_list(as_object(part).get("thinking"))
        thoughts += [as_object(piece).get("text") for piece in pieces]
    return _joined(texts), _joined(thoughts)


def _joined(parts: Sequence[object]) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def _add_detail(details: list[dict[str, Any]], piece: object) -> None:
    """Join pieces of OpenRouter's reasoning blocks, which carry the index of their block."""
    if not isinstance(piece, Mapping):
        return
    new = dict(cast("Fields", piece))
    last = details[-1] if details else {}
    same = ("index", "type")
    if not details or "index" not in new or any(last.get(key) != new.get(key) for key in same):
        details.append(new)
        return
    for key, value in new.items():
        if key in ("text", "summary", "data") and isinstance(value, str):
            last[key] = f"{last.get(key) or ''}{value}"
        elif value is not None:
            last[key] = value


def usage_metadata(usage: Fields) -> UsageMetadata:
    """Read token counts; servers put the cached ones in three places."""
    details = as_object(usage.get("prompt_tokens_details"))
    spent = as_object(usage.get("completion_tokens_details"))
    cached = (
        _count(details.get("cached_tokens"))
        or _count(usage.get("prompt_cache_hit_tokens"))  # DeepSeek
        or _count(usage.get("cached_tokens"))  # Moonshot
    )
    input_details = InputTokenDetails(cache_read=cached)
    if written := _count(details.get("cache_write_tokens")):
        input_details["cache_creation"] = written
    tokens_in = _count(usage.get("prompt_tokens"))
    tokens_out = _count(usage.get("completion_tokens"))
    return UsageMetadata(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        total_tokens=_count(usage.get("total_tokens")) or tokens_in + tokens_out,
        input_token_details=input_details,
        output_token_details=OutputTokenDetails(reasoning=_count(spent.get("reasoning_tokens"))),
    )


def reply_error(error: object) -> ReplyError:
    """Make an exception of an error object that came inside a success."""
    found = as_object(error)
    if not found:
        return ReplyError(str(error))
    parts = [found.get("message"), found.get("code"), found.get("type")]
    parts.append(as_object(found.get("metadata")).get("raw"))
    said = " ".join(part for part in parts if part and isinstance(part, str))
    code = found.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else None
    kind = _KIND_BY_CODE.get(str(code)) or _KIND_BY_CODE.get(str(found.get("type")))
    return ReplyError(said or str(dict(found)), status_code=status, kind=kind)


@dataclass
class _PartialCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    extras: dict[str, Any] = field(default_factory=dict[str, Any])

    def is_followed_by(self, call_id: str, name: str, arguments: str) -> bool:
        """Return True if a piece with this call's number begins another call."""
        if not name:
            return False
        if call_id and self.id and call_id != self.id:
            return True
        if not self.name or not self.arguments:
            return False  # the name itself comes in pieces, or again
        return name != self.name or (arguments.lstrip().startswith("{") and self._is_complete())

    def _is_complete(self) -> bool:
        text = "".join(self.arguments).strip()
        return text.endswith("}") and json_or(text, strict=False) is not None


class ToolCallAssembler:
    """Joins tool calls from the pieces in which they are streamed.

    Servers leave out the index, repeat id and name in every piece, number all calls 0, split a
    name, or send arguments as an object.
    """

    def __init__(self) -> None:
        self._partial_calls: list[_PartialCall] = []
        self._index_of: dict[int, int] = {}

    @property
    def extras(self) -> dict[str, dict[str, Any]]:
        return {partial.id: partial.extras for partial in self._partial_calls if partial.extras}

    def calls(self) -> list[ToolCallChunk]:
        for partial in self._partial_calls:
            if partial.extras and not partial.id:
                partial.id = uuid.uuid4().hex[:9]  # by which they are found
        return [
            tool_call_chunk(
                name=partial.name or None,
                args="".join(partial.arguments),
                id=partial.id or None,
                index=index,
            )
            for index, partial in enumerate(self._partial_calls)
        ]

    def read(self, pieces: object) -> None:
        for position, piece in enumerate(map(as_object, as_list(pieces))):
            if not piece:
                continue
            function = as_object(piece.get("function"))
            call_id, name = str(piece.get("id") or ""), str(function.get("name") or "")
            sent = function.get("arguments")
            arguments = sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)
            arguments = "" if sent is None else arguments
            partial = self._partial_of(piece.get("index"), position, call_id, name, arguments)
            partial.id = partial.id or call_id
            if name != partial.name:
                partial.name += name
            if arguments:
                partial.arguments.append(arguments)
            if piece.get("extra_content"):  # Gemini's thought signature
                partial.extras = {"extra_content": piece["extra_content"]}

    def _partial_of(
        self, given: object, position: int, call_id: str, name: str, arguments: str
    ) -> _PartialCall:
        number = given if isinstance(given, int) else position
        known = self._partial_calls
        index = self._index_of.get(number)
        if index is None and given is None and known and not (call_id or name):
            return known[-1]  # a piece without any mark continues the last call
        if index is None or known[index].is_followed_by(call_id, name, arguments):
            index = self._index_of[number] = len(known)
            known.append(_PartialCall())
        return known[index]


def _count(value: object) -> int:
    """Return a number of tokens, 0 in place of anything else."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0
