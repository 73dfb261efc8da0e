"""Live handles of a thread (kernel, shell, browser): opened at the first use, always closed.

The state never contains handles, only descriptions of what they hold (`HandleStates`). Nodes get
their thread's session from `session_registry`, tools from the runtime of their call
(`tool_runtime`).
"""

import asyncio
import itertools
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Set
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from openmanus_graph.runtime.checkpoint_lineage import Lineage
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.manus import HandleState, HandleStates
from openmanus_graph.state.settings import Settings

WORKER_SEPARATOR = "\0"
"""Between the key of a run's session and the worker of a run inside it."""


class Handle(Protocol):
    def close(self) -> None:
        """Release processes, sockets and files; may block, is called once, never raises."""

    def handle_state(self) -> str:
        """Describe the state that would be lost with the handle, for the model; empty if none.

        The state after the last call, from memory: the event loop calls it.
        """
        ...


@runtime_checkable
class WritingHandle(Protocol):
    """A handle whose calls write output while they run."""

    def newest_line(self) -> str:
        """Return the newest line of the running call's output; never waits."""
        ...


H = TypeVar("H", bound=Handle)
T = TypeVar("T")


@dataclass(frozen=True)
class _OpenHandle:
    handle: Handle
    identity: str
    looks: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    """Numbers the descriptions of its state; the newest has the highest number."""


class Session:
    """The open handles of one thread, and the settings of its current run."""

    def __init__(self, key: str, settings: Settings) -> None:
        self.key = key
        self.settings = settings
        self.workspace = Workspace.of(settings)
        self.max_observation_chars = MIN_OBSERVATION_CHARS
        """Set from the model's window before a run's first tool call."""
        self.checkpointed = False
        """Whether a checkpointer saves its thread, so that another process may continue it."""
        self.lineage = Lineage()
        """Where in the thread's history the current run began."""
        self.files_may_differ = True
        """Whether calls may have changed files since the newest snapshot of the workspace; unknown,
        so True, if another process began the run."""
        self.resolved: dict[Any, Any] = {}
        """The tools of each agent's newest request, during the current run."""
        self.server_tools = ""
        """Id in the recording of what MCP servers offered at the newest agent step."""
        self.closers_of_run: dict[str, Callable[[], None]] = {}
        """Called when the current run has ended; may block, and never raise."""
        self._dropped: HandleStates = {}
        """Empty states of dropped handles, whose end was reported to the model already."""
        self.reset_in_child_process()
        _sessions.add(self)

    def reset_in_child_process(self) -> None:
        """Drop all handles without closing them, as in a forked child: they belong to the parent.

        Closing them here would end the parent's processes, or write to its connections.
        """
        self._handles: dict[str, _OpenHandle] = {}
        self.open_calls: dict[str, Any] = {}
        """Calls that keep running while the run waits for a person, by the effect's digest."""
        self._cache: dict[Any, Any] = {}
        self._cache_across_runs: dict[Any, Any] = {}
        self._lock = threading.RLock()

    @property
    def fork_id(self) -> str:
        return self.lineage.fork_id

    @property
    def thread(self) -> str:
        """The thread in whose name everything here is done; a worker's is the outer one."""
        return self.key.partition(WORKER_SEPARATOR)[0]

    @property
    def worker(self) -> str:
        """Worker that the session belongs to; empty for the thread's own."""
        return self.key.partition(WORKER_SEPARATOR)[2]

    @property
    def is_nested(self) -> bool:
        """Whether its run is inside another run: a plan step, or a subagent."""
        return bool(self.worker)

    def configure(self, settings: Settings) -> None:
        """Apply the settings of the thread's next run. Blocks if it closes handles."""
        old = self.settings
        if (settings.sandbox, settings.workspace) != (old.sandbox, old.workspace):
            self.close()
        self.settings = settings
        self.workspace = Workspace.of(settings)
        self._cache = {}
        self.resolved = {}
        self.server_tools = ""

    def end_run(self) -> None:
        """Call the run's closers once. May block."""
        while self.closers_of_run:
            _, closer = self.closers_of_run.popitem()
            closer()

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` made for this key during this run.

        Never waits for another thread, since the event loop calls it; `make` may run twice.
        """
        cache = self._cache
        if key not in cache:
            cache.setdefault(key, make())
        return cast("T", cache[key])  # the key has one type of value

    def find_cached(self, key: Any) -> Any:
        return self._cache.get(key)

    def cached_across_runs(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` made for this key during the session's life. Never waits."""
        made = self._cache_across_runs.setdefault(key, make())
        return cast("T", made)  # the key has one type of value

    async def cached_off_loop(self, key: Any, make: Callable[[], T]) -> T:
        """Do the same for a `make` that blocks."""
        if key not in self._cache:
            await asyncio.to_thread(self.cached, key, make)
        return self.cached(key, make)

    def on_fork(self, branch: str) -> str:
        """Return a branch's name on the fork of the current run."""
        return branch if self.fork_id in branch else branch + self.fork_id

    def handle(self, name: str, open_handle: Callable[[], H]) -> H:
        """Return the handle of a resource that tools share; open it if there is none. May block."""
        with self._lock:
            if name not in self._handles:
                identity = f"{name}:{secrets.token_hex(8)}"
                self._handles[name] = _OpenHandle(open_handle(), identity)
            return cast("H", self._handles[name].handle)  # the name has one type of handle

    def find(self, name: str) -> Handle | None:
        known = self._handles.get(name)
        return None if known is None else known.handle

    def drop(self, name: str) -> None:
        """Close a broken or needless handle. The caller reports it to the model."""
        with self._lock:
            known = self._handles.pop(name, None)
        if known is not None:
            self._dropped[known.identity] = HandleState(what="", at=next(known.looks))
            known.handle.close()

    def handle_states(self) -> HandleStates:
        # A copy, without the lock: another thread may hold it for as long as a kernel starts.
        live = list(self._handles.values())
        return self._dropped | {
            known.identity: HandleState(what=known.handle.handle_state(), at=next(known.looks))
            for known in live
        }

    @property
    def is_empty(self) -> bool:
        """Whether nothing is open that the thread's next run could use."""
        return not self._handles and not self.open_calls

    def identities(self) -> set[str]:
        """Return the identities of the open handles; in a replay, those of the recorded run."""
        if (replay := current_replay()) is not None:
            return replay.live_handles()
        return {known.identity for known in list(self._handles.values())}

    def close(self) -> None:
        """Close everything, newest first. May block."""
        self.open_calls.clear()  # they end with their handles
        while True:
            with self._lock:
                if not self._handles:
                    return
                _, known = self._handles.popitem()
            known.handle.close()


