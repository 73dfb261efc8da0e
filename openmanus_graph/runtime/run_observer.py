"""The observer of this process's runs, with which the server records and shows them.

`session_registry` calls it when runs on threads start and end, `session_keeper` with their
events. The command line and other programs have none.
"""

import contextlib
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from langchain_core.runnables import RunnableConfig

from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

PLAN_STEP_KEY = "openmanus_step"
"""Metadata of a run inside a plan's step: the step's id, `outer/inner` in a plan within a step."""

N = TypeVar("N", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True)
class ObservedRun:
    """One run of a graph on a thread."""

    id: str
    thread: str
    agent: str
    """The graph's name where it is known; servers pass it in the metadata."""
    given: Any
    """The graph's input."""
    checkpoint: str = ""
    """Id of the checkpoint it starts from; empty for the newest."""


class RunObserver(Protocol):
    """Is called about runs on threads. Only `on_start` may refuse a run, by raising."""

    async def on_start(self, run: ObservedRun, settings: Settings, context: Context | None) -> None:
        """Called when a run's settings are known, before its first node works."""
        ...

    def on_event(self, run: str, thread: str, plan_step: str, event: dict[str, Any]) -> None:
        """Called with each event, on the event loop or on a tool's thread.

        Args:
            run: The run's id.
            thread: Its thread.
            plan_step: Id of the plan step that the event comes from; empty outside of plans.
            event: The event.
        """
        ...

    async def on_end(self, run: ObservedRun, error: BaseException | None) -> None:
        """Called when a run has ended and its state is saved."""
        ...


_observers: list[RunObserver] = []


def observe_runs(run_observer: RunObserver) -> None:
    """Set the observer of this process's runs."""
    _observers[:] = [run_observer]


@contextlib.contextmanager
def observing_runs(run_observer: RunObserver) -> Generator[None]:
    """Set the observer of this process's runs meanwhile."""
    before = list(_observers)
    observe_runs(run_observer)
    try:
        yield
    finally:
        _observers[:] = before


def run_observer() -> RunObserver | None:
    """Return the observer, if there is one."""
    return _observers[0] if _observers else None


def plan_step_of(config: RunnableConfig) -> str:
    """Return the id of the plan step that a node runs in; empty outside of plans."""
    return str((config.get("metadata") or {}).get(PLAN_STEP_KEY, ""))
