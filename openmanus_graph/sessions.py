"""Live handles of a thread (kernel, shell, browser): opened on first need, always closed.

Handles never enter the state. Nodes find their thread's session in `registry.py`; tools get it
through the runtime they are called with.
"""

import asyncio
import itertools
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.settings import Settings
from openmanus_graph.state.plan import Plans
from openmanus_graph.state.reducers import Held, Holdings
from openmanus_graph.workspace import Workspace

SESSION_KEY = "openmanus_session"
ASK_KEY = "openmanus_ask"
MODEL_KEY = "openmanus_model"
CONVERSE_KEY = "openmanus_converse"
CALL_KEY = "openmanus_call"
EMIT_KEY = "openmanus_emit"
PLANS_KEY = "openmanus_plans"
LANE_SEPARATOR = "\0"
"""Between the key of a run's session and the lane of a run inside it."""


class Handle(Protocol):
    """A live resource."""

    def close(self) -> None:
        """Let go of processes, sockets and files; may block, is called once, never raises."""
        ...

    def held(self) -> str:
        """Say what the model would lose with it, in words for the model; empty if nothing.

        As the last call left it, from memory: the event loop calls it.
        """
        ...


H = TypeVar("H", bound=Handle)
T = TypeVar("T")


@dataclass(frozen=True)
class _Open:
    handle: Handle
    identity: str
    looks: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))


class Session:
    """What one thread holds open, and the settings of its current run."""

    def __init__(self, key: str, settings: Settings) -> None:
        self.key = key
        self.settings = settings
        self.workspace = Workspace(settings.workspace, settings.protected)
        self.line = ""
        """Names the fork that the current run is, if it is one."""
        self.offered: dict[Any, Any] = {}
        """What each agent's newest request offered the model, during the current run."""
        self._handles: dict[str, _Open] = {}
        self._dropped: Holdings = {}
        """Handles of whose end the model was told at once: nothing is held by them any more."""
        self._open_calls: dict[str, Any] = {}
        """Calls that go on while the run waits for a person, by the effect's digest."""
        self._cache: dict[Any, Any] = {}
        self._kept: dict[Any, Any] = {}
        self._lock = threading.RLock()

    @property
    def is_inner(self) -> bool:
        """Whether its run is a step of a plan, and so not what the person watches."""
        return LANE_SEPARATOR in self.key

    def configure(self, settings: Settings) -> None:
        """Take over the settings of the thread's next run. Blocks if handles do not fit them."""
        old = self.settings
        if (settings.sandbox, settings.workspace) != (old.sandbox, old.workspace):
            self.close()
        self.settings = settings
        self.workspace = Workspace(settings.workspace, settings.protected)
        self._cache = {}
        self.offered = {}

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` made for this key during this run.

        Never waits for another thread, since the event loop calls it; `make` may run twice.
        """
        cache = self._cache
        if key not in cache:
            cache.setdefault(key, make())
        return cast("T", cache[key])  # the key stands for one type of value

    def kept(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` made for this key during the session's life. Never waits."""
        return cast("T", self._kept.setdefault(key, make()))  # the key stands for one type

    async def cached_off_loop(self, key: Any, make: Callable[[], T]) -> T:
        """Do as `cached` for a `make` that blocks."""
        if key not in self._cache:
            await asyncio.to_thread(self.cached, key, make)
        return self.cached(key, make)

    def on_line(self, branch: str) -> str:
        """Return a branch's name on the fork that the current run is."""
        return branch if self.line in branch else branch + self.line

    def handle(self, name: str, open_handle: Callable[[], H]) -> H:
        """Return the handle of that name, opening it when there is none. May block.

        A handle has the name of the resource that its tools share.
        """
        with self._lock:
            if name not in self._handles:
                identity = f"{name}:{secrets.token_hex(8)}"
                self._handles[name] = _Open(open_handle(), identity)
            return cast("H", self._handles[name].handle)  # the name stands for one type of handle

    def find(self, name: str) -> Handle | None:
        """Return an open handle, if there is one of that name; never waits."""
        known = self._handles.get(name)
        return None if known is None else known.handle

    def drop(self, name: str) -> None:
        """Close a handle that is broken or no longer wanted; the next use opens another.

        The caller tells the model.
        """
        with self._lock:
            known = self._handles.pop(name, None)
        if known is not None:
            self._dropped[known.identity] = Held(what="", at=next(known.looks))
            known.handle.close()

    def held(self) -> Holdings:
        """Return what the handles hold, those that were dropped included."""
        # A copy, without the lock: another thread may hold it for as long as a kernel starts.
        live = list(self._handles.values())
        return self._dropped | {
            known.identity: Held(what=known.handle.held(), at=next(known.looks)) for known in live
        }

    def identities(self) -> set[str]:
        """Return the identities of the handles that are open."""
        return {known.identity for known in list(self._handles.values())}

    def leave_open(self, digest: str, call: Any) -> None:
        """Keep a call that goes on while the run waits for a person."""
        self._open_calls[digest] = call

    def take_up(self, digest: str) -> Any:
        """Return a call that was left open, and forget it; None if there is none."""
        return self._open_calls.pop(digest, None)

    def is_open(self, digest: str) -> bool:
        """Say whether a call was left open."""
        return digest in self._open_calls

    def close(self) -> None:
        """Close everything, newest first. May block."""
        self._open_calls.clear()  # they end with their handles
        while True:
            with self._lock:
                if not self._handles:
                    return
                _, known = self._handles.popitem()
            known.handle.close()


def session_of(runtime: ToolRuntime[Any, Any]) -> Session:
    """Return the session a tool was called in."""
    configurable: Mapping[str, Any] = runtime.config.get("configurable", {})
    return cast("Session", configurable[SESSION_KEY])  # put there by `run_call`


def model_of(runtime: ToolRuntime[Any, Any]) -> Callable[[str, str], Awaitable[str]] | None:
    """Return the function by which a tool asks the run's model: system prompt, question -> text.

    None where there is no run: a tool that is called by itself.
    """
    configurable: Mapping[str, Any] = runtime.config.get("configurable", {})
    return cast(
        "Callable[[str, str], Awaitable[str]] | None", configurable.get(MODEL_KEY)
    )  # put there by `run_call`


def plans_of(runtime: ToolRuntime[Any, Any]) -> Plans:
    """Return the thread's plans as they stand before the call."""
    configurable: Mapping[str, Any] = runtime.config.get("configurable", {})
    return cast("Plans", configurable[PLANS_KEY])  # put there by `run_call`


def asker_of(
    runtime: ToolRuntime[Any, Any],
) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
    """Return the function by which a tool asks a person and waits for the answer.

    A tool that asks more than once in a call gives each question a `name` of its own.
    """
    configurable: Mapping[str, Any] = runtime.config.get("configurable", {})
    return cast(
        "Callable[[Mapping[str, Any]], Awaitable[Any]]", configurable[ASK_KEY]
    )  # put there by `run_call`
