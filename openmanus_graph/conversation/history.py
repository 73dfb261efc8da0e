"""Reads the conversation: pure functions of `messages`, and the keys of what messages carry.

A user message also carries what a run tells the model about its environment. It is not in the
system prompt, which is the same in all threads so that providers find it in their caches, nor in
the message's content, because the user did not write it. Requests show it before that content.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
)
from typing_extensions import TypedDict

from openmanus_graph.conversation.caches import ConversationReader, MessageCache
from openmanus_graph.prompts import render
from openmanus_graph.state.manus import PendingCall

_SAME_CHARS = 12
"""A text that repeats so many characters of the one before does not do so by chance."""
_MOST_REPEATED_CHARS = 400


FINISH_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""Keys under which providers report why a reply ended."""
LENGTH_LIMIT, CONTENT_FILTER = "its length limit (max_tokens)", "the provider's content filter"
_CUT_BY = {
    "length": LENGTH_LIMIT,
    "max_tokens": LENGTH_LIMIT,
    "max_output_tokens": LENGTH_LIMIT,
    "model_length": LENGTH_LIMIT,
    "model_context_window_exceeded": LENGTH_LIMIT,
    "content_filter": CONTENT_FILTER,
    "safety": CONTENT_FILTER,
    "refusal": CONTENT_FILTER,
}
ORIGIN_KEY = "openmanus_origin"
"""Key of the `Origin` in a message that a flow wrote."""
STEP_KEY = "openmanus_step"
"""Key of a plan step's text in the message that a flow wrote for the step."""
HANDOVER_KEY = "openmanus_handover"
"""Key in such a message: whether its run reports to other steps, and not to a person."""
RESUMED_KEY = "openmanus_resumed"
"""Key in such a message: the state of the paused run that it resumes."""
NOT_RESUMED = frozenset({
    "messages", "run_message", "usage", "step_count", "elapsed_s", "status", "stop_reason",
    "answer", "structured", "artifacts",
})  # fmt: skip
"""State that a resumed run does not take over: counts, and the end of the run before."""
STEERING_KEY = "openmanus_remark"
SUMMARY_KEY = "openmanus_closing"
"""Marks the final summary of a run that a limit ended."""
FENCE_KEY = "openmanus_fence"
"""Marks a reply whose call was made from the code that it showed."""
UNREAD_CALL_KEY = "openmanus_unread_call"
"""Marks a reply whose text seems to make a call in an unknown form."""
COMPACT_KEY = "openmanus_compact"
"""Marks a user message that asks for a summary of the conversation before it."""
TASK_KEY, NOTES_KEY = "openmanus_task", "openmanus_notes"
"""Keys of the user's task and the summary, in the first message of a compacted conversation."""
GIVEN_KEY = "openmanus_given"
"""Key of what a step or a subagent is given and others have found, in its first message."""
BEFORE_KEY = "openmanus_before"
"""Key of the checkpoint with the whole conversation, in the first message of a compacted one."""
VERIFIED_KEY = "openmanus_verified"
"""Key of what a compacted conversation had verified, in its first message."""
_INVALID_CALLS_KEY = "broken_calls_at"
"""Key of the positions of a reply's invalid calls among all its calls."""
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


@dataclass(frozen=True)
class RequestedCall:
    id: str
    name: str
    args: dict[str, Any]
    broken: InvalidToolCall | None = None


def resumed_state(message: AnyMessage | None) -> dict[str, Any]:
    """Return the state of the paused run that a user message resumes; empty if it resumes none."""
    kept: dict[str, Any] = message.additional_kwargs.get(RESUMED_KEY, {}) if message else {}
    return {key: value for key, value in kept.items() if key not in NOT_RESUMED}


