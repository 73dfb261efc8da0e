"""From what a model gives, chunks or a whole message, to the message that is kept.

What can be neither stored nor sent on is replaced; a call with such arguments is an invalid call.
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
from openmanus_graph.conversation.history import with_invalid_call_positions
from openmanus_graph.conversation.loose_json import (
    TOO_DEEP,
    made_plain,
    odd_argument,
    with_pairs_joined,
    without_surrogates,
)


class SurrogateBuffer:
    """Buffers the first half of a surrogate pair until the chunk with the second half arrives."""

    def __init__(self) -> None:
        self._buffer = ""

    def add(self, piece: str) -> str:
        """Return the complete text that was not returned yet."""
        text = self._buffer + piece
        self._buffer = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return without_surrogates(text[: len(text) - len(self._buffer)])

    def rest(self) -> str:
        buffered, self._buffer = self._buffer, ""
        return without_surrogates(buffered)


WHOLE_CALLS = "whole_calls"
"""Key of the last chunk's `additional_kwargs` under which our own client hands over the calls."""
NOT_AN_OBJECT = "The arguments are not a JSON object."
ODD = "The call was not run. "
"""Begins what is wrong with arguments that can be read, but neither stored nor sent."""
_MAX_TOKENS = 1 << 50
"""That a reply may claim to have used."""


def merged_message(chunks: Iterable[AIMessageChunk]) -> AIMessage:
    """Join the chunks of one reply, at once: joining them one by one is quadratic.

    Arguments are parsed strictly. LangChain completes broken JSON, so a call that was cut off
    at the token limit would run with half its arguments; here it is an invalid call.

    Raises:
        ValueError: There are no chunks.
    """
    first, *rest = chunks
    whole = add_ai_message_chunks(first, *rest) if rest else first
    extra = dict(whole.additional_kwargs)
    pieces: list[ToolCallChunk] = extra.pop(WHOLE_CALLS, whole.tool_call_chunks)
    calls, invalid, invalid_at = _parse_calls(
        (piece["name"], piece["id"], piece["args"]) for piece in pieces
    )
    return AIMessage(
        content=made_plain(whole.content),
        additional_kwargs=with_invalid_call_positions(made_plain(extra), invalid_at),
        response_metadata=made_plain(whole.response_metadata),
        usage_metadata=_sound_usage(whole.usage_metadata),
        id=whole.id,
        name=whole.name,
        tool_calls=calls,
        invalid_tool_calls=invalid,
    )


def checked_message(raw: object) -> AIMessage:
    """Return a message that a model gave whole, its arguments read as strictly as streamed ones.

    The model may be anybody's, and nobody may have looked at the message yet. A call whose
    arguments are no object is an invalid call.

    Raises:
        ReplyError: It is no reply of a model.
    """
    if not isinstance(raw, AIMessage):
        raise ReplyError(f"it gave a {type(raw).__name__}, which is no AIMessage")
    if not isinstance(cast("object", raw.tool_calls), list | None):
        raise ReplyError("its tool calls are no list")
    given = cast("list[object]", raw.tool_calls or [])
    calls, invalid, invalid_at = _parse_calls(map(_call_parts, given))
    try:
        # Those that were known before come last, as where nobody knows their places.
        extra = made_plain(raw.additional_kwargs)
        if invalid:
            extra = with_invalid_call_positions(extra, invalid_at)
        return AIMessage(
            id=raw.id,
            name=raw.name,
            response_metadata=made_plain(raw.response_metadata),
            usage_metadata=_sound_usage(raw.usage_metadata),
            content=made_plain(raw.content or ""),
            additional_kwargs=extra,
            tool_calls=calls,
            invalid_tool_calls=[*invalid, *raw.invalid_tool_calls],
        )
    except (ValidationError, TypeError, AttributeError) as error:
        raise ReplyError(malformed_reply(error)) from error


def _sound_usage(given: UsageMetadata | None) -> UsageMetadata | None:
    """Return what a reply says that it used; None, so that it is estimated, if that cannot be."""
    if given is None:
        return None
    details = (given.get("input_token_details", {}), given.get("output_token_details", {}))
    counts = [given["input_tokens"], given["output_tokens"], given["total_tokens"]]
    counts += [count for each in details for count in cast("dict[str, int]", each).values()]
    return given if all(0 <= count < _MAX_TOKENS for count in counts) else None


_CallParts = tuple[str | None, str | None, object]
"""Name, id and arguments of a call."""


def _parse_calls(
    made: Iterable[_CallParts],
) -> tuple[list[ToolCall], list[InvalidToolCall], list[int]]:
    """Return the valid calls, the invalid ones, and the positions of the latter among all."""
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    invalid_at: list[int] = []
    for position, (name, call_id, given) in enumerate(made):
        arguments, fault = parse_arguments(given)
        if arguments is None:
            invalid_at.append(position)
            text = _as_text(given)
            invalid.append(invalid_tool_call(name=name, args=text, id=call_id, error=fault))
        else:
            calls.append(tool_call(name=name or "", args=arguments, id=call_id))
    return calls, invalid, invalid_at


def _call_parts(call: object) -> _CallParts:
    made = cast("dict[str, object]", call) if isinstance(call, dict) else {"args": call}
    name, call_id = made.get("name"), made.get("id")
    plain = name if isinstance(name, str) else ""
    return plain, None if call_id is None else str(call_id), made.get("args")


def _as_text(args: object) -> str:
    return args if isinstance(args, str) else json.dumps(made_plain(args), default=str)


def parse_arguments(args: object) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments of a call, or None and why they are no JSON object."""
    if isinstance(args, dict) and all(isinstance(key, str) for key in cast("Any", args)):
        return _sound_arguments(cast("dict[str, Any]", args))
    if args is not None and not isinstance(args, str):
        return None, NOT_AN_OBJECT
    text = with_pairs_joined(args or "").strip()
    if not text:
        return {}, ""
    try:
        # Models put raw line breaks into strings; they are meant.
        parsed = json.loads(text, strict=False)
    except RecursionError:
        return None, f"{ODD}The arguments hold {TOO_DEEP}."
    except ValueError as error:
        return None, f"{NOT_AN_OBJECT} {error}"
    if isinstance(parsed, dict):
        return _sound_arguments(cast("dict[str, Any]", parsed))
    return ({}, "") if parsed is None else (None, NOT_AN_OBJECT)


def odd_call(args: Mapping[str, Any]) -> str:
    """Say for the model why a call cannot be run whose arguments are odd; empty if it can."""
    found = odd_argument(args)
    return found and f"{ODD}{found}. Call it again with a plain value, such as a text in its place."


def _sound_arguments(args: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    problem = odd_call(args)
    return (None, problem) if problem else (args, "")
