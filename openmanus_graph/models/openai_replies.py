"""Chat completions, whole or in pieces, as LangChain's chunks: what servers really send."""

import json
from collections.abc import Mapping
from typing import Any, cast

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from openmanus_graph.models.failure_words import FailureKind
from openmanus_graph.models.failures import ReplyError
from openmanus_graph.models.openai_events import DONE, Event

Fields = Mapping[str, Any]


class ReplyReader:
    """Reads the events of one reply and remembers what belongs to its end.

    A whole completion is read as a stream of one event.
    """

    def __init__(self) -> None:
        self._seen_choice = False
        self._seen_output = False
        self._finish_reason: str | None = None
        self._done = False
        self._usage: Fields | None = None
        self._about: dict[str, Any] = {}
        self._kwargs: dict[str, Any] = {}
        self._details: list[dict[str, Any]] = []
        self._calls = _CallSlots()

    def read(self, event: Event) -> ChatGenerationChunk | None:
        """Take one event; return what it adds to the reply.

        Raises:
            ReplyError: It holds an error.
        """
        if event is DONE:
            self._done = True
            return None
        if event.get("error"):
            raise reply_error(event["error"])
        self._note(event)
        choice = _first_choice(event)
        if choice is None:
            return None
        self._seen_choice = True
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        whole = choice.get("message")
        if whole is not None:
            self._done = True
        delta = whole if whole is not None else choice.get("delta")
        return self._chunk(cast("Fields", delta)) if isinstance(delta, Mapping) else None

    def finish(self) -> ChatGenerationChunk:
        """Return the last chunk: usage, finish reason and fields that must be sent back.

        Raises:
            ReplyError: There was no reply, or it broke off.
        """
        if not self._seen_choice:
            keys = ", ".join(sorted(self._about.get("keys", ()))) or "nothing"
            raise ReplyError(f"the answer holds no choices (it holds: {keys})")
        if self._finish_reason is None and not self._done:
            raise ReplyError("the stream broke off before the reply's end")
        if self._finish_reason == "error":
            raise ReplyError("the provider reported an error in the middle of its reply")
        if self._finish_reason == "content_filter" and not self._seen_output:
            raise ReplyError("the reply was withheld", kind="content_filter")
        message = AIMessageChunk(
            content="",
            additional_kwargs=self._last_kwargs(),
            usage_metadata=usage_metadata(self._usage) if self._usage else None,
            chunk_position="last",
        )
        return ChatGenerationChunk(message=message, generation_info=self._generation_info())

    def _note(self, event: Event) -> None:
        keys = cast("set[str]", self._about.setdefault("keys", set[str]()))
        keys.update(event)
        for name in ("model", "id", "system_fingerprint", "service_tier", "provider"):
            if event.get(name):
                self._about[name] = event[name]
        if isinstance(event.get("usage"), Mapping):
            self._usage = event["usage"]  # each is a running total: the last one counts

    def _chunk(self, delta: Fields) -> ChatGenerationChunk | None:
        text, thought = _text_and_thought(delta)
        calls = self._calls.read(delta.get("tool_calls"))
        kwargs: dict[str, Any] = {}
        if thought:
            kwargs["reasoning_content"] = thought
            if not delta.get("reasoning_content") and isinstance(delta.get("reasoning"), str):
                self._kwargs["reasoning_field"] = "reasoning"
        for detail in cast("list[Any]", delta.get("reasoning_details") or []):
            _add_detail(self._details, detail)
        if not (text or calls or kwargs):
            return None
        self._seen_output = self._seen_output or bool(text or calls)
        message = AIMessageChunk(content=text, additional_kwargs=kwargs, tool_call_chunks=calls)
        return ChatGenerationChunk(message=message)

    def _last_kwargs(self) -> dict[str, Any]:
        kwargs = dict(self._kwargs)
        if self._details:
            kwargs["reasoning_details"] = self._details
        if self._calls.extras:
            kwargs["tool_call_extras"] = self._calls.extras
        return kwargs

    def _generation_info(self) -> dict[str, Any]:
        about = self._about
        info: dict[str, Any] = {
            "finish_reason": self._finish_reason or "stop",
            "model_provider": "openai",
        }
        if self._usage and isinstance(cost := self._usage.get("cost"), int | float):
            info["cost_usd"] = float(cost)  # OpenRouter says what it charged
        names = {"model": "model_name", "provider": "upstream", "id": "id"}
        for name in ("model", "id", "system_fingerprint", "service_tier", "provider"):
            if name in about:
                info[names.get(name, name)] = about[name]
        return info


