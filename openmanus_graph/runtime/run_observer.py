"""The observer of this process's runs, with which the server records and shows them.

`session_registry` calls it when runs on threads start and end, `observed` with their events. The
command line and other programs have none.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime

from openmanus_graph.runtime.events import GRAPH_EVENTS
from openmanus_graph.state.context import Context
from openmanus_graph.state.renamed import moved, with_current_names
from openmanus_graph.state.settings import Settings

STEP_KEY = "openmanus_step"
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

    def on_event(self, run: str, thread: str, step: str, event: dict[str, Any]) -> None:
        """Called with each event, on the event loop or on a tool's thread."""
        ...

    async def on_end(self, run: ObservedRun, error: BaseException | None) -> None:
        """Called when a run has ended and its state is saved."""
        ...


_observers: list[RunObserver] = []


def observe_runs(run_observer: RunObserver) -> None:
    """Set the observer of this process's runs."""
    _observers[:] = [run_observer]


def run_observer() -> RunObserver | None:
    """Return the observer, if there is one."""
    return _observers[0] if _observers else None


def observed(node: N) -> N:
    """Make a function a node of our graphs.

    The observer gets its events also where the stream is not read. A state that version 0.1
    saved is passed to it under today's names.
    """

    @wraps(node)
    async def observed_node(saved: Any, runtime: Runtime[Context]) -> Any:
        state, observer = with_current_names(saved), run_observer()
        if observer is not None:
            runtime = runtime.override(stream_writer=_tee(observer, runtime))
        update = await node(state, runtime)
        return update if "messages" not in saved else moved(saved, update)  # else a `Send`'s own

    return cast("N", observed_node)


def step_of(config: RunnableConfig) -> str:
    """Return the id of the plan step that a node runs in; empty outside of plans."""
    return str((config.get("metadata") or {}).get(STEP_KEY, ""))


def _tee(observer: RunObserver, runtime: Runtime[Context]) -> Callable[[Any], None]:
    from openmanus_graph.runtime.session_registry import (
        thread_of,  # which calls the observer
    )

    config = get_config()
    run_and_thread = thread_of(config)
    step = step_of(config)

    def write(event: Any) -> None:
        runtime.stream_writer(event)
        # A user's tool may write anything to the stream.
        if run_and_thread is None or not isinstance(event, dict):
            return
        graph_event = cast("dict[str, Any]", event)
        if graph_event.get("type") in GRAPH_EVENTS and not (
            step and graph_event["type"] == "limit"
        ):
            observer.on_event(*run_and_thread, step, graph_event)

    return write
