"""Reads the conversation: pure functions of `messages`, with caches that are dropped with them."""

import json
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
)

from openmanus_graph.state.manus import PendingCall

M = TypeVar("M", bound=BaseMessage)
T = TypeVar("T")

_SAME_CHARS = 12
"""So many characters are not the same by chance, where a text goes on."""
_MOST_REPEATED_CHARS = 400
NEWEST = 8
"""Messages at the end that are looked up one by one."""


def is_unchanged(known: list[M], messages: Sequence[BaseMessage], start: int = 0) -> bool:
    """Say whether a conversation still has the known messages, from a position on.

    Compared as lists, which looks at identity first: conversations have thousands of messages.
    """
    return known == [*messages[start : start + len(known)]]


class ConversationCache(Generic[T]):
    """Caches a value per message, for conversations that come again with messages appended.

    The known prefix is compared as a whole, which takes a tenth of the time of single lookups.
    """

    def __init__(self) -> None:
        self._single: MessageCache[T] = MessageCache()
        self._prefixes: MessageCache[_Prefix[T]] = MessageCache()

    def get(self, messages: Sequence[BaseMessage], make: Callable[[BaseMessage], T]) -> list[T]:
        """Return the values of the messages, computed by `make` where they are new."""
        if not messages:
            return []
        first = self._single.get(messages[0], make)
        known = self._prefixes.get(messages[0], lambda _: _Prefix())
        if not is_unchanged(known.messages, messages, start=1):
            known.messages.clear()
            known.made.clear()
        start = 1 + len(known.messages)
        made = [*known.made, *(self._single.get(message, make) for message in messages[start:])]
        # The newest messages may be replaced next time.
        keep = max(start, len(messages) - NEWEST)
        known.messages += messages[start:keep]
        known.made += made[start - 1 : keep - 1]
        return [first, *made]


@dataclass
class _Prefix(Generic[T]):
    messages: list[BaseMessage] = field(default_factory=list[BaseMessage])
    """Without the first: the entry is dropped when that is garbage collected."""
    made: list[T] = field(default_factory=list[T])


class MessageCache(Generic[T]):
    """Caches one value per message, by identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[BaseMessage], object, object, T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, message: M, make: Callable[[M], T]) -> T:
        """Return the value of a message, computed if the message is new or was changed.

        A reassigned field is noticed; a list changed in place is not, and no code does that.
        """
        key = id(message)
        fields = message.__dict__  # thousands of messages pass here; attributes are slower
        content, calls = fields["content"], fields.get("tool_calls")
        known = self._known.get(key)
        if (
            known is not None
            and known[0]() is message
            and known[1] is content
            and known[2] is calls
        ):
            return known[3]
        entries = self._known

        def forget(dead: "weakref.ref[BaseMessage]") -> None:
            # The id may already belong to another message.
            if (entry := entries.get(key)) is not None and entry[0] is dead:
                del entries[key]

        made = make(message)
        entries[key] = (weakref.ref(message, forget), content, calls, made)
        return made


class ReadPrefix:
    """How much of a conversation an index has read: it grows at its end, and seldom changes."""

    def __init__(self) -> None:
        self._after_first: list[BaseMessage] = []
        """All but the first message: an index is dropped when that is garbage collected."""
        self._length = 0

    def advance(self, messages: Sequence[BaseMessage], *, anew: bool = False) -> int:
        """Note messages as read, and return the position of the first that was not.

        Args:
            messages: The conversation.
            anew: Whether to read all of it again.

        Returns:
            0 where everything is to be read, because earlier messages have changed, say.
        """
        if anew or not is_unchanged(self._after_first, messages, start=1):
            self._after_first.clear()
            self._length = 0
        start, self._length = self._length, len(messages)
        self._after_first += messages[max(1, start) :]
        return start


FINISH_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""Under which providers report why a reply ended."""
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
"""Finish reasons that say so, in small letters."""
ORIGIN_KEY = "openmanus_origin"
"""Key of the `Origin` in a message that a flow wrote."""
STEP_KEY = "openmanus_step"
"""Key of the step's own text in a message that a flow wrote for it."""
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
"""Key in the message of a steering message."""
SUMMARY_KEY = "openmanus_closing"
"""Key in the reply of a final summary, which a limit ended the run with."""
FENCE_KEY = "openmanus_fence"
"""Key in a reply whose call was made of the code that it showed."""
UNREAD_CALL_KEY = "openmanus_unread_call"
"""Key in a reply whose text seems to make a call in a form that is not read."""
COMPACT_KEY = "openmanus_compact"
"""Key in a user message that asks for notes to be made of the conversation before it."""
TASK_KEY, NOTES_KEY = "openmanus_task", "openmanus_notes"
"""Keys of the user's task and the notes, in the first message of a compacted conversation."""
VERIFIED_KEY = "openmanus_verified"
"""Key of what a compacted conversation had verified, in its first message."""
_INVALID_CALLS_KEY = "broken_calls_at"
"""Key of the positions of a reply's invalid calls among all its calls."""
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


@dataclass(frozen=True)
class RequestedCall:
    """A tool call as the model requested it."""

    id: str
    name: str
    args: dict[str, Any]
    broken: InvalidToolCall | None = None
    """The invalid call, where its arguments could not be parsed."""


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
    """Say whether the current user message has content: text, a picture or a file."""
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
    """Say whether one of the last messages calls a tool, or is its result."""
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
    """Return the results of the model's newest message."""
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        results.append(message)
    return results[::-1]


