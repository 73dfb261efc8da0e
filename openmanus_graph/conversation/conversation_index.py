"""An index of a conversation, updated as it grows.

Scanning a thousand messages at each step would make a long run slow.
"""

import operator
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from langchain_core.messages import AnyMessage, HumanMessage

from openmanus_graph.conversation.canonical_args import canonical_args
from openmanus_graph.conversation.interjections import is_interjection
from openmanus_graph.conversation.message_cache import MessageCache


class ConversationIndex:
    """The index of one conversation; see `conversation_index`."""

    def __init__(self) -> None:
        self._after_first: list[AnyMessage] = []
        """All but the first message: the index is dropped when that is garbage collected."""
        self._reset()

    def _reset(self) -> None:
        self._length = 0
        self.run_start = -1
        """Position of the newest user message; -1 without one."""
        self.message_ids: set[str | None] = set()
        self.call_ids: set[str | None] = set()
        """Ids of all calls, invalid ones included."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """How often each (tool, canonical arguments) was called since the newest user message."""

    def extend_to(self, messages: Sequence[AnyMessage]) -> None:
        """Add the new messages; rebuild if the known ones are not an unchanged prefix."""
        known = self._after_first
        if self._length > len(messages) or not all(
            map(operator.is_, known, islice(messages, 1, None))
        ):
            known.clear()
            self._reset()
        for position in range(self._length, len(messages)):
            self._add(position, messages[position])
        known.extend(messages[max(1, self._length) :])
        self._length = len(messages)

    def _add(self, position: int, message: AnyMessage) -> None:
        self.message_ids.add(message.id)
        if isinstance(message, HumanMessage) and not is_interjection(message):
            self.run_start = position
            self.calls.clear()
        elif message.type == "ai":
            made = message.tool_calls
            self.call_ids.update(call["id"] for call in (*made, *message.invalid_tool_calls))
            self.calls.update((call["name"], canonical_args(call["args"])) for call in made)


_indexes = MessageCache[ConversationIndex]()


def conversation_index(messages: Sequence[AnyMessage]) -> ConversationIndex:
    """Return the index of a conversation; callers must not change it."""
    if not messages:
        return ConversationIndex()
    index = _indexes.get(messages[0], lambda _: ConversationIndex())
    index.extend_to(messages)
    return index
