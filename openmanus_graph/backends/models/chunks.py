"""Makes the message that is kept from a model's chunks or whole message.

Values that can be neither stored nor sent are replaced; a call with such arguments is invalid.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    InvalidToolCall,
    ToolCall,
    ToolCallChunk,
)
from langchain_core.messages.ai import UsageMetadata, add_ai_message_chunks
from langchain_core.messages.tool import invalid_tool_call, tool_call
from pydantic import ValidationError

from openmanus_graph.backends.models.failures import ReplyError, malformed_reply
from openmanus_graph.conversation import loose_json
from openmanus_graph.conversation.history import with_invalid_call_positions


class SurrogateBuffer:
    """Buffers the first half of a surrogate pair until the chunk with the second half arrives."""

    def __init__(self) -> None:
        self._buffer = ""

    def add(self, piece: str) -> str:
        """Return the complete text that was not returned yet."""
        text = self._buffer + piece
        self._buffer = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return loose_json.without_surrogates(text[: len(text) - len(self._buffer)])

    def rest(self) -> str:
        buffered, self._buffer = self._buffer, ""
        return loose_json.without_surrogates(buffered)


WHOLE_CALLS = "whole_calls"
"""Key of the last chunk's `additional_kwargs` for the calls of our own client."""
NOT_AN_OBJECT = "The arguments are not a JSON object."
ODD = "The call was not run. "
"""Begins the fault of arguments that can be read, but neither stored nor sent."""
_MAX_TOKENS = 1 << 50
"""The most that a reply may claim to have used."""


def merged_message(chunks: Iterable[AIMessageChunk]) -> AIMessage:
    """Join the chunks of one reply, at once: joining them one by one is quadratic.

    Arguments are parsed strictly. LangChain completes broken JSON, so a call that was cut off at
    the token limit would run with half its arguments; here it is an invalid call. ValueError: there
    are no chunks.
    """
    first, *rest = chunks
    whole = add_ai_message_chunks(first, *rest) if rest else first
    extra = dict(whole.additional_kwargs)
    pieces: list[ToolCallChunk] = extra.pop(WHOLE_CALLS, whole.tool_call_chunks)
    made = ((piece["name"], piece["id"], piece["args"]) for piece in pieces)
    return _message(whole, extra, made, ())


def checked_message(raw: object) -> AIMessage:
    """Return a message that a model gave whole, its arguments parsed as strictly as streamed ones.

    It may come from any model, unchecked. A call whose arguments are not object is an invalid call.
    ReplyError: it is not a reply of a model.
    """
    if not isinstance(raw, AIMessage):
        raise ReplyError(f"it gave a {type(raw).__name__}, which is not an AIMessage")
    if not isinstance(cast("object", raw.tool_calls), list | None):
        raise ReplyError("its tool calls are not a list")
    made = map(_call_parts, cast("list[object]", raw.tool_calls or []))
    try:
        return _message(raw, raw.additional_kwargs, made, raw.invalid_tool_calls)
    except (ValidationError, TypeError, AttributeError) as error:
        raise ReplyError(malformed_reply(error)) from error


_CallParts = tuple[str | None, str | None, object]
"""Name, id and arguments of a call."""


def _call_parts(call: object) -> _CallParts:
    made = cast("dict[str, object]", call) if isinstance(call, dict) else {"args": call}
    name, call_id = made.get("name"), made.get("id")
    plain = name if isinstance(name, str) else ""
    return plain, None if call_id is None else str(call_id), made.get("args")


def _message(
    whole: AIMessage,
    extra: Mapping[str, Any],
    made: Iterable[_CallParts],
    known_invalid: Iterable[InvalidToolCall],
) -> AIMessage:
    """Return a message as it is kept, with its `additional_kwargs` and its calls.

    Earlier invalid calls come last, as their positions are not known.
    """
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    invalid_at: list[int] = []
    for position, (name, call_id, given) in enumerate(made):
        arguments, fault = parse_arguments(given)
        if arguments is None:
            text = (
                given
                if isinstance(given, str)
                else json.dumps(loose_json.made_plain(given), default=str)
            )
            invalid.append(invalid_tool_call(name=name, args=text, id=call_id, error=fault))
            invalid_at.append(position)
        else:
            calls.append(tool_call(name=name or "", args=arguments, id=call_id))
    kwargs = loose_json.made_plain(extra)
    return AIMessage(
        content=loose_json.made_plain(whole.content or ""),
        additional_kwargs=with_invalid_call_positions(kwargs, invalid_at) if invalid else kwargs,
        response_metadata=loose_json.made_plain(whole.response_metadata),
        usage_metadata=_sound_usage(whole.usage_metadata),
        id=whole.id,
        name=whole.name,
        tool_calls=calls,
        invalid_tool_calls=[*invalid, *known_invalid],
    )


def _sound_usage(given: UsageMetadata | None) -> UsageMetadata | None:
    """Return the reported usage; None, so that it is estimated, if it is impossible."""
    if given is None:
        return None
    details = (given.get("input_token_details", {}), given.get("output_token_details", {}))
    counts = [given["input_tokens"], given["output_tokens"], given["total_tokens"]]
    counts += [count for each in details for count in cast("dict[str, int]", each).values()]
    return given if all(0 <= count < _MAX_TOKENS for count in counts) else None


def parse_arguments(args: object) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments of a call, or None and why they are not a JSON object."""
    parsed: object = args
    if args is None or isinstance(args, str):
        text = loose_json.with_pairs_joined(args or "").strip()
        try:
            # Models put raw line breaks into strings; they are meant.
            parsed = json.loads(text, strict=False) if text else None
            parsed = json.loads(parsed, strict=False) if isinstance(parsed, str) else parsed
        except RecursionError:
            return None, f"{ODD}The arguments hold {loose_json.TOO_DEEP}."
        except ValueError as error:
            return None, f"{NOT_AN_OBJECT} {error}"
        parsed = dict[str, Any]() if parsed is None else parsed
    if not isinstance(parsed, dict) or not all(isinstance(key, str) for key in cast("Any", parsed)):
        return None, NOT_AN_OBJECT
    found = cast("dict[str, Any]", parsed)
    problem = odd_call(found)
    return (None, problem) if problem else (found, "")


def odd_call(args: Mapping[str, Any]) -> str:
    """Return why a call with odd arguments cannot be run, for the model; empty if it can."""
    found = loose_json.odd_argument(args)
    return found and f"{ODD}{found}. Call it again with a plain value, such as a text in its place."