def task_text_of(message: HumanMessage) -> str:
    """Return what the user said in a message, without the notes of a compaction."""
    return str(message.additional_kwargs.get(TASK_KEY) or message.text)


def with_text(message: BaseMessage, text: str) -> str | list[str | dict[str, Any]]:
    """Return a message's content with another text, where its first text stood; the rest stays."""
    if isinstance(message.content, str):
        return text
    blocks = [one if isinstance(one, dict) else {"type": "text"} for one in message.content]
    kinds = [block.get("type") for block in blocks]
    first = kinds.index("text") if "text" in kinds else len(kinds)
    others = [block for block in blocks if block.get("type") != "text"]
    said: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return [*others[:first], *said, *others[first:]]


def last_text(messages: Sequence[AnyMessage]) -> str:
    """Return the newest text of the model in the current run, empty if there is none.

    Pieces of one text that the length limit cut are joined.
    """
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
    """Join a text that was cut and the next, which may begin anew or repeat the end of it."""
    beginning = cut.strip()[:_SAME_CHARS]
    if len(beginning) == _SAME_CHARS and following.lstrip().startswith(beginning):
        return following
    most = min(len(cut), len(following), _MOST_REPEATED_CHARS)
    for length in range(most, _SAME_CHARS - 1, -1):
        if cut.endswith(following[:length]):
            return cut + following[length:]
    return cut + following


def cut_by(reply: AIMessage) -> str | None:
    """Say in any provider's words what cut a reply off before its end, if anything did."""
    metadata: dict[str, Any] = reply.response_metadata
    wrapped: dict[str, Any] = metadata.get("incomplete_details") or {}  # OpenAI's Responses API
    reasons = {str(metadata.get(key)).lower() for key in FINISH_KEYS} | {wrapped.get("reason")}
    return next((words for reason, words in _CUT_BY.items() if reason in reasons), None)


def is_cut_text(reply: AIMessage) -> bool:
    """Say whether a reply is a text that its length limit cut: the next reply goes on with it."""
    if SUMMARY_KEY in reply.additional_kwargs or reply.tool_calls or reply.invalid_tool_calls:
        return False
    return cut_by(reply) == LENGTH_LIMIT


def calls_in_order(reply: AIMessage) -> list[RequestedCall]:
    """Return all calls of a reply in the model's order, invalid ones included.

    LangChain stores valid and invalid calls apart; `with_invalid_call_positions` stores where the
    latter were.
    """
    calls = [
        RequestedCall(call["id"] or "", call["name"], call["args"]) for call in reply.tool_calls
    ]
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
    """Return the calls of the model's newest message that have no result yet, in call order.

    Invalid calls are included, with their problem.
    """
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


def has_pending_calls(messages: Sequence[AnyMessage]) -> bool:
    """Say whether `pending_calls` finds any: an invalid call or one without a result."""
    reply = last_reply(messages)
    if reply is None:
        return False
    answered = {m.tool_call_id for m in last_results(messages)}
    made = (*reply.tool_calls, *reply.invalid_tool_calls)
    return any((call["id"] or "") not in answered for call in made)


def canonical_args(args: Mapping[str, Any]) -> str:
    """Serialise arguments so that equal arguments give equal text."""
    return _ENCODER.encode(args)


_canonical_calls = MessageCache[list[tuple[str, str]]]()


def canonical_calls(reply: AIMessage) -> Sequence[tuple[str, str]]:
    """Return tool and canonical arguments of each call of a reply that can be read."""
    return _canonical_calls.get(
        reply,
        lambda made: [(call["name"], canonical_args(call["args"])) for call in made.tool_calls],
    )


def steering_message(steering_text: str, text: str) -> HumanMessage:
    """Make a steering message. Its id tells a run what it has read."""
    return HumanMessage(text, id=steering_text, additional_kwargs={STEERING_KEY: True})


def is_steering(message: AnyMessage) -> bool:
    """Say whether a message is a steering message."""
    return isinstance(message, HumanMessage) and STEERING_KEY in message.additional_kwargs


class ConversationIndex:
    """The index of one conversation; see `conversation_index`."""

    def __init__(self) -> None:
        self._read = ReadPrefix()
        self._reset()

    def _reset(self) -> None:
        self.run_start = -1
        """Position of the newest user message; -1 without one."""
        self.message_ids: set[str | None] = set()
        self.call_ids: set[str | None] = set()
        """Ids of all calls, invalid ones included."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """How often each (tool, canonical arguments) was called since the newest user message."""

    def extend_to(self, messages: Sequence[AnyMessage]) -> None:
        """Add the new messages; rebuild if the known ones are not an unchanged prefix."""
        start = self._read.advance(messages)
        if start == 0:
            self._reset()
        for position, message in enumerate(messages[start:], start):
            self.message_ids.add(message.id)
            if isinstance(message, HumanMessage) and not is_steering(message):
                self.run_start = position
                self.calls.clear()
            elif message.type == "ai":
                made = (*message.tool_calls, *message.invalid_tool_calls)
                self.call_ids.update(call["id"] for call in made)
                self.calls.update(canonical_calls(message))


_indexes = MessageCache[ConversationIndex]()


def conversation_index(messages: Sequence[AnyMessage]) -> ConversationIndex:
    """Return the index of a conversation; callers must not change it."""
    if not messages:
        return ConversationIndex()
    index = _indexes.get(messages[0], lambda _: ConversationIndex())
    index.extend_to(messages)
    return index
