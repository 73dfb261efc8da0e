"""From the chunks of a streamed reply to the message that is kept, for every provider."""

import json
from collections.abc import Iterable
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    InvalidToolCall,
    ToolCall,
    ToolCallChunk,
)
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import invalid_tool_call, tool_call

from openmanus_graph.history import with_places
from openmanus_graph.models.surrogates import with_pairs_joined

WHOLE_CALLS = "whole_calls"
"""Key of the last chunk's `additional_kwargs` under which our own client hands over the calls."""
NOT_AN_OBJECT = "The arguments are not a JSON object."


def merged_message(chunks: Iterable[AIMessageChunk]) -> AIMessage:
    """Join the chunks of one reply, at once: joining them one by one is quadratic.

    Arguments are parsed strictly. LangChain completes broken JSON, so a call that was cut off
    at the token limit would run with half its arguments; here it is an invalid call.

    Raises:
        ValueError: There are no chunks.
    """
    first, *rest = chunks
    whole = add_ai_message_chunks(first, *rest) if rest else first
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    broken_at: list[int] = []
    extra = dict(whole.additional_kwargs)
    pieces: list[ToolCallChunk] = extra.pop(WHOLE_CALLS, whole.tool_call_chunks)
    for position, piece in enumerate(pieces):
        arguments, fault = _arguments(piece)
        if arguments is None:
            broken_at.append(position)
            invalid.append(
                invalid_tool_call(
                    name=piece["name"], args=piece["args"], id=piece["id"], error=fault
                )
            )
        else:
            calls.append(tool_call(name=piece["name"] or "", args=arguments, id=piece["id"]))
    return AIMessage(
        content=cast("Any", whole.content),  # the stub knows lists of str or of dict only
        additional_kwargs=with_places(extra, broken_at),
        response_metadata=whole.response_metadata,
        usage_metadata=whole.usage_metadata,
        id=whole.id,
        name=whole.name,
        tool_calls=calls,
        invalid_tool_calls=invalid,
    )


def is_readable(piece: ToolCallChunk) -> bool:
    """Say whether the arguments of a whole call are a JSON object."""
    return _arguments(piece)[0] is not None


def _arguments(piece: ToolCallChunk) -> tuple[dict[str, Any] | None, str]:
    text = with_pairs_joined(piece["args"] or "").strip()
    if not text:
        return {}, ""
    try:
        # Models put raw line breaks into strings; they are meant.
        parsed = json.loads(text, strict=False)
    except ValueError as error:
        return None, f"{NOT_AN_OBJECT} {error}"
    if isinstance(parsed, dict):
        return cast("dict[str, Any]", parsed), ""
    return ({}, "") if parsed is None else (None, NOT_AN_OBJECT)
