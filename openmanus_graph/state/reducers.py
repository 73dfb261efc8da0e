"""How updates of the state are merged, and the channel that `messages` is kept in."""

from collections.abc import Sequence
from typing import Annotated, Any, Self, cast

from langchain_core.messages import AnyMessage, BaseMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import PendingWrite
from langgraph.checkpoint.serde.types import (
    _DeltaSnapshot,  # pyright: ignore[reportPrivateUsage]
)
from langgraph.graph.message import _messages_delta_reducer  # pyright: ignore[reportPrivateUsage]
from typing_extensions import TypedDict, override

# Beta or private in LangGraph: imported here only.
__all__ = ["DeltaChannel", "DeltaSnapshot", "merge_messages"]

DeltaSnapshot: type[Any] = _DeltaSnapshot
"""What an incremental channel stores now and then: its whole value."""
merge_messages: Any = cast("Any", _messages_delta_reducer)  # typed otherwise than the channel asks


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


# Incremental: a checkpoint stores the new messages only, so storage grows linearly with the
# steps (`add_messages` grows with their square).
Messages = Annotated[list[AnyMessage], Conversation(merge_messages, snapshot_frequency=2500)]


class Usage(TypedDict):
    """What model calls cost. Tokens are counts, `cached_tokens` is a part of `input_tokens`."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    model_calls: int
    cost_usd: float


def no_usage() -> Usage:
    """Return the usage of nothing."""
    return Usage(input_tokens=0, cached_tokens=0, output_tokens=0, model_calls=0, cost_usd=0.0)


def add_usage(left: Usage, right: Usage) -> Usage:
    """Add two usages; sub-agents report theirs the same way."""
    return Usage(
        input_tokens=left["input_tokens"] + right["input_tokens"],
        cached_tokens=left["cached_tokens"] + right["cached_tokens"],
        output_tokens=left["output_tokens"] + right["output_tokens"],
        model_calls=left["model_calls"] + right["model_calls"],
        cost_usd=left["cost_usd"] + right["cost_usd"],
    )


def merge_usage(left: Usage | None, right: Usage | None) -> Usage:
    """Reducer of `usage`: a missing side counts as nothing."""
    return add_usage(left or no_usage(), right or no_usage())


def newest(left: str, right: str) -> str:
    """Reducer of `branch`: parallel calls name the same one."""
    return right


def furthest(left: float, right: float) -> float:
    """Reducer of `elapsed_s`: parallel calls count once, by the slowest of them."""
    return max(left, right)


def union(left: list[str], right: list[str]) -> list[str]:
    """Reducer of lists that parallel calls add to: each entry once, in order."""
    return list(dict.fromkeys([*left, *right]))


class HandleState(TypedDict):
    """What one live handle (kernel, shell, browser) holds beside the files."""

    what: str
    """Description of what it holds; empty when nothing would be lost with it."""
    at: int
    """Counts the observations of the handle: the highest is the newest."""


HandleStates = dict[str, HandleState]
"""By the handle's identity: its name and, after a colon, what no other handle has."""


def merge_handle_states(left: HandleStates, right: HandleStates) -> HandleStates:
    """Reducer of `handle_state`: of what parallel calls saw of one handle, the newest counts."""
    newer = {
        identity: handle_state
        for identity, handle_state in right.items()
        if identity not in left or left[identity]["at"] <= handle_state["at"]
    }
    return {**left, **newer}