def last_user_message(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    """Return the user message that started the current run."""
    position = conversation_index(messages).run_start
    message = messages[position] if position >= 0 else None
    return message if isinstance(message, HumanMessage) else None


def has_task(messages: Sequence[AnyMessage]) -> bool:
    """Return True if the current user message has content: text, a picture or a file."""
    message = last_user_message(messages)
    if message is None:
        return False
    return bool(message.content.strip() if isinstance(message.content, str) else message.content)


def run_messages(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """Return the messages after the last user message."""
    return messages[conversation_index(messages).run_start + 1 :]


def newest_first(messages: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    """Yield the messages after the last user message, newest first."""
    for message in reversed(messages):
        if message.type == "human" and not is_steering(message):
            return
        yield message


def recently_called(messages: Sequence[AnyMessage], tool: str, last: int) -> bool:
    """Return True if one of the last messages calls a tool, or is its result."""
    return any(
        message.name == tool
        if isinstance(message, ToolMessage)
        else isinstance(message, AIMessage) and any(c["name"] == tool for c in message.tool_calls)
        for message in messages[-last:]
    )


def last_reply(messages: Sequence[AnyMessage]) -> AIMessage | None:
    """Return the model's newest message in the current run."""
    return next((m for m in newest_first(messages) if m.type == "ai"), None)


def last_results(messages: Sequence[AnyMessage]) -> list[ToolMessage]:
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        results.append(message)
    return results[::-1]


def ends_run(result: AnyMessage) -> bool:
    noted: Any = getattr(result, "artifact", None)
    return isinstance(noted, dict) and "ends_run" in noted


def task_text_of(message: HumanMessage) -> str:
    """Return what the user said in a message, without the summary of a compaction."""
    return str(message.additional_kwargs.get(TASK_KEY) or message.text)


def as_said(message: AnyMessage) -> AnyMessage:
    """Return a message of the user without the summary of a compaction, others unchanged."""
    if TASK_KEY not in message.additional_kwargs:
        return message
    text = message.additional_kwargs[TASK_KEY]
    return message.model_copy(update={"content": with_text(message, text)})


def with_text(message: BaseMessage, text: str) -> str | list[str | dict[str, Any]]:
    """Return a message's content with another text in place of its texts."""
    if isinstance(message.content, str):
        return text
    blocks = [one if isinstance(one, dict) else {"type": "text"} for one in message.content]
    kinds = [block.get("type") for block in blocks]
    first = kinds.index("text") if "text" in kinds else len(kinds)
    others = [block for block in blocks if block.get("type") != "text"]
    said: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return [*others[:first], *said, *others[first:]]


def reasoning_of(message: BaseMessage) -> str:
    """Return what the model thought before it said a message, in whatever form it is sent."""
    sent = str(message.additional_kwargs.get("reasoning_content") or "")
    if sent or isinstance(message.content, str):
        return sent
    blocks = (one for one in message.content_blocks if one["type"] == "reasoning")
    return "".join(one.get("reasoning", "") for one in blocks)


def last_text(messages: Sequence[AnyMessage]) -> str:
    """Return the newest of `texts`, empty if there is none."""
    return next((text for _, text in texts(messages)), "")


def texts(messages: Sequence[AnyMessage]) -> Iterator[tuple[AIMessage, str]]:
    """Yield what the model said in the current run, newest first: each text with its last message.

    Pieces of one text that the length limit cut are joined.
    """
    last, text = None, ""
    for message in newest_first(messages):
        reply = message if isinstance(message, AIMessage) else None
        if last is not None:
            if reply is not None and is_cut_text(reply):
                text = _joined(reply.text, text)
                continue
            yield last, text.strip()
        last, text = (reply, reply.text) if reply is not None and reply.text.strip() else (None, "")
    if last is not None:
        yield last, text.strip()


def _joined(cut: str, following: str) -> str:
    """Join a cut text and the next one, which may begin again or repeat the end."""
    beginning = cut.strip()[:_SAME_CHARS]
    if len(beginning) == _SAME_CHARS and following.lstrip().startswith(beginning):
        return following
    most = min(len(cut), len(following), _MOST_REPEATED_CHARS)
    for length in range(most, _SAME_CHARS - 1, -1):
        if cut.endswith(following[:length]):
            return cut + following[length:]
    return cut + following


def cut_by(reply: AIMessage) -> str | None:
    """Return what cut a reply off, in the words of any provider; None if nothing did."""
    metadata: dict[str, Any] = reply.response_metadata
    wrapped: dict[str, Any] = metadata.get("incomplete_details") or {}  # OpenAI's Responses API
    reasons = {str(metadata.get(key)).lower() for key in FINISH_KEYS} | {wrapped.get("reason")}
    return next((words for reason, words in _CUT_BY.items() if reason in reasons), None)


def is_cut_text(reply: AIMessage) -> bool:
    """Return True if a reply is a text that the length limit cut and the next reply continues."""
    if SUMMARY_KEY in reply.additional_kwargs or reply.tool_calls or reply.invalid_tool_calls:
        return False
    return cut_by(reply) == LENGTH_LIMIT


def calls_in_order(reply: AIMessage) -> list[RequestedCall]:
    """Return all calls of a reply, including invalid ones, in the model's order."""
    calls = [RequestedCall(one["id"] or "", one["name"], one["args"]) for one in reply.tool_calls]
    places: Sequence[int] = reply.additional_kwargs.get(_INVALID_CALLS_KEY, ())
    for number, call in enumerate(reply.invalid_tool_calls):
        place = places[number] if number < len(places) else len(calls)
        calls.insert(place, RequestedCall(call["id"] or "", call["name"] or "", {}, call))
    return calls


def with_invalid_call_positions(
    additional_kwargs: Mapping[str, Any], broken_at: Sequence[int]
) -> dict[str, Any]:
    """Return a reply's `additional_kwargs` with the positions of its invalid calls, if any."""
    others = {key: value for key, value in additional_kwargs.items() if key != _INVALID_CALLS_KEY}
    return {**others, _INVALID_CALLS_KEY: list(broken_at)} if broken_at else others


def pending_calls(messages: Sequence[AnyMessage]) -> list[PendingCall]:
    """Return the calls of the newest reply without a result, including invalid ones, in order."""
    reply = last_reply(messages)
    if reply is None:
        return []
    answered = {m.tool_call_id for m in last_results(messages)}
    keys, counted = canonical_calls(reply), conversation_index(messages).calls
    # The index counts the reply's own calls, too.
    earlier = {key: counted[key] - own for key, own in Counter(keys).items()}
    pending: list[PendingCall] = []
    readable = iter(keys)
    for call in calls_in_order(reply):
        occurrence, problem = 0, None
        if call.broken is not None:
            problem = call.broken["error"] or "The arguments are not a JSON object. Call it again."
        else:
            key = next(readable)
            occurrence = earlier[key]
            earlier[key] += 1
        if call.id not in answered:
            pending.append(
                PendingCall(
                    id=call.id,
                    name=call.name,
                    args=call.args,
                    occurrence=occurrence,
                    problem=problem,
                )
            )
    return pending


def canonical_args(args: Mapping[str, Any]) -> str:
    """Serialize arguments so that equal arguments give equal text."""
    return _ENCODER.encode(args)


_canonical_calls = MessageCache[list[tuple[str, str]]]()


def canonical_calls(reply: AIMessage) -> Sequence[tuple[str, str]]:
    """Return tool and canonical arguments of each valid call of a reply."""
    return _canonical_calls.get(
        reply,
        lambda made: [(call["name"], canonical_args(call["args"])) for call in made.tool_calls],
    )


def steering_message(steering_text: str, text: str) -> HumanMessage:
    """Make a steering message. Its id tells a run which ones it has read."""
    return HumanMessage(text, id=steering_text, additional_kwargs={STEERING_KEY: True})


def is_steering(message: AnyMessage) -> bool:
    return isinstance(message, HumanMessage) and STEERING_KEY in message.additional_kwargs


@dataclass
class ConversationIndex:
    """What is looked up in a conversation again and again."""

    run_start: int = -1
    message_ids: set[str | None] = field(default_factory=set[str | None])
    call_ids: set[str | None] = field(default_factory=set[str | None])
    calls: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often each (tool, canonical arguments) was called since the newest user message."""


_indexes = ConversationReader[ConversationIndex]()


def conversation_index(messages: Sequence[AnyMessage]) -> ConversationIndex:
    """Return the index of a conversation. Callers must not change it."""
    index, start = _indexes.advance(messages, ConversationIndex)
    for position, message in enumerate(messages[start:], start):
        index.message_ids.add(message.id)
        if isinstance(message, HumanMessage) and not is_steering(message):
            index.run_start = position
            index.calls.clear()
        elif message.type == "ai":
            made = (*message.tool_calls, *message.invalid_tool_calls)
            index.call_ids.update(call["id"] for call in made)
            index.calls.update(canonical_calls(message))
    return index


M = TypeVar("M", bound=BaseMessage)
ENVIRONMENT_KEY = "openmanus_environment"
ATTACHED = "Files in the workspace: "
"""Begins the last paragraph of a message that came with files."""
LISTING = "listing"


class Environment(TypedDict):
    facts: dict[str, str]
    """Texts by name. A later message has only changed ones."""
    heads: list[str]
    """Names of the files whose content the listing shows."""


def environment_of(messages: Sequence[BaseMessage]) -> Environment:
    """Return all that the user messages tell. Of texts with the same name, the last counts."""
    merged = Environment(facts={}, heads=[])
    for message in messages:
        if (reported := message.additional_kwargs.get(ENVIRONMENT_KEY)) is not None:
            own = cast("Environment", reported)  # made by `with_environment`
            merged["facts"] |= own["facts"]
            merged["heads"] = own["heads"] if LISTING in own["facts"] else merged["heads"]
    return merged


def listed_heads(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the names of the files whose content the conversation's listing shows."""
    return environment_of(messages)["heads"]


def with_environment(
    messages: Sequence[AnyMessage], facts: Mapping[str, str], heads: Sequence[str] = ()
) -> list[AnyMessage] | None:
    """Return the conversation with new facts in its newest user message; None if it has them.

    What earlier messages tell is not repeated. `facts` has the current texts by name. `heads` names
    the files whose content the listing in `facts` shows.
    """
    user = last_user_message(messages)
    if user is None:
        return None
    known = environment_of([one for one in messages if isinstance(one, HumanMessage)])["facts"]
    new = {name: text for name, text in facts.items() if text and known.get(name) != text}
    if not new and ENVIRONMENT_KEY in user.additional_kwargs:
        return None
    own = environment_of([user])
    shown = list(heads) if LISTING in new else own["heads"]
    reported = Environment(facts={**own["facts"], **new}, heads=shown)
    extra = {**user.additional_kwargs, ENVIRONMENT_KEY: reported}
    changed = user.model_copy(update={"additional_kwargs": extra})
    return [changed if one is user else one for one in messages]


def shown_environment(message: M) -> M:
    """Return a message as requests show it: its facts come before its text."""
    if ENVIRONMENT_KEY not in message.additional_kwargs:
        return message
    facts = "\n".join(environment_of([message])["facts"].values())
    text = f"{render('about_run', facts=facts)}\n{message.text}" if facts else message.text
    extra: dict[str, Any] = {**message.additional_kwargs}
    del extra[ENVIRONMENT_KEY]
    changed = {"content": with_text(message, text), "additional_kwargs": extra}
    return message.model_copy(update=changed)


_MOST_INNER_CHARS = 20_000


def inner_call(call: PendingCall, result: ToolMessage, *, keeps_text: bool) -> dict[str, Any]:
    """Return the record of a call that a program made, for the artifact of the program's result."""
    noted: dict[str, Any] = result.artifact or {}
    text = result.text if "private" in noted else result.text[:_MOST_INNER_CHARS]
    return {
        "id": call["id"],
        "name": call["name"],
        "args": call["args"],
        "text": text if keeps_text else "",
        "status": result.status,
        "artifact": {key: one for key, one in noted.items() if key not in ("usage", "structured")},
    }


def inner_messages(calls: Sequence[Mapping[str, Any]]) -> list[AnyMessage]:
    """Return recorded calls as messages: each in a reply, with its result."""
    messages: list[AnyMessage] = []
    for one in calls:
        made = ToolCall(name=one["name"], args=one["args"], id=one["id"], type="tool_call")
        told = {"tool_call_id": one["id"], "name": one["name"], "status": one["status"]}
        messages += [
            AIMessage("", tool_calls=[made]),
            ToolMessage(one["text"], artifact=one["artifact"], **told),
        ]
    return messages


_inner_messages = MessageCache[list[AnyMessage]]()


def with_inner(message: AnyMessage) -> list[AnyMessage]:
    """Return a message after the calls that its program made."""
    noted: Any = message.artifact if isinstance(message, ToolMessage) else None
    if not noted or "inner" not in noted:
        return [message]
    inner = _inner_messages.get(message, lambda _: inner_messages(noted["inner"]))
    return [*inner, message]
