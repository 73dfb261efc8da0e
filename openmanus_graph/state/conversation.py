"""The channel that `messages` is kept in."""

from collections.abc import Sequence
from typing import Any, Self

from langchain_core.messages import AnyMessage, BaseMessage
from langgraph.checkpoint.base import PendingWrite
from typing_extensions import override

from openmanus_graph.state.delta import DeltaChannel


class Conversation(DeltaChannel[list[AnyMessage]]):
    """LangGraph's incremental channel, quicker where messages are only added.

    That is nearly always so, and LangGraph's reducer makes an index of the whole conversation
    each time.
    """

    _ids: set[str | None] | None = None
    """Of the messages in the channel, where they are known."""

    @override
    def copy(self) -> Self:
        new = super().copy()
        new._ids = None if self._ids is None else set(self._ids)
        return new

    @override
    def update(self, values: Sequence[Any]) -> bool:
        new = _plain_messages(values)
        if new is None or not self.is_available():
            return self._update_slowly(values)
        if self._ids is None:
            self._ids = {message.id for message in self.value}
        added = {message.id for message in new}
        if len(added) < len(new) or not added.isdisjoint(self._ids):
            return self._update_slowly(values)
        self._ids |= added
        self.value = [*self.value, *new]
        return bool(values)

    @override
    def replay_writes(self, writes: Sequence[PendingWrite]) -> None:
        self._ids = None
        super().replay_writes(writes)

    def _update_slowly(self, values: Sequence[Any]) -> bool:
        self._ids = None
        return super().update(values)


def _plain_messages(values: Sequence[Any]) -> list[AnyMessage] | None:
    """Return the messages of updates that only bring messages; None for others."""
    new: list[Any] = []
    for value in values:
        if not isinstance(value, list):
            return None
        new += value
    if all(isinstance(item, BaseMessage) and item.id and item.type != "remove" for item in new):
        return new
    return None
