"""Normalizes replies so that they can be stored and sent back to strict servers."""

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence, Set
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call

from openmanus_graph.backends.models.chunks import ODD, odd_call
from openmanus_graph.conversation import evidence, history, loose_json, text_calls
from openmanus_graph.conversation.call_forms import TextCall
from openmanus_graph.conversation.fenced_calls import asks_for_code, fenced_call, reports_result
from openmanus_graph.safety.provenance import person_words
from openmanus_graph.safety.unquoted_text import unquoted_text

MAX_ID_CHARS = 256
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BY_CALL_ID = {"tool_call_extras", "__gemini_function_call_thought_signatures__"}
"""Data of single calls, by their ids: of our own client, and of LangChain's for Google."""
KEPT_METADATA = (*history.FINISH_KEYS, "incomplete_details", "model_name", "model_provider")

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


def with_thoughts_apart(reply: AIMessage) -> AIMessage:
    """Return the reply with the thoughts in its text moved to its reasoning.

    Marks of untrusted text that the model repeats are removed, too.
    """
    thought, said = text_calls.split_thoughts(reply.text)
    said = evidence.without_echoed_marks(said)
    if said == reply.text:
        return reply
    known = str(reply.additional_kwargs.get("reasoning_content") or "")
    reasoning = "\n\n".join(filter(None, (known, "" if thought in known else thought)))
    kept = {"reasoning_content": reasoning} if reasoning else {}
    kwargs = {**reply.additional_kwargs, **kept}
    return reply.model_copy(
        update={"content": history.with_text(reply, said), "additional_kwargs": kwargs}
    )


def with_text_calls(
    reply: AIMessage, tools: Sequence[Mapping[str, Any]], conversation: Sequence[AnyMessage]
) -> AIMessage:
    """Return the reply with the calls that it writes as text converted to calls.

    A text that seems to make a call in an unknown form is marked as such.

    A text that is also in a message of the person or in a result is a quotation, not a call: a page
    must not be able to have its text run by being read out.
    """
    if reply.tool_calls or reply.invalid_tool_calls:
        return reply
    if tools and (found := text_calls.read_text_calls(reply.text, tools)):
        if any(_is_quoted(conversation, call.source) for call in found[1]):
            return reply
        return _with_calls(reply, *found, {})
    if (fence := fenced_call(reply.text, tools)) and _may_run(reply.text, fence[1], conversation):
        return _with_calls(reply, fence[0], [fence[1]], {history.FENCE_KEY: True})
    if text_calls.holds_unread_call(reply.text, tools):
        kept = {**reply.additional_kwargs, history.UNREAD_CALL_KEY: True}
        return reply.model_copy(update={"additional_kwargs": kept})
    return reply


def _with_calls(
    reply: AIMessage, text: str, calls: Sequence[TextCall], mark: Mapping[str, Any]
) -> AIMessage:
    valid = [tool_call(name=c.name, args=c.args, id=None) for c in calls if c.args is not None]
    invalid = [
        invalid_tool_call(name=c.name, args=c.source, id=None) for c in calls if c.args is None
    ]
    return reply.model_copy(
        update={
            "content": history.with_text(reply, text),
            "tool_calls": valid,
            "invalid_tool_calls": invalid,
            "additional_kwargs": {**reply.additional_kwargs, **mark},
        }
    )


def _may_run(text: str, call: TextCall, conversation: Sequence[AnyMessage]) -> bool:
    """Return True if the only code fence of a reply is meant as a call: see the conditions."""
    message = history.last_user_message(conversation)
    if message is None or call.args is None or asks_for_code(_own_words(message)):
        return False
    run = list(history.newest_first(conversation))
    fenced = (
        one
        for one in run
        if one.type == "ai" and (history.FENCE_KEY in one.additional_kwargs or "```" in one.text)
    )
    shown = next(fenced, None)
    last_was_run = shown is not None and history.FENCE_KEY in shown.additional_kwargs
    results = [one for one in run if isinstance(one, ToolMessage)]
    worked = history.NOTES_KEY in message.additional_kwargs or any(
        one.status != "error" for one in results
    )
    if worked and not last_was_run:
        return False
    if (call.name, history.canonical_args(call.args)) in history.conversation_index(
        conversation
    ).calls:
        seen = "\n".join(str(one.text) for one in results)
        return not reports_result(text, _own_words(message), seen)  # else it shows what was run
    code = [value for key, value in call.args.items() if key in ("code", "command")]
    return not any(_is_quoted(conversation, one, own=True) for one in (call.source, *code))


