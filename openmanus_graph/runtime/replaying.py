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
    """Answers a run from the record of an earlier one: `model_calls.replay.RecordReplay`.

    Its methods are described there. What the record does not contain raises ReplayEndedError.
    """

    policy_before: Policy | None
    """The recorded run's policy, if another one is tried."""

    async def answer(
        self,
        caller: str,
        request: Sequence[Mapping[str, Any]],
        folders: Mapping[str, str],
        ask: Callable[[], Awaitable[Any]],
    ) -> Any: ...
    def with_recorded_folders(self, text: str, folders: Mapping[str, str]) -> str: ...
    def live_handles(self) -> set[str]: ...
    def server_tools(self) -> dict[str, Any] | None: ...
    def elapsed_s(self) -> float: ...
    def profile(self, model: str) -> dict[str, Any] | None: ...
    def has_fact(self, name: str) -> bool: ...
    def fact(self, name: str) -> Any: ...
    def check_decision(self, call: str, recorded: str, now: str) -> None: ...
    def repeats(self, tool: str) -> bool: ...
    def refuse_repeat(self, call: str, why: str) -> None: ...
    def record_repeat(self, call: str, recorded: str, now: str, *, failed: bool) -> None: ...
    async def outcome(self, effect: Any, call_id: str) -> Any: ...


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


class RunLeftError(ReplayEndedError):
    """The recorded run came no further: instead of going on, the person wrote a new message."""


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
