"""Makes a reply fit to be stored and sent back: strict servers refuse much of what models send."""

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence, Set
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, InvalidToolCall, ToolCall

from openmanus_graph.backends.models.chunks import ODD, odd_call
from openmanus_graph.conversation.history import (
    FINISH_KEYS,
    TEXT_CALLS_KEY,
    UNREAD_CALL_KEY,
    RequestedCall,
    calls_in_order,
    conversation_index,
    cut_by,
    with_invalid_call_positions,
    with_text,
)
from openmanus_graph.conversation.odd_values import first_surrogate, made_plain
from openmanus_graph.conversation.text_calls import holds_unread_call, read_text_calls

MAX_ID_CHARS = 256
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
KEPT_METADATA = (*FINISH_KEYS, "incomplete_details", "model_name", "model_provider")

CUT = (
    "The reply was cut off by {cause} in the middle of the call, so the call was not run. "
    "Make the arguments shorter, for example by writing a long file in several pieces."
)
UNREADABLE = (
    "The arguments are not a JSON object, so the call was not run: {shown}. Call it again with "
    "correct JSON; write long texts in smaller pieces."
)
HALF_A_CHARACTER = (
    "The arguments hold half a character ({shown}), which can be neither stored nor sent, so the "
    "call was not run. Call it again with the character written whole, or without it."
)


def with_text_calls(
    reply: AIMessage,
    tools: Sequence[Mapping[str, Any]],
    history: Sequence[AnyMessage],
    *,
    asked_for: bool = False,
) -> AIMessage:
    """Return the reply with the calls that it writes as text as calls; as it is without any.

    A text that seems to make one in a form that is not read is marked as such.

    What stands in a message of the person or in a result is a quotation, not a call: a page must
    not be able to have its text run by being read out.

    Args:
        reply: Of the model.
        tools: Definitions of those that were offered.
        history: The conversation before it.
        asked_for: Whether the model was asked to write its calls so; else the reply is marked.
    """
    if reply.tool_calls or reply.invalid_tool_calls:
        return reply
    found = read_text_calls(reply.text, tools) if tools else None
    if found is None and holds_unread_call(reply.text, tools):
        kept = {**reply.additional_kwargs, UNREAD_CALL_KEY: True}
        return reply.model_copy(update={"additional_kwargs": kept})
    if found is None or any(_stands_in(history, call.source) for call in found[1]):
        return reply
    text, calls = found
    mark = {} if asked_for else {TEXT_CALLS_KEY: True}
    return reply.model_copy(
        update={
            "content": with_text(reply, text),
            "tool_calls": [
                ToolCall(id=None, name=call.name, args=call.args, type="tool_call")
                for call in calls
                if call.args is not None
            ],
            "invalid_tool_calls": [
                InvalidToolCall(
                    id=None, name=call.name, args=call.source, error=None, type="invalid_tool_call"
                )
                for call in calls
                if call.args is None
            ],
            "additional_kwargs": {**reply.additional_kwargs, **mark},
        }
    )


def _stands_in(history: Sequence[AnyMessage], source: str) -> bool:
    """Say whether somebody else wrote a text, whatever the white space in it."""
    wanted = "".join(source.split())
    return any(
        wanted in "".join(message.text.split()) for message in history if message.type != "ai"
    )


def storable(raw: AIMessage, history: Sequence[AnyMessage]) -> AIMessage:
    """Return the reply with unique call ids and legal names, and without calls that were cut off.

    Valid ids are kept. Calls that cannot be run become invalid calls that say why.
    """
    made = calls_in_order(raw)
    problems = [_problem(call) for call in made]
    if made and (cause := cut_by(raw)):
        problems[-1] = CUT.format(cause=cause)  # even if it can be read: some servers mend it
    index = conversation_index(history)
    if raw.id and (len(raw.id) > MAX_ID_CHARS or not raw.id.isprintable()):
        raw = raw.model_copy(update={"id": None})
    known, new = index.call_ids, set[str]()
    valid: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    for call, problem in zip(made, problems, strict=True):
        call_id, name = _new_id(call.id, known, new, raw.id), legal_name(call.name)
        if problem is None:
            valid.append(ToolCall(id=call_id, name=name, args=call.args, type="tool_call"))
        else:
            # The arguments are described in `error`: a megabyte of broken JSON is worth nothing.
            broken.append(
                InvalidToolCall(
                    id=call_id, name=name, args="", error=problem, type="invalid_tool_call"
                )
            )
    # With the id of an earlier message it would replace that message.
    known_id = not raw.id or raw.id in index.message_ids
    metadata = raw.response_metadata
    kept = {key: metadata[key] for key in KEPT_METADATA if key in metadata}
    extra = {key: value for key, value in raw.additional_kwargs.items() if key != "tool_calls"}
    positions = [number for number, problem in enumerate(problems) if problem is not None]
    content = made_plain(raw.content)
    return AIMessage(
        content=content if isinstance(content, str) else [*map(_refusal_as_text, content)],
        id=f"run-{uuid.uuid4().hex}" if known_id else raw.id,
        tool_calls=valid,
        invalid_tool_calls=broken,
        usage_metadata=raw.usage_metadata,
        additional_kwargs=with_invalid_call_positions(made_plain(extra), positions),
        response_metadata=made_plain(kept),
    )


def _refusal_as_text(block: str | dict[str, Any]) -> str | dict[str, Any]:
    """Return a block of a reply's content; a refusal, as the Responses API has it, as a text."""
    if isinstance(block, str) or block.get("type") != "refusal":
        return block
    return {"type": "text", "text": str(block.get("refusal"))}


def _problem(call: RequestedCall) -> str | None:
    """Say for the model why a call cannot be run, or None."""
    if call.broken is not None:
        if (error := call.broken["error"] or "").startswith(ODD):
            return error
        return UNREADABLE.format(shown=repr(str(call.broken["args"])[:200]))
    half = first_surrogate(call.args)
    return HALF_A_CHARACTER.format(shown=half) if half else odd_call(call.args) or None


def _new_id(call_id: str, known: Set[str | None], new: set[str], reply_id: str | None) -> str:
    """Return an id that no other call has, the given one if possible, and note it as new.

    One of ours is the same each time for the same reply, as in a replay.
    """
    seed, number = reply_id or uuid.uuid4().hex, len(new)
    while (
        not call_id.strip()
        or len(call_id) > MAX_ID_CHARS
        or not call_id.isprintable()
        or call_id in known
        or call_id in new
    ):
        call_id = f"call_{hashlib.sha256(f'{seed} {number}'.encode()).hexdigest()[:32]}"
        number += 1
    new.add(call_id)
    return call_id


def legal_name(name: str) -> str:
    """Return a tool name that every server takes; what the model wrote, if it is legal."""
    if TOOL_NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"
