"""Detects an agent that repeats itself without progress. Pure.

It compares the run's steps as (tool, normalised arguments, result) triples. A step with a new
triple is progress: repeats whose results keep changing (polling a job, paging a list) never count
as stuck. Compaction removes messages, so it keeps the fingerprints of their steps.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from typing_extensions import TypedDict

from openmanus_graph.conversation.history import MessageCache, ReadPrefix, canonical_calls

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
    """The agent steps of a conversation before it was compacted."""

    steps: list[list[str]]
    """As `recent_steps` returned them."""
    messages: int
    """How many of the messages that follow belong to these steps."""


@dataclass(frozen=True)
class StuckLevel:
    """How stuck the agent is."""

    level: Level
    repeats: int
    """How often the same steps were seen in a row."""
    period: int
    """Steps of the cycle; 0 if there is no fixed cycle, but nothing new."""


def detect_stuck(messages: Sequence[AnyMessage]) -> StuckLevel:
    """Return how stuck the current run is."""
    steps = recent_steps(messages)
    period, repeats = max(
        ((period, _repeats(steps, period)) for period in range(1, MAX_PERIOD + 1)),
        key=lambda pair: (pair[1], -pair[0]),
    )
    stale = _nothing_new(steps)
    if stale > repeats:
        period, repeats = 0, stale
    return StuckLevel(_level(repeats), repeats, period)


def recent_steps(messages: Sequence[AnyMessage]) -> list[AgentStep]:
    """Return the fingerprints of the run's last agent steps, oldest first.

    Steps before a steering message do not count: it changes the situation.
    """
    if not messages:
        return []
    found = _conversations.get(messages[0], lambda _: _RecentSteps())
    found.extend_to(messages)
    return [*found.steps]


class _RecentSteps:
    """The last agent steps of a conversation, read as it grows."""

    def __init__(self) -> None:
        self._read = ReadPrefix()
        self._newest: list[tuple[str | None, str]] = []
        """Fingerprints of the last step, with the id of the call as long as that has no result."""
        self._kept = 0
        """How many of the next messages belong to steps that compaction kept."""
        self.steps: list[AgentStep] = []

    def extend_to(self, messages: Sequence[AnyMessage]) -> None:
        """Read the new messages; all of them if the known ones have changed."""
        start = self._read.advance(messages)
        if start == 0:
            self.steps.clear()
            self._kept = 0
        for message in messages[start:]:
            if kept := message.additional_kwargs.get(KEPT_STEPS_KEY):
                self._begin_with(cast("KeptSteps", kept))  # made by a compaction
            elif self._kept:
                self._kept -= 1
            else:
                self._add(message)
        del self.steps[:-WINDOW]

    def _begin_with(self, kept: KeptSteps) -> None:
        self.steps[:] = map(tuple, kept["steps"])
        self._kept = kept["messages"]

    def _add(self, message: AnyMessage) -> None:
        if isinstance(message, AIMessage):
            self._newest = _of_reply(message)
            self.steps.append(())
        elif not isinstance(message, ToolMessage):
            self.steps.clear()
        elif self.steps:
            self._newest = _with_result(self._newest, message)
        if self.steps:
            self.steps[-1] = tuple(sorted(one for _, one in self._newest))


_conversations = MessageCache[_RecentSteps]()


def _level(repeats: int) -> Level:
    if repeats >= STOP_AT:
        return "stop"
    if repeats >= CHANGE_AT:
        return "change"
    return "hint" if repeats >= HINT_AT else "ok"


def _repeats(steps: Sequence[AgentStep], period: int) -> int:
    """Count how often the last `period` steps are repeated at the end."""
    block = steps[-period:]
    if len(block) < period:
        return 0
    count, end = 1, len(steps) - period
    while end >= period and steps[end - period : end] == block:
        count, end = count + 1, end - period
    return count


def _nothing_new(steps: Sequence[AgentStep]) -> int:
    """Count how often the steps at the end repeated earlier ones, in any order.

    A cycle in order gives the same figure as `_repeats`.
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
    """Return the fingerprint of each call, with its id; else that of the text."""
    ids = [call["id"] or "" for call in reply.tool_calls]
    calls = [_fingerprint(name, _normalised(args)) for name, args in canonical_calls(reply)]
    # Unreadable calls of a tool count as equal, however they are malformed.
    broken = [_fingerprint(call["name"] or "", "unreadable") for call in reply.invalid_tool_calls]
    found: list[tuple[str | None, str]] = [*zip(ids, calls, strict=True)]
    found += [(None, one) for one in broken]
    return found or [(None, _fingerprint("text", _normalised(reply.text)))]


def _with_result(
    step: list[tuple[str | None, str]], result: ToolMessage
) -> list[tuple[str | None, str]]:
    return [
        (None, one + _fingerprint(result.text)) if call == result.tool_call_id else (call, one)
        for call, one in step
    ]


def _normalised(text: str) -> str:
    return " ".join(text.split())


def _fingerprint(*parts: str) -> str:
    digest = hashlib.sha1("\0".join(parts).encode("utf-8", "replace")).hexdigest()
    return digest[:16]  # short: compaction keeps them in a message