def _own_words(message: HumanMessage) -> str:
    """Return a person's request without pasted texts, or the text of a plan's step."""
    kwargs = message.additional_kwargs
    return str(kwargs.get(history.STEP_KEY) or unquoted_text(person_words(message)).text)


def _is_quoted(conversation: Sequence[AnyMessage], source: str, *, own: bool = False) -> bool:
    """Return True if a text is in a message that the model did not write, ignoring white space.

    If `own`, a person's own words may hold it.
    """
    wanted = "".join(source.split())
    for message in conversation:
        if message.type == "ai" or wanted not in "".join(message.text.split()):
            continue
        own_words = _own_words(message) if own and isinstance(message, HumanMessage) else ""
        if wanted not in "".join(own_words.split()):
            return True
    return False


def normalized_reply(raw: AIMessage, conversation: Sequence[AnyMessage]) -> AIMessage:
    """Return the reply with unique call ids and legal names, and without calls that were cut off.

    Valid ids are kept. Calls that cannot be run become invalid calls that say why.
    """
    made = history.calls_in_order(raw)
    problems = [_problem(call) for call in made]
    if made and (cause := history.cut_by(raw)):
        problems[-1] = CUT.format(cause=cause)  # even if it can be read: some servers repair it
    index = history.conversation_index(conversation)
    if raw.id and (len(raw.id) > MAX_ID_CHARS or not raw.id.isprintable()):
        raw = raw.model_copy(update={"id": None})
    known, new = index.call_ids, set[str]()
    valid: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    renamed: dict[str, str] = {}
    for call, problem in zip(made, problems, strict=True):
        call_id, name = _new_id(call.id, known, new, raw.id), call.name
        if not TOOL_NAME.fullmatch(name):  # every server accepts this one
            name = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"
        renamed[call.id] = call_id
        if problem is None:
            valid.append(tool_call(name=name, args=call.args, id=call_id))
        else:  # which describes the arguments: a megabyte of broken JSON is useless
            broken.append(invalid_tool_call(name=name, args="", id=call_id, error=problem))
    # With the id of an earlier message it would replace that message.
    known_id = not raw.id or raw.id in index.message_ids
    metadata = raw.response_metadata
    kept = {key: metadata[key] for key in KEPT_METADATA if key in metadata}
    extra = {key: value for key, value in raw.additional_kwargs.items() if key != "tool_calls"}
    for key in _BY_CALL_ID & extra.keys():
        extra[key] = {renamed.get(old, old): value for old, value in extra[key].items()}
    positions = [number for number, problem in enumerate(problems) if problem is not None]
    content = loose_json.made_plain(raw.content)
    if not isinstance(content, str):  # the Responses API has blocks for refusals
        content = [
            {"type": "text", "text": str(one.get("refusal"))}
            if not isinstance(one, str) and one.get("type") == "refusal"
            else one
            for one in content
        ]
    return AIMessage(
        content=content,
        id=f"run-{uuid.uuid4().hex}" if known_id else raw.id,
        tool_calls=valid,
        invalid_tool_calls=broken,
        usage_metadata=raw.usage_metadata,
        additional_kwargs=history.with_invalid_call_positions(
            loose_json.made_plain(extra), positions
        ),
        response_metadata=loose_json.made_plain(kept),
    )


def _problem(call: history.RequestedCall) -> str | None:
    """Return why a call cannot be run, for the model, or None."""
    if call.broken is not None:
        if (error := call.broken["error"] or "").startswith(ODD):
            return error
        return UNREADABLE.format(shown=repr(str(call.broken["args"])[:200]))
    half = loose_json.first_surrogate(call.args)
    return HALF_A_CHARACTER.format(shown=half) if half else odd_call(call.args) or None


def _new_id(call_id: str, known: Set[str | None], new: set[str], reply_id: str | None) -> str:
    """Return a unique id, the given one if possible, and note it as new.

    A generated id is always the same for the same reply, as in a replay.
    """
    seed, number = reply_id or uuid.uuid4().hex, len(new)
    while (
        not call_id.strip()
        or len(call_id) > MAX_ID_CHARS
        or not call_id.isprintable()
        or call_id in known
        or call_id in new
    ):
        # Nine letters and digits, which Mistral's servers require.
        call_id = hashlib.sha256(f"{seed} {number}".encode()).hexdigest()[:9]
        number += 1
    new.add(call_id)
    return call_id
