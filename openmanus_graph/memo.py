"""What was made of messages, kept for as long as they live: a conversation only grows."""

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
"""Messages at the end that are looked at one by one."""


class GrowingMemo(Generic[T]):
    """Remembers what was made of each message of conversations that are seen again, longer.

    Their beginning is recognised as a whole, which takes a tenth of looking at each message.
    """

    def __init__(self) -> None:
        self._single: MessageMemo[T] = MessageMemo()
        self._beginnings: MessageMemo[_Beginning[T]] = MessageMemo()

    def get(self, messages: Sequence[BaseMessage], make: Callable[[BaseMessage], T]) -> list[T]:
        """Return what is made of the messages, by `make` where they are new."""
        if not messages:
            return []
        first = self._single.get(messages[0], make)
        known = self._beginnings.get(messages[0], lambda _: _Beginning())
        if not known.begins(messages):
            known.clear()
        start = 1 + len(known.messages)
        made = [*known.made, *(self._single.get(message, make) for message in messages[start:])]
        # The newest turn may be told differently next time.
        keep = max(start, len(messages) - NEWEST)
        known.messages += messages[start:keep]
        known.made += made[start - 1 : keep - 1]
        return [first, *made]


@dataclass
class _Beginning(Generic[T]):
    messages: list[BaseMessage] = field(default_factory=list[BaseMessage])
    """Without the first, which must be free to go: all this lives as long as it."""
    made: list[T] = field(default_factory=list[T])

    def begins(self, messages: Sequence[BaseMessage]) -> bool:
        return len(self.messages) < len(messages) and all(
            map(operator.is_, self.messages, islice(messages, 1, None))
        )

    def clear(self) -> None:
        self.messages.clear()
        self.made.clear()


class MessageMemo(Generic[T]):
    """Remembers one value per message, by its identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[BaseMessage], object, object, T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, message: M, make: Callable[[M], T]) -> T:
        """Return what is made of a message, making it when it is new or was changed.

        A field that was assigned anew shows; a list changed in place does not, and nobody does.
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
