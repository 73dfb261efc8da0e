"""What is looked up in a conversation at each step, kept up to date as it grows.

Looking through a thousand steps again and again is what makes a long run slow.
"""

import operator
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from langchain_core.messages import AnyMessage, HumanMessage

from openmanus_graph.canonical import canonical
from openmanus_graph.memo import MessageMemo
from openmanus_graph.remarks import is_remark


class Index:
    """The figures of one conversation; see `index_of`."""

    def __init__(self) -> None:
        self._after_first: list[AnyMessage] = []
        """All but the first message, which must be free to go: the index lives as long as it."""
        self._forget()

    def _forget(self) -> None:
        self._length = 0
        self.run_start = -1
        """Where the newest user message stands; -1 without one."""
        self.message_ids: set[str | None] = set()
        self.call_ids: set[str | None] = set()
        """Of all calls, those that could not be run included."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """How often each (tool, canonical arguments) was called since the newest user message."""

    def learn(self, messages: Sequence[AnyMessage]) -> None:
        """Take in what is new; begin again if the conversation is not merely longer."""
        known = self._after_first
        if self._length > len(messages) or not all(
            map(operator.is_, known, islice(messages, 1, None))
        ):
            known.clear()
            self._forget()
        for position in range(self._length, len(messages)):
            self._add(position, messages[position])
        known.extend(messages[max(1, self._length) :])
        self._length = len(messages)

    def _add(self, position: int, message: AnyMessage) -> None:
        self.message_ids.add(message.id)
        if isinstance(message, HumanMessage) and not is_remark(message):
            self.run_start = position
            self.calls.clear()
        elif message.type == "ai":
            made = message.tool_calls
            self.call_ids.update(call["id"] for call in (*made, *message.invalid_tool_calls))
            self.calls.update((call["name"], canonical(call["args"])) for call in made)


_indexes = MessageMemo[Index]()


def index_of(messages: Sequence[AnyMessage]) -> Index:
    """Return the index of a conversation, which is not to be changed."""
    if not messages:
        return Index()
    index = _indexes.get(messages[0], lambda _: Index())
    index.learn(messages)
    return index
