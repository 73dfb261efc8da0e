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

from openmanus_graph.runtime.limits import LimitReached, LimitReason, Progress, limit_reached
from openmanus_graph.state.reducers import Usage
from openmanus_graph.state.settings import Settings

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
        elapsed_s = spent.elapsed_s + time.monotonic() - self._started
        steps = spent.steps if self._settings.max_steps_set else 0
        return limit_reached(Progress(steps, spent.usage, elapsed_s), self._settings)

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
) -> AsyncGenerator[Reservation | None]:
    """Let a model call be made if the limits allow it, those of the tree around it included.

    Args:
        run: Names the run that asks.
        progress: How far it has come.
        settings: Hold its own limits.
        expected: Estimates what the call costs.

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
    check_limits(progress, settings)
    yield None


def check_limits(progress: Progress, settings: Settings) -> None:
    """Raise LimitReached if a run's own limits forbid another model call."""
    reason = limit_reached(progress, settings)
    if reason is not None:
        raise LimitReached(reason)
