"""Who looks on at this process's runs: the server writes down what threads do and shows it.

`registry.py` tells the watcher of runs on threads, `watched` of their events. Without a watcher,
as in the command line and in other programs, nothing is told and nothing is kept.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime

from openmanus_graph.events import GRAPH_EVENTS
from openmanus_graph.settings import Settings
from openmanus_graph.state.context import Context

STEP_KEY = "openmanus_step"
"""Metadata of a run inside a plan's step: the step's id, `outer/inner` in a plan within a step."""

N = TypeVar("N", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True)
class WatchedRun:
    """One run of a graph on a thread."""

    id: str
    thread: str
    agent: str
    """The graph's name where it is known: servers say it, others need not."""
    given: Any
    """The graph's input."""
    checkpoint: str = ""
    """Where in the thread's past it begins, if not at its end."""


class Watcher(Protocol):
    """Learns of runs on threads. Only `begins` may refuse a run, by raising."""

    async def begins(self, run: WatchedRun, settings: Settings, context: Context | None) -> None:
        """Take note of a run whose settings are known, before its first node works."""
        ...

    def tells(self, run: str, thread: str, step: str, event: dict[str, Any]) -> None:
        """Take note of an event; called on the event loop, or on a tool's thread."""
        ...

    async def ends(self, run: WatchedRun, error: BaseException | None) -> None:
        """Take note of a run's end; its state is saved by then."""
        ...


_watchers: list[Watcher] = []


def watch(watcher: Watcher) -> None:
    """Let somebody look on at the runs of this process from now on."""
    _watchers[:] = [watcher]


def watcher() -> Watcher | None:
    """Return who looks on, if anybody does."""
    return _watchers[0] if _watchers else None


def watched(node: N) -> N:
    """Let the watcher see what a node sends to the stream, whoever else reads that."""

    @wraps(node)
    async def node_in_sight(state: Any, runtime: Runtime[Context]) -> Any:
        onlooker = watcher()
        if onlooker is None:
            return await node(state, runtime)
        return await node(state, runtime.override(stream_writer=_tee(onlooker, runtime)))

    return cast("N", node_in_sight)


def step_of(config: RunnableConfig) -> str:
    """Name the plan's step that a node runs in; nothing outside of plans."""
    return str((config.get("metadata") or {}).get(STEP_KEY, ""))


def _tee(onlooker: Watcher, runtime: Runtime[Context]) -> Callable[[Any], None]:
    from openmanus_graph.registry import thread_of  # which tells the watcher of runs

    config = get_config()
    place = thread_of(config)
    step = step_of(config)

    def write(event: Any) -> None:
        runtime.stream_writer(event)
        # A user's tool may write to the stream as well, whatever it likes.
        if place is None or not isinstance(event, dict):
            return
        told = cast("dict[str, Any]", event)
        if told.get("type") in GRAPH_EVENTS and not (step and told["type"] == "limit"):
            onlooker.tells(*place, step, told)

    return write
