"""The current replay, if a run is one: it answers in place of models, tools and people.

Code that would reach out calls `current_replay()` first. `model_calls.replay` reads the record.
"""

import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from openmanus_graph.state.context import Policy


@dataclass(frozen=True)
class SteeringMessage:
    """A message that a person sends to a run while it works."""

    id: str
    text: str
    read: bool
    """Whether a checkpoint holds it."""


class SteeringStore(Protocol):
    """The steering messages of threads: the table of `backends.persistence.steering`, or a replay.

    Its methods are described there.
    """

    def fetch_soon(self, thread: str) -> None: ...
    async def of(self, thread: str) -> Sequence[SteeringMessage]: ...
    async def mark_read(self, thread: str, steering: Sequence[str]) -> None: ...
    async def forget_read(self, thread: str) -> None: ...


class Replay(SteeringStore, Protocol):
    """Answers a run from the record of an earlier one."""

    policy_before: Policy | None
    """The recorded run's policy, if another one is tried."""

    async def answer(
        self,
        caller: str,
        request: Sequence[Mapping[str, Any]],
        folders: Mapping[str, str],
        ask: Callable[[], Awaitable[Any]],
    ) -> Any:
        """Return the reply to a model call, or raise ReplayEndedError."""

    def with_recorded_folders(self, text: str, folders: Mapping[str, str]) -> str:
        """Replace the folders' current names in a JSON text by the recorded ones."""
        ...

    def live_handles(self) -> set[str]:
        """Return the identities of the handles that were open at the next model call."""
        ...

    def server_tools(self) -> dict[str, Any] | None:
        """Return the tools of MCP servers at the next model call; None without servers."""

    def elapsed_s(self) -> float:
        """Return how long the run had taken when its next model call was made."""
        ...

    def profile(self, model: str) -> dict[str, Any] | None:
        """Return what is known of a recorded model; None for another one."""

    def has_fact(self, name: str) -> bool:
        """Return True if the run had found that out."""
        ...

    def fact(self, name: str) -> Any:
        """Return what the run had found out about its environment, or raise ReplayEndedError."""

    def check_decision(self, call: str, recorded: str, now: str) -> None:
        """Raise ReplayEndedError if a policy now decides differently on a call."""

    def repeats(self, tool: str) -> bool:
        """Return True if recorded calls of a tool are executed again."""
        ...

    def refuse_repeat(self, call: str, why: str) -> None:
        """Raise ReplayEndedError for a call that may not be executed again."""

    def record_repeat(self, call: str, recorded: str, now: str, *, failed: bool) -> None:
        """Record a call that was executed again. ReplayEndedError: it failed."""

    async def outcome(self, effect: Any, call_id: str) -> Any:
        """Return the ledger's entry of a call, or raise ReplayEndedError."""


@dataclass(frozen=True)
class KnownReply:
    """A model's reply that a what-if replay already has, for the run that continues with it."""

    caller: str
    reply: Any


class ReplayEndedError(Exception):
    """A replayed run needs something that its record does not contain; the text says what."""


_replay: ContextVar[Replay | None] = ContextVar("openmanus_replay", default=None)

_known: ContextVar[list[KnownReply] | None] = ContextVar("openmanus_known_reply", default=None)
"""Shared by the tasks of a run: the task that takes the reply removes it."""


def current_replay() -> Replay | None:
    """Return the replay that the running code belongs to."""
    return _replay.get()


@contextlib.contextmanager
def replaying(replay: Replay) -> Generator[None]:
    """Answer the runs that begin in the block by a replay."""
    before = _replay.set(replay)
    try:
        yield
    finally:
        _replay.reset(before)


@contextlib.contextmanager
def knowing_reply(known: KnownReply | None) -> Generator[None]:
    """Answer the caller's next model call by this reply; all other calls are executed."""
    before = _known.set([known] if known else None)
    try:
        yield
    finally:
        _known.reset(before)


def take_known_reply(caller: str) -> Any:
    """Return the known reply to a caller's model call; None if the model has to be called."""
    known = _known.get()
    return known.pop().reply if known and known[0].caller == caller else None