class _CallSlots:
    """Puts the pieces of tool calls in their places.

    Servers leave out the index, repeat id and name in every piece, number all calls 0, or send
    arguments as an object. What leaves here has one index per call, and id and name once.
    """

    def __init__(self) -> None:
        self.extras: dict[str, dict[str, Any]] = {}
        self._ids: list[str] = []
        self._names: list[str] = []
        self._slot_of: dict[int, int] = {}

    def read(self, pieces: object) -> list[ToolCallChunk]:
        if not isinstance(pieces, list):
            return []
        found: list[ToolCallChunk] = []
        for position, piece in enumerate(cast("list[object]", pieces)):
            if isinstance(piece, Mapping):
                found.append(self._piece(cast("Fields", piece), position))
        return found

    def _piece(self, piece: Fields, position: int) -> ToolCallChunk:
        function = cast("Fields", piece.get("function") or {})
        call_id, name = str(piece.get("id") or ""), str(function.get("name") or "")
        given = piece.get("index")
        slot = self._slot(given if isinstance(given, int) else position, call_id, name, given)
        new_id = call_id if not self._ids[slot] else ""
        new_name = name if not self._names[slot] else ""
        self._ids[slot] = self._ids[slot] or call_id
        self._names[slot] = self._names[slot] or name
        if piece.get("extra_content") and self._ids[slot]:  # Gemini's thought signature
            self.extras[self._ids[slot]] = {"extra_content": piece["extra_content"]}
        return tool_call_chunk(
            name=new_name or None,
            args=_argument_text(function.get("arguments")),
            id=new_id or None,
            index=slot,
        )

    def _slot(self, index: int, call_id: str, name: str, given: object) -> int:
        slot = self._slot_of.get(index)
        if slot is None and given is None and self._ids and not (call_id or name):
            return len(self._ids) - 1  # a piece without any mark continues the last call
        if slot is None or self._is_another(slot, call_id, name):
            slot = len(self._ids)
            self._ids.append("")
            self._names.append("")
            self._slot_of[index] = slot
        return slot

    def _is_another(self, slot: int, call_id: str, name: str) -> bool:
        if name and call_id and self._ids[slot]:
            return call_id != self._ids[slot]
        return bool(name and self._names[slot] and name != self._names[slot])


def _argument_text(arguments: object) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _first_choice(event: Event) -> Fields | None:
    choices = event.get("choices")
    if not isinstance(choices, list):
        return None
    for choice in cast("list[object]", choices):
        if isinstance(choice, Mapping) and not cast("Fields", choice).get("index"):
            return cast("Fields", choice)
    return None


def _text_and_thought(delta: Fields) -> tuple[str, str]:
    """Split what a model says from what it thinks; a refusal is something it says."""
    content = delta.get("content")
    thoughts: list[object] = [delta.get("reasoning_content") or delta.get("reasoning")]
    texts: list[object] = [content, None if content else delta.get("refusal")]
    if isinstance(content, list):  # Mistral's reasoning models
        for part in cast("list[Fields]", content):
            inner = part.get("thinking")
            if isinstance(inner, list):
                thoughts += [piece.get("text") for piece in cast("list[Fields]", inner)]
            texts.append(part.get("text"))
    return _joined(texts), _joined(thoughts)


def _joined(parts: list[object]) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def _add_detail(details: list[dict[str, Any]], piece: object) -> None:
    """Join pieces of OpenRouter's reasoning blocks, which carry the index of their block."""
    if not isinstance(piece, Mapping):
        return
    new = dict(cast("Fields", piece))
    last = details[-1] if details else None
    same = ("index", "type")
    if last is None or any(last.get(key) != new.get(key) for key in same) or "index" not in new:
        details.append(new)
        return
    for key, value in new.items():
        if key in ("text", "summary", "data") and isinstance(value, str):
            last[key] = f"{last.get(key) or ''}{value}"
        elif value is not None:
            last[key] = value


def usage_metadata(usage: Fields) -> UsageMetadata:
    """Read token counts; servers put the cached ones in three places."""
    details = cast("Fields", usage.get("prompt_tokens_details") or {})
    spent = cast("Fields", usage.get("completion_tokens_details") or {})
    cached = (
        details.get("cached_tokens")
        or usage.get("prompt_cache_hit_tokens")  # DeepSeek
        or usage.get("cached_tokens")  # Moonshot
        or 0
    )
    input_details = InputTokenDetails(cache_read=int(cached))
    if written := details.get("cache_write_tokens"):
        input_details["cache_creation"] = int(written)
    tokens_in = int(usage.get("prompt_tokens") or 0)
    tokens_out = int(usage.get("completion_tokens") or 0)
    return UsageMetadata(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        total_tokens=int(usage.get("total_tokens") or tokens_in + tokens_out),
        input_token_details=input_details,
        output_token_details=OutputTokenDetails(reasoning=int(spent.get("reasoning_tokens") or 0)),
    )


def reply_error(error: object) -> ReplyError:
    """Make an exception of an error object that came inside a success."""
    if not isinstance(error, Mapping):
        return ReplyError(str(error))
    fields = cast("Fields", error)
    parts = [fields.get("message"), fields.get("code"), fields.get("type")]
    metadata = fields.get("metadata")
    if isinstance(metadata, Mapping):
        parts.append(cast("Fields", metadata).get("raw"))
    told = " ".join(str(part) for part in parts if part and isinstance(part, str))
    code = fields.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else None
    return ReplyError(told or str(dict(fields)), status_code=status, kind=_kind_of_type(fields))


def _kind_of_type(fields: Fields) -> FailureKind | None:
    kinds: dict[object, FailureKind] = {
        "invalid_api_key": "auth",
        "rate_limit_exceeded": "retry",
        "server_error": "retry",
        "overloaded_error": "retry",
    }
    return kinds.get(fields.get("code")) or kinds.get(fields.get("type"))
