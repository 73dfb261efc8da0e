"""Detects an agent that repeats itself without progress. Pure.

It compares the run's steps as (tool, normalised arguments, result) triples. A step with a new
triple is progress: repeats whose results keep changing (polling a job, paging a list) never count
as stuck.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.conversation.history import MessageCache, canonical_args, newest_first

MAX_PERIOD = 6
HINT_AT, CHANGE_AT, STOP_AT = 3, 5, 8
WINDOW = MAX_PERIOD * STOP_AT
"""Number of agent steps to look at: the longest cycle, repeated until it is stopped."""

# Cached, because each step compares the earlier ones again.
_calls = MessageCache[list[str]]()
_outcomes = MessageCache[str]()

Level = Literal["ok", "hint", "change", "stop"]
AgentStep = tuple[str, ...]
"""Fingerprints of the triples of one model reply, or of its text if it has no calls."""


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

    Steps before an interjection do not count: it changes the situation.
    """
    steps: list[AgentStep] = []
    results: dict[str, ToolMessage] = {}
    for message in newest_first(messages):
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message
        elif isinstance(message, AIMessage):
            steps.append(_step(message, results))
            results = {}
            if len(steps) == WINDOW:
                break
        else:
            break
    return steps[::-1]


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


def _step(reply: AIMessage, results: dict[str, ToolMessage]) -> AgentStep:
    calls_with_results = [
        (fingerprint, results.get(call["id"] or ""))
        for call, fingerprint in zip(
            reply.tool_calls, _calls.get(reply, _fingerprints), strict=True
        )
    ]
    outcomes = [
        fingerprint
        + (_outcomes.get(result, lambda result: _fingerprint(result.text)) if result else "")
        for fingerprint, result in calls_with_results
    ]
    # Unreadable calls of a tool count as equal, however they are malformed.
    outcomes += [
        _fingerprint(call["name"] or "", "unreadable") for call in reply.invalid_tool_calls
    ]
    return tuple(sorted(outcomes)) or (_fingerprint("text", _normalised(reply.text)),)


def _fingerprints(reply: AIMessage) -> list[str]:
    return [
        _fingerprint(call["name"], _normalised(canonical_args(call["args"])))
        for call in reply.tool_calls
    ]


def _normalised(text: str) -> str:
    return " ".join(text.split())


def _fingerprint(*parts: str) -> str:
    return hashlib.sha1("\0".join(parts).encode("utf-8", "replace")).hexdigest()
