"""Caches of values computed from messages, dropped with the messages."""

import operator
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from langchain_core.messages import BaseMessage

M = TypeVar("M", bound=BaseMessage)
T = TypeVar("T")

NEWEST = 8
"""Messages at the end that are looked up one by one."""


def is_unchanged(
    known: Sequence[BaseMessage], messages: Sequence[BaseMessage], start: int = 0
) -> bool:
    """Say whether a conversation still has the known messages, from a position on.

    Compared by identity and as a whole: conversations have thousands of messages.
    """
    return start + len(known) <= len(messages) and all(
        map(operator.is_, known, islice(messages, start, None))
    )


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
