"""Live handles of a thread (kernel, shell, browser): opened on first need, always closed.

Handles never enter the state. Nodes find their thread's session in `registry.py`; tools get it
through the runtime they are called with.
"""

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.settings import Settings
from openmanus_graph.state.plan import Plans
from openmanus_graph.workspace import Workspace

SESSION_KEY = "openmanus_session"
ASK_KEY = "openmanus_ask"
PLANS_KEY = "openmanus_plans"


class Handle(Protocol):
    """A live resource."""

    def close(self) -> None:
        """Let go of processes, sockets and files; may block, is called once, never raises."""
        ...


H = TypeVar("H", bound=Handle)
T = TypeVar("T")


class Session:
    """What one thread holds open, and the settings of its current run."""

    def __init__(self, key: str, settings: Settings) -> None:
        self.key = key
        self.settings = settings
        self.workspace = Workspace(settings.workspace, settings.protected)
        self.line = ""
        """Names the fork that the current run is, if it is one."""
        self._handles: dict[str, Handle] = {}
        self._cache: dict[Any, Any] = {}
        self._lock = threading.RLock()

    def configure(self, settings: Settings) -> None:
        """Take over the settings of the thread's next run."""
        self.settings = settings
        self.workspace = Workspace(settings.workspace, settings.protected)
        self._cache = {}

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` made for this key during this run.

        Never waits for another thread, since the event loop calls it; `make` may run twice.
        """
        cache = self._cache
        if key not in cache:
            cache.setdefault(key, make())
        return cast("T", cache[key])  # the key stands for one type of value

    def on_line(self, branch: str) -> str:
        """Return a branch's name on the fork that the current run is."""
        return branch if branch.endswith(self.line) else branch + self.line

    def handle(self, name: str, open_handle: Callable[[], H]) -> H:
        """Return the handle of that name, opening it when there is none. May block."""
        with self._lock:
            if name not in self._handles:
                self._handles[name] = open_handle()
            return cast("H", self._handles[name])  # the name stands for one type of handle

    def drop(self, name: str) -> None:
        """Close a handle that is broken or no longer wanted; the next use opens another."""
        with self._lock:
            handle = self._handles.pop(name, None)
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Close everything, newest first. May block."""
        while True:
            with self._lock:
                if not self._handles:
                    return
                _, handle = self._handles.popitem()
            handle.close()


def session_of(runtime: ToolRuntime[Any, Any]) -> Session:
    """Return the session a tool was called in."""
    configurable: Mapping[str, Any] = runtime.config.get("configurable", {})
    return cast("Session", configurable[SESSION_KEY])  # put there by `run_call`


def plans_of(runtime: ToolRuntime[Any, Any]) -> Plans:
    """Return the thread's plans as they stand before the call."""
    configurable: Mapping[str, Any] = runtime.config.get("configurable", {})
    return cast("Plans", configurable[PLANS_KEY])  # put there by `run_call`


def asker_of(
    runtime: ToolRuntime[Any, Any],
) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
    """Return the function by which a tool asks a person and waits for the answer."""
    configurable: Mapping[str, Any] = runtime.config.get("configurable", {})
    return cast(
        "Callable[[Mapping[str, Any]], Awaitable[Any]]", configurable[ASK_KEY]
    )  # put there by `run_call`
