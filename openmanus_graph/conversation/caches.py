"""Caches for conversations that grow at their end. They are dropped with the messages."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from langchain_core.messages import BaseMessage

M = TypeVar("M", bound=BaseMessage)
T = TypeVar("T")
NEWEST = 8
"""Messages at the end that are looked up one by one, because they may be replaced."""


def is_unchanged(known: list[M], messages: Sequence[BaseMessage], start: int = 0) -> bool:
    """Return True if a conversation still has the known messages from a position on.

    Lists are compared because that checks identity first. Conversations have thousands of messages.
    """
    return known == [*messages[start : start + len(known)]]


class MessageCache(Generic[T]):
    """Caches one value per message, by identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[BaseMessage], object, object, T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, message: M, make: Callable[[M], T]) -> T:
        """Return the value of a message, computed if the message is new or was changed.

        A reassigned field is noticed. A list changed in place is not, and no code does that.
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


# What is kept for a conversation holds all messages but the first: the entry is dropped when the
# first message is garbage collected.


@dataclass
class _Known(Generic[T]):
    value: T
    key: object
    rest: list[BaseMessage] = field(default_factory=list[BaseMessage])
    length: int = 0


class ConversationReader(Generic[T]):
    """Keeps a value per conversation, to which the caller adds each message once."""

    def __init__(self) -> None:
        self._known: MessageCache[_Known[T]] = MessageCache()

    def advance(
        self, messages: Sequence[BaseMessage], make: Callable[[], T], key: object = None
    ) -> tuple[T, int]:
        """Return the value so far, and the position of the first message to add to it.

        If earlier messages or the key have changed, the value is a new one and the position is 0.
        """
        if not messages:
            return make(), 0
        known = self._known.get(messages[0], lambda _: _Known(make(), key))
        if known.key != key or not is_unchanged(known.rest, messages, start=1):
            known.value, known.key, known.length = make(), key, 0
            known.rest.clear()
        start, known.length = known.length, len(messages)
        known.rest += messages[max(1, start) :]
        return known.value, start


@dataclass
class _Prefix(Generic[T]):
    messages: list[BaseMessage] = field(default_factory=list[BaseMessage])
    made: list[T] = field(default_factory=list[T])


class ConversationCache(Generic[T]):
    """Caches a value per message for conversations that come again with messages appended.

    The known prefix is compared as a whole, which takes a tenth of the time of single lookups.
    """

    def __init__(self) -> None:
        self._single: MessageCache[T] = MessageCache()
        self._prefixes: MessageCache[_Prefix[T]] = MessageCache()

    def get(self, messages: Sequence[BaseMessage], make: Callable[[BaseMessage], T]) -> list[T]:
        """Return the values of the messages. `make` computes those of new messages."""
        if not messages:
            return []
        first = self._single.get(messages[0], make)
        known = self._prefixes.get(messages[0], lambda _: _Prefix())
        if not is_unchanged(known.messages, messages, start=1):
            known.messages.clear()
            known.made.clear()
        start = 1 + len(known.messages)
        made = [*known.made, *(self._single.get(message, make) for message in messages[start:])]
        keep = max(start, len(messages) - NEWEST)
        known.messages += messages[start:keep]
        known.made += made[start - 1 : keep - 1]
        return [first, *made]
