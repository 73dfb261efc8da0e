"""The replay under way, if a run is one: it answers what would else reach models, tools and people.

Whoever would reach out asks `current_replay()` first. The record that it answers from is read by
`model_calls.replay`.
"""

import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from openmanus_graph.runtime.steering import SteeringStore
from openmanus_graph.state.context import Policy


class Replay(SteeringStore, Protocol):
    """Answers a run from the record of an earlier one."""

    policy_before: Policy | None
    """The recorded run's, where another one is tried."""

    async def answer(
        self,
        caller: str,
        request: Sequence[Mapping[str, Any]],
        folders: Mapping[str, str],
        ask: Callable[[], Awaitable[Any]],
    ) -> Any:
        """Return the reply to a model call, or raise ReplayEndedError."""
        ...

    def with_recorded_folders(self, text: str, folders: Mapping[str, str]) -> str:
        """Put the folders' recorded names into a JSON text in place of today's."""
        ...

    def live_handles(self) -> set[str]:
        """Return the identities of the handles that were open at the next model call."""
        ...

    def server_tools(self) -> dict[str, Any] | None:
        """Return the tools of MCP servers at the next model call; None: there were no servers."""
        ...

    def elapsed_s(self) -> float:
        """Return how long the run had taken when its next model call was made."""
        ...

    def profile(self, model: str) -> dict[str, Any] | None:
        """Return what is known of a model that is not asked now; None: it is another one."""
        ...

    def has_fact(self, name: str) -> bool:
        """Say whether the run had found that out."""
        ...

    def fact(self, name: str) -> Any:
        """Return what the run had found out about its environment, or raise ReplayEndedError."""
        ...

    def check_decision(self, call: str, recorded: str, now: str) -> None:
        """Raise ReplayEndedError if a policy decides otherwise on a call now."""
        ...

    def repeats(self, tool: str) -> bool:
        """Say whether recorded calls of a tool are really made again."""
        ...

    def refuse_repeat(self, call: str, why: str) -> None:
        """Raise ReplayEndedError for a call that may not be made again."""
        ...

    def record_repeat(self, call: str, recorded: str, now: str, *, failed: bool) -> None:
        """Take note of a call that was made again. ReplayEndedError: it failed."""
        ...

    async def outcome(self, effect: Any, call_id: str) -> Any:
        """Return the ledger's entry of a call, or raise ReplayEndedError."""
        ...


@dataclass(frozen=True)
class KnownReply:
    """A model's reply that a what-if replay has got already, for the run that goes on with it."""

    caller: str
    """Who had asked the model."""
    reply: Any
    """The message."""


class ReplayEndedError(Exception):
    """A replayed run asks for something that its record does not hold; says what."""


_replay: ContextVar[Replay | None] = ContextVar("openmanus_replay", default=None)

_known: ContextVar[list[KnownReply] | None] = ContextVar("openmanus_known_reply", default=None)
"""Shared by the tasks of a run: whoever takes the reply takes it out."""


def current_replay() -> Replay | None:
    """Return the replay that the running code belongs to."""
    return _replay.get()


@contextlib.contextmanager
def replaying(replay: Replay) -> Generator[None]:
    """Have the runs that begin meanwhile answered by a replay."""
    before = _replay.set(replay)
    try:
        yield
    finally:
        _replay.reset(before)


@contextlib.contextmanager
def knowing_reply(known: KnownReply | None) -> Generator[None]:
    """Have the next model call of the reply's caller answered by it; all others are really made."""
    before = _known.set([known] if known else None)
    try:
        yield
    finally:
        _known.reset(before)


def take_known_reply(caller: str) -> Any:
    """Return the reply that a caller's model call need not ask for; None if it has to."""
    known = _known.get()
    return known.pop().reply if known and known[0].caller == caller else None
