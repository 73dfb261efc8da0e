"""The observer of this process's runs, with which the server records and shows them.

`session_registry` reports when runs on threads start and end; `session_keeper` reports their
events. The command line and other programs have no observer.
"""

import contextlib
import os
import uuid
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig

from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.traces import RunSpan
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

PLAN_STEP_KEY = "openmanus_step"
"""Metadata of a run inside a plan's step: the step's id, `outer/inner` in a plan within a step."""


@dataclass(frozen=True)
class ObservedRun:
    """One run of a graph on a thread."""

    id: str
    thread: str
    agent: str
    """The graph's name if known; servers pass it in the metadata."""
    given: Any
    """The graph's input."""
    checkpoint: str = ""
    """Id of the checkpoint it starts from; empty for the newest."""


class RunObserver(Protocol):
    """Is called about runs on threads. Only `on_start` may refuse a run, by raising."""

    async def on_start(self, run: ObservedRun, settings: Settings, context: Context | None) -> None:
        """Called when a run's settings are known, before its first node works."""

    def on_event(self, run: str, thread: str, plan_step: str, event: dict[str, Any]) -> None:
        """Called with each event of a run, on the event loop or on a tool's thread.

        `plan_step` is the id of the plan step that sent it; empty outside of plans.
        """

    async def on_end(self, run: ObservedRun, error: BaseException | None) -> None:
        """Called when a run has ended and its state is saved."""


_observers: list[RunObserver] = []


def observe_runs(run_observer: RunObserver) -> None:
    """Set the observer of this process's runs."""
    _observers[:] = [run_observer]


@contextlib.contextmanager
def observing_runs(run_observer: RunObserver) -> Generator[None]:
    """Set the observer of this process's runs for the block."""
    before = list(_observers)
    observe_runs(run_observer)
    try:
        yield
    finally:
        _observers[:] = before


def run_observer() -> RunObserver | None:
    return _observers[0] if _observers else None


def plan_step_of(config: RunnableConfig) -> str:
    """Return the id of the plan step that a node runs in; empty outside of plans."""
    return str((config.get("metadata") or {}).get(PLAN_STEP_KEY, ""))


class RunLocation(NamedTuple):
    """Where a node, or a graph within it, runs."""

    run: uuid.UUID
    """Of the graph it belongs to."""
    key: str
    """Of that graph's session."""
    worker: str
    """See `session_registry.WORKER_KEY`; empty for the thread's own run."""
    answered: bool
    """Whether the run may have been resumed with an answer."""
    span: RunSpan | None = None
    """The run's span, where runs are traced."""


locations: dict[uuid.UUID, RunLocation] = {}
"""By LangChain's run id of each running graph and node."""
tool_calls: dict[uuid.UUID, RunLocation] = {}
"""The run around each tool call that is under way."""


def location_around(parent_run_id: uuid.UUID | None, worker: str) -> RunLocation | None:
    """Return the run that another one belongs to.

    A graph that a tool runs belongs to the run around the tool if it is a worker's, as subagents
    are. Any other graph is a run by itself.
    """
    if parent_run_id is None:
        return None
    return locations.get(parent_run_id) or (tool_calls.get(parent_run_id) if worker else None)


def find_location(config: RunnableConfig) -> RunLocation | None:
    """Return where a node runs; None in a graph that is not ours."""
    callbacks = config.get("callbacks")
    parent = callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
    return locations.get(parent) if parent else None


def location_of(config: RunnableConfig) -> RunLocation:
    location = find_location(config)
    if location is None:
        raise RuntimeError("This node runs outside of a graph that build_manus_graph() made.")
    return location


# A forked child does not have its parent's runs.
os.register_at_fork(after_in_child=locations.clear)
os.register_at_fork(after_in_child=tool_calls.clear)


Preparation = Callable[[Session, Sequence[Session], Emit], Awaitable[Sequence[str]]]
"""Takes the session of a run, with its lineage, the sessions of its workers, and the function that
sends events; returns notices for the person."""
_preparations: list[Preparation] = []


def prepare_runs_with(prepare: Preparation) -> None:
    """Register a function to call before the first node of each run on a thread."""
    _preparations.append(prepare)


async def prepare_run(session: Session, workers: Sequence[Session], emit: Emit) -> None:
    """Call what was registered, and emit its notices."""
    for prepare in _preparations:
        for text in await prepare(session, workers, emit):
            notice(emit, text)
