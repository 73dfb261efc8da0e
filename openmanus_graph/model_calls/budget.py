"""One budget for a whole tree of runs: each model call is reserved before it is made.

Steps of a plan that run side by side spend from the same dollars, tokens and steps. Without
reservations each of them could make one more call after the last cent.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal

from openmanus_graph.runtime.limits import (
    LimitReached,
    LimitReason,
    Progress,
    has_room,
    last_call_limit,
    limit_reached,
    near_limits,
)
from openmanus_graph.state.reducers import Usage
from openmanus_graph.state.settings import Settings

ClosingRoom = Literal["none", "keep", "use"]
"""What a model call does with the room that its run keeps for the closing turn: a plan's step and a
tool's question keep none; an agent's step leaves it free; the closing turn itself takes it."""

_budget: ContextVar["SharedBudget | None"] = ContextVar("openmanus_budget", default=None)


@dataclass
class Reservation:
    """What one call may cost, until it is known."""

    progress: Progress
    spent: Usage | None = None
    """What it did cost; None if it failed."""


class SharedBudget:
    """What the runs of a tree have spent, and what they are about to."""

    def __init__(self, settings: Settings, before: Progress) -> None:
        """Begin.

        Args:
            settings: Of the flow around the runs; hold its limits.
            before: How far the flow had come before these runs.
        """
        self._settings = settings
        self._spent = before
        self._started = time.monotonic()
        self._known: set[str] = set()
        self._open: list[Reservation] = []
        self._changed = asyncio.Condition()
        """Notified when a reservation ends."""

    def count_earlier(self, run: str, progress: Progress) -> None:
        """Count what a run had spent in a process before this one. Once for each run.

        Args:
            run: Names it.
            progress: Its own.
        """
        if run not in self._known:
            self._known.add(run)
            self._spent = self._spent.plus(progress)

    def count(self, run: str, usage: Usage) -> None:
        """Count what a run has spent without a reservation.

        Args:
            run: Names it. One that was not met yet brings what it spent along when it is.
            usage: Of calls that were made past `call_model`.
        """
        if run in self._known:
            self._spent = self._spent.plus(Progress(0, usage, 0))

    @contextlib.asynccontextmanager
    async def reserve(self, expected: Progress) -> AsyncGenerator[Reservation]:
        """Hold back what a call may cost. Waits while calls under way decide whether it may run.

        Raises:
            LimitReached: Nothing is left.
        """
        async with self._changed:
            while self._must_wait():
                await self._changed.wait()
            reservation = Reservation(expected)
            self._open.append(reservation)
        try:
            yield reservation
        finally:
            self._open.remove(reservation)
            if reservation.spent is not None:
                cost = replace(expected, usage=reservation.spent)
                self._spent = self._spent.plus(cost)
            await asyncio.shield(self._notify())

    def near_limits(self, call: Usage) -> dict[str, str]:
        """Say what is left of the limits that the whole tree comes near to, by a call's cost."""
        return near_limits(self._counted(self._spent), call, self._settings)

    def _must_wait(self) -> bool:
        """Say whether the calls under way may use up what is left. LimitReached: nothing is."""
        reason = self._reached(self._spent)
        if reason is not None:
            raise LimitReached(reason)
        spent = self._spent
        for reservation in self._open:
            spent = spent.plus(reservation.progress)
        return bool(self._open) and self._reached(spent) is not None

    def _reached(self, spent: Progress) -> LimitReason | None:
        return limit_reached(self._counted(spent), self._settings)

    def _counted(self, spent: Progress) -> Progress:
        elapsed_s = spent.elapsed_s + time.monotonic() - self._started
        steps = spent.steps if self._settings.max_steps_set else 0
        return Progress(steps, spent.usage, elapsed_s)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@contextlib.contextmanager
def sharing(budget: SharedBudget) -> Generator[None]:
    """Have all model calls that are made meanwhile, however deep inside, spend from a budget."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def shared_budget() -> SharedBudget | None:
    """Return the budget of the tree that the running code belongs to."""
    return _budget.get()


@contextlib.asynccontextmanager
async def reserved(
    run: str,
    progress: Progress,
    settings: Settings,
    expected: Callable[[], Awaitable[Progress]],
    closing_room: ClosingRoom = "none",
) -> AsyncGenerator[Reservation | None]:
    """Let a model call be made if the limits allow it, those of the tree around it included.

    Args:
        run: Names the run that asks.
        progress: How far it has come.
        settings: Hold its own limits.
        expected: Estimates what the call costs.
        closing_room: What the call does with the room for the run's closing turn.

    Raises:
        LimitReached: A limit forbids it.
    """
    budget = shared_budget()
    if budget is not None:
        budget.count_earlier(run, progress)
        async with budget.reserve(await expected()) as reservation:
            check_limits(progress, settings)
            yield reservation
        return
    if closing_room == "use":
        progress = replace(progress, steps=0)  # the one call beyond `max_steps`
    check_limits(progress, settings)
    if closing_room != "none":
        check_room(progress, (await expected()).usage, settings, closing_room)
    yield None


def near_any_limit(progress: Progress, call: Usage, settings: Settings) -> list[str]:
    """Say what is left of the limits that a run, or the tree around it, comes near to.

    Args:
        progress: Of the run.
        call: What one model call may cost.
        settings: Hold the run's own limits.
    """
    budget = shared_budget()
    around = {} if budget is None else budget.near_limits(call)
    return [*(near_limits(progress, call, settings) | around).values()]


def check_limits(progress: Progress, settings: Settings) -> None:
    """Raise LimitReached if a run's own limits forbid another model call."""
    reason = limit_reached(progress, settings)
    if reason is not None:
        raise LimitReached(reason)


def check_room(
    progress: Progress, cost: Usage, settings: Settings, closing_room: ClosingRoom
) -> None:
    """Raise LimitReached if a call would use up what is kept for the closing turn.

    A run that has not taken a step keeps nothing: there is nothing to say at its end.
    """
    if closing_room == "use" and not has_room(progress, cost, settings):
        raise LimitReached("budget")
    if closing_room == "keep" and progress.steps:
        reason = last_call_limit(progress, cost, settings)
        if reason is not None:
            raise LimitReached(reason)
