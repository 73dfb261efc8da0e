"""What is tried on a recorded run, and the first thing that comes out otherwise."""

import asyncio
import difflib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage

from openmanus_graph.backends.persistence.ledger import EffectKey, LedgerEntry
from openmanus_graph.runtime.replaying import KnownReply
from openmanus_graph.safety.untrusted_text import without_mark
from openmanus_graph.state.context import Policy


@dataclass(frozen=True)
class WhatIf:
    """What is tried. All else is answered by the record, as long as it is asked for the same."""

    asks_model: bool = False
    """The model is really asked: another one, or by another prompt."""
    policy_before: Policy | None = None
    """The policy is another one; this is the recorded run's."""
    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    """Functions that are really called in place of tools, by the tools' names."""
    repeats: frozenset[str] = frozenset()
    """Tools whose recorded calls are really made again, with their effects."""
    on_repeat: Callable[[str], None] = lambda _: None
    """Is told what each of these calls has done."""


@dataclass(frozen=True)
class Divergence:
    """The first thing that comes out otherwise, where a what-if replay stops."""

    position: int
    """Of the recorded model call before it in its thread, from 1."""
    step: int
    what: str
    """In a sentence."""
    recorded: str
    now: str
    run_path: str
    """Of the run inside the thread's; empty if it is the thread's own."""
    reply: KnownReply | None = None
    """The model's, if it is what is different."""
    answered: Sequence[tuple[EffectKey, LedgerEntry]] = ()
    """The calls of the same reply that the record had answered before."""
    earlier: Sequence[EffectKey] = ()
    """The calls of earlier replies."""

    def diff(self) -> str:
        """Return both as a unified diff."""
        before, now = self.recorded.splitlines(), self.now.splitlines()
        return "\n".join(difflib.unified_diff(before, now, "recorded", "now", lineterm=""))


def reply_text(reply: AIMessage) -> str:
    """Return what counts of a reply: its calls, or its text if it has none."""
    return "\n".join(_call_lines(reply)) if reply.tool_calls else reply.text


def _call_lines(reply: AIMessage) -> Iterator[str]:
    for call in reply.tool_calls:
        args = json.dumps(call["args"], ensure_ascii=False, sort_keys=True, indent=1)
        yield f"{call['name']} {args}"


async def tool_text(function: Callable[..., Any], args: Mapping[str, Any]) -> str:
    """Return what a function says to a call's arguments; of what it raises, the type and text."""
    try:
        if inspect.iscoroutinefunction(function):
            found = await function(**args)
        else:
            found = await asyncio.to_thread(function, **args)
    except Exception as error:  # noqa: BLE001  # whatever it raises is what comes out now
        return f"{type(error).__name__}: {error}"
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)


def outcome_text(outcome: Mapping[str, Any]) -> str:
    """Return what a recorded call said, without the marks around text from outside."""
    return without_mark(str(outcome.get("text", "")))