_sessions = weakref.WeakSet[Session]()


def _reset_all_after_fork() -> None:
    for session in list(_sessions):
        session.reset_in_child_process()


os.register_at_fork(after_in_child=_reset_all_after_fork)


def changed_state(known: HandleStates, now: HandleStates) -> HandleStates:
    return {
        identity: state
        for identity, state in now.items()
        if state["what"] != (known[identity]["what"] if identity in known else "")
    }


def lost_state(states: HandleStates, live: Set[str], resource: str = "") -> list[str]:
    """Return descriptions of the state of handles that this process does not have.

    `live` are the identities of those that it has. `resource` selects handles; empty for all.
    """
    return [
        known["what"]
        for identity, known in sorted(states.items())
        if known["what"] and identity not in live and identity.startswith(resource)
    ]


def open_state(states: HandleStates, live: Iterable[str]) -> HandleStates:
    """Return the non-empty states of the handles of this process."""
    return {name: states[name] for name in live if name in states and states[name]["what"]}


async def run_blocking(
    pool: Executor,
    work: Callable[[], T],
    stop: threading.Event,
    keep: Callable[[T], object] = lambda result: None,
) -> T:
    """Run work in a thread. If cancelled, stop it, wait for its end, and pass the cancellation on.

    Setting `stop` makes `work` return soon; it is cleared before the work begins. `keep` gets what
    cancelled work returned.
    """
    stop.clear()
    future = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({future})
        if not future.cancelled() and future.exception() is None:  # else asyncio would log it
            keep(future.result())
        raise
