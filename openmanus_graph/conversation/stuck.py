"""Detects an agent that repeats itself without progress. Pure.

It compares the run's steps as (tool, normalised arguments, result) triples. A step with a new
triple is progress: repeats whose results keep changing (polling a job, paging a list) never count
as stuck. Compaction removes messages, so it keeps the fingerprints of their steps.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from typing_extensions import TypedDict

from openmanus_graph.conversation.caches import ConversationReader
from openmanus_graph.conversation.history import canonical_calls

MAX_PERIOD = 6
HINT_AT, CHANGE_AT, STOP_AT = 3, 5, 8
WINDOW = MAX_PERIOD * STOP_AT
"""Number of agent steps to look at: the longest cycle, repeated until it is stopped."""

Level = Literal["ok", "hint", "change", "stop"]
AgentStep = tuple[str, ...]
"""Fingerprints of the triples of one model reply, or of its text if it has no calls."""
KEPT_STEPS_KEY = "openmanus_steps"
"""Key of the `KeptSteps` in the first message of a compacted conversation."""


class KeptSteps(TypedDict):
    steps: list[list[str]]
    """As `recent_steps` returned them."""
    messages: int
    """How many of the messages that follow belong to these steps."""


@dataclass(frozen=True)
class StuckLevel:
    level: Level
    repeats: int


_LEVELS: Sequence[tuple[Level, int]] = (
    ("ok", 0), ("hint", HINT_AT), ("change", CHANGE_AT), ("stop", STOP_AT),
)  # fmt: skip


def detect_stuck(messages: Sequence[AnyMessage]) -> StuckLevel:
    steps = recent_steps(messages)
    in_order = (_repeats(steps, period) for period in range(1, MAX_PERIOD + 1))
    repeats = max(*in_order, _nothing_new(steps))
    reached: Sequence[Level] = [level for level, at in _LEVELS if repeats >= at]
    return StuckLevel(reached[-1], repeats)


def recent_steps(messages: Sequence[AnyMessage]) -> list[AgentStep]:
    """Return the fingerprints of the run's steps since a steering message, oldest first."""
    found, start = _conversations.advance(messages, _RecentSteps)
    for message in messages[start:]:
        if kept := message.additional_kwargs.get(KEPT_STEPS_KEY):
            known = cast("KeptSteps", kept)  # made by a compaction
            found.steps[:] = map(tuple, known["steps"])
            found.kept = known["messages"]
        elif found.kept:
            found.kept -= 1
        else:
            found.add(message)
    del found.steps[:-WINDOW]
    return [*found.steps]


@dataclass
class _RecentSteps:
    steps: list[AgentStep] = field(default_factory=list[AgentStep])
    newest: list[tuple[str | None, str]] = field(default_factory=list[tuple[str | None, str]])
    """Fingerprints of the last step. Each has the id of its call until that has a result."""
    kept: int = 0
    """How many of the next messages belong to steps that compaction kept."""

    def add(self, message: AnyMessage) -> None:
        if isinstance(message, AIMessage):
            self.newest = _of_reply(message)
            self.steps.append(())
        elif not isinstance(message, ToolMessage):
            self.steps.clear()
        elif self.steps:
            result = _fingerprint(message.text)
            self.newest = [
                (None, one + result) if call == message.tool_call_id else (call, one)
                for call, one in self.newest
            ]
        if self.steps:
            self.steps[-1] = tuple(sorted(one for _, one in self.newest))


_conversations = ConversationReader[_RecentSteps]()


def _repeats(steps: Sequence[AgentStep], period: int) -> int:
    block = steps[-period:]
    if len(block) < period:
        return 0
    count, end = 1, len(steps) - period
    while end >= period and steps[end - period : end] == block:
        count, end = count + 1, end - period
    return count


def _nothing_new(steps: Sequence[AgentStep]) -> int:
    """Count how often the steps at the end repeated earlier ones, in any order.

    A cycle in a fixed order gives the same number as `_repeats`.
    """
    first: dict[str, int] = {}
    for index, step in enumerate(steps):
        for fingerprint in step:
            first.setdefault(fingerprint, index)
    stale: list[AgentStep] = []
    for index in range(len(steps) - 1, -1, -1):
        if any(first[fingerprint] == index for fingerprint in steps[index]):
            break
        stale.append(steps[index])
    # A single repeated step counts by its repeats alone.
    return 1 + len(stale) // max(2, len(set(stale)))


def _of_reply(reply: AIMessage) -> list[tuple[str | None, str]]:
    """Return the fingerprint of each call with its id, or that of the text."""
    ids = [call["id"] or "" for call in reply.tool_calls]
    calls = [_fingerprint(name, _normalised(args)) for name, args in canonical_calls(reply)]
    # Unreadable calls of a tool count as equal, however they are malformed.
    broken = [_fingerprint(call["name"] or "", "unreadable") for call in reply.invalid_tool_calls]
    found: list[tuple[str | None, str]] = [*zip(ids, calls, strict=True)]
    found += [(None, one) for one in broken]
    return found or [(None, _fingerprint("text", _normalised(reply.text)))]


def _normalised(text: str) -> str:
    return " ".join(text.split())


def _fingerprint(*parts: str) -> str:
    digest = hashlib.sha1("\0".join(parts).encode("utf-8", "replace")).hexdigest()
    return digest[:16]  # short: compaction keeps them in a message
