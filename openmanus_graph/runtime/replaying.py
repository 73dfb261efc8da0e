"""The replay under way, if a run is one: it answers what would else reach models, tools and people.

Whoever would reach out asks `current_replay()` first. The record that it answers from is read by
`model_calls.replay`.
"""

import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from openmanus_graph.runtime.interjections import InterjectionStore
from openmanus_graph.state.context import Policy


class Replay(InterjectionStore, Protocol):
    """Answers a run from the record of an earlier one."""

    policy_before: Policy | None
    """The recorded run's, where another one is tried."""

    async def answer(
        self,
        lane: str,
        request: Sequence[Mapping[str, Any]],
        places: Mapping[str, str],
        ask: Callable[[], Awaitable[Any]],
    ) -> Any:
        """Return the reply to a model call, or raise ReplayEndedError."""
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
        """Return what the run had found out about its surroundings, or raise ReplayEndedError."""
        ...

    def check_decision(self, call: str, recorded: str, now: str) -> None:
        """Raise ReplayEndedError if a policy decides otherwise on a call now."""
        ...

    async def outcome(self, effect: Any, call_id: str) -> Any:
        """Return the ledger's entry of a call, or raise ReplayEndedError."""
        ...


class ReplayEndedError(Exception):
    """A replayed run asks for something that its record does not hold; says what."""


_replay: ContextVar[Replay | None] = ContextVar("openmanus_replay", default=None)


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
