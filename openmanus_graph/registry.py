"""Which threads of this process hold live handles, and who closes them.

`SessionKeeper` is a callback on the compiled graph: it sees each run begin and end, also by an
error, a cancellation or a drain, and under every server. A run without a thread closes its
handles as it ends. A thread's handles are closed by its owner (`open_session`); nobody's thread
is closed when its run is cancelled, after an idle time, and at the process's exit at the latest.
"""

import asyncio
import atexit
import contextlib
import threading
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime

from openmanus_graph.collector import set_aside, take_back
from openmanus_graph.config import resolve_context
from openmanus_graph.saved import line_of
from openmanus_graph.sessions import LANE_SEPARATOR, Session
from openmanus_graph.state.context import Context
from openmanus_graph.watching import WatchedRun, watcher

LANE_KEY = "openmanus_lane"
"""Metadata of a run inside another one that gets a session of its own: runs side by side must not
share a kernel, a shell or a page. The session lives as long as the one of the run around it."""
IDLE_S = 600.0


@dataclass
class _Entry:
    thread: str
    """Names the default workspace."""
    lasting: bool
    """A thread's session outlives its runs."""
    session: Session | None = None
    configured_for: uuid.UUID | None = None
    """The run whose settings the session has."""
    runs: set[uuid.UUID] = field(default_factory=set[uuid.UUID])
    watched: dict[uuid.UUID, WatchedRun] = field(default_factory=dict[uuid.UUID, WatchedRun])
    """What the watcher was or will be told of, by run."""
    begun: set[uuid.UUID] = field(default_factory=set[uuid.UUID])
    """The runs whose beginning it was told."""
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    owners: int = 0
    idle: threading.Timer | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Place(NamedTuple):
    """Where a chain runs."""

    run: uuid.UUID
    """Of the graph it belongs to."""
    key: str
    """Of that graph's session."""
    lane: str
    """Which of several runs side by side this is; see `LANE_KEY`."""


_entries: dict[str, _Entry] = {}
_places: dict[uuid.UUID, _Place] = {}
"""By the run id of each chain under way."""
_lock = threading.Lock()
"""Held while entries come and go; sessions are closed in other threads than the event loop's."""


async def enter_session(runtime: Runtime[Any]) -> Session:
    """Return the session of the run a node belongs to, with this run's settings.

    Raises:
        ConfigError: The settings are wrong.
    """
    config = get_config()
    run, key, _ = _place_of(config)
    entry = _entries[key]
    if entry.session is not None and entry.configured_for == run:
        set_aside(run)  # by now the libraries of the first step are loaded
        session = entry.session
    else:
        line = await line_of(config)
        session = await asyncio.to_thread(_configure, entry, key, run, line, runtime)
    if run in entry.watched and run not in entry.begun:
        await _tell_of_beginning(entry, run, session, runtime)
    return session


async def _tell_of_beginning(
    entry: _Entry, run: uuid.UUID, session: Session, runtime: Runtime[Any]
) -> None:
    async with entry.telling:  # calls that were waiting go on side by side
        onlooker = watcher()
        if onlooker is not None and run not in entry.begun:
            context = runtime.context if isinstance(runtime.context, Context) else None
            await onlooker.begins(entry.watched[run], session.settings, context)
            entry.begun.add(run)


def running_session() -> Session | None:
    """Return the session of the run under way here; None outside of runs."""
    callbacks = get_config().get("callbacks")
    parent = callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
    place = _places.get(parent) if parent else None
    return _entries[place.key].session if place else None


def thread_of(config: RunnableConfig) -> tuple[str, str] | None:
    """Return run and thread that a node works for, if it is one that the watcher knows."""
    place = _place_of(config)
    entry = _entries.get(place.key.partition("\0")[0])
    known = next(iter(entry.watched.values()), None) if entry is not None else None
    return None if known is None else (known.id, known.thread)


@contextlib.asynccontextmanager
async def open_session(thread: str) -> AsyncGenerator[None]:
    """Own a thread: its kernel, shell and browser stay open until the last owner leaves."""
    with _lock:
        entry = _entries.setdefault(thread, _Entry(thread, lasting=True))
        entry.owners += 1
    try:
        yield
    finally:
        entry.owners -= 1
        await asyncio.shield(asyncio.to_thread(close_session, thread))


class SessionKeeper(AsyncCallbackHandler):
    """Opens a graph run's session entry and lets go of it when the run is over."""

    run_inline = True  # in order with the run, so that no node starts before its entry exists

    @property
    def ignore_llm(self) -> bool:
        """Take no interest in models, for whom LangChain would write out each conversation."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """Take no interest in chat models either."""
        return True

    async def on_chain_start(  # noqa: D102  # LangChain's
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: uuid.UUID,
        parent_run_id: uuid.UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if run_id in _places:
            return  # seen already, by the keeper of a graph around this one
        around = _places.get(parent_run_id) if parent_run_id else None
        lane = str((metadata or {}).get(LANE_KEY, ""))
        if around is not None and around.lane == lane:
            _places[run_id] = around
            return
        thread = (metadata or {}).get("thread_id")
        with _lock:
            if around is not None:
                key = _lane_key(around.key, lane)
            else:
                key = str(thread) if thread and not _is_busy(str(thread)) else f"run {run_id}"
            named, lasting = str(thread) if thread else key, key == str(thread) or bool(lane)
            entry = _entries.setdefault(key, _Entry(named, lasting))
            entry.runs.add(run_id)
            if thread and around is None and watcher() is not None:
                said = metadata or {}
                entry.watched[run_id] = WatchedRun(
                    id=str(run_id),
                    thread=str(thread),
                    agent=str(said.get("graph_id", "")),
                    given=inputs,
                    checkpoint=str(said.get("checkpoint_id") or ""),
                )
        _places[run_id] = _Place(run_id, key, lane)
        if entry.idle is not None:
            entry.idle.cancel()
            entry.idle = None

    async def on_chain_end(self, outputs: Any, *, run_id: uuid.UUID, **kwargs: Any) -> None:  # noqa: D102  # LangChain's
        await _leave(run_id, None)

    async def on_chain_error(  # noqa: D102  # LangChain's
        self, error: BaseException, *, run_id: uuid.UUID, **kwargs: Any
    ) -> None:
        await _leave(run_id, error)


async def _leave(run_id: uuid.UUID, error: BaseException | None) -> None:
    place = _places.pop(run_id, None)
    if place is None or place.run != run_id:
        return
    take_back(run_id)
    key = place.key
    entry = _entries[key]
    entry.runs.discard(run_id)
    entry.begun.discard(run_id)
    run, onlooker = entry.watched.pop(run_id, None), watcher()
    if run is not None and onlooker is not None:
        await onlooker.ends(run, error)
    if entry.runs or entry.owners or place.lane:
        return  # a lane ends with the run around it
    if entry.lasting and not isinstance(error, asyncio.CancelledError):
        # A timer of its own: the event loop may end before the thread is taken up again.
        entry.idle = threading.Timer(IDLE_S, close_session, (key,))
        entry.idle.daemon = True
        entry.idle.start()
    else:
        await asyncio.shield(asyncio.to_thread(close_session, key))


def _place_of(config: RunnableConfig) -> _Place:
    callbacks = config.get("callbacks")
    parent = callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
    if parent is None or parent not in _places:
        raise RuntimeError("This node runs outside of a graph that build_manus_graph() made.")
    return _places[parent]


def _configure(
    entry: _Entry, key: str, run: uuid.UUID, line: str, runtime: Runtime[Any]
) -> Session:
    with entry.lock:
        if entry.session is not None and entry.configured_for == run:
            return entry.session  # another task of the same step was first
        settings = resolve_context(runtime, entry.thread)
        if entry.session is None:
            entry.session = Session(key, settings)
        else:
            entry.session.configure(settings)
        entry.session.line = line
        entry.session.workspace.prepare()
        entry.configured_for = run
        return entry.session


def _is_busy(thread: str) -> bool:
    """Say whether a run is under way on a thread.

    A second one, of another graph say, must not share its handles and settings.
    """
    return thread in _entries and bool(_entries[thread].runs)


def _lane_key(key: str, lane: str) -> str:
    return f"{key}{LANE_SEPARATOR}{lane}"


def close_session(key: str) -> None:
    """Close what a thread holds, unless somebody owns or uses it. Blocks."""
    with _lock:
        entry = _entries.get(key)
        if entry is None or entry.runs or entry.owners:
            return  # somebody else still needs it
        lanes = [name for name in _entries if name.startswith(_lane_key(key, ""))]
        closed = [_entries.pop(name) for name in (*lanes, key)]
    if entry.idle is not None:
        entry.idle.cancel()
    for left in closed:
        if left.session is not None:
            left.session.close()


def close_unused() -> bool:
    """Close the sessions that nobody owns or uses; False when others are left. Blocks."""
    for key in [key for key in list(_entries) if "\0" not in key]:  # lanes go with their runs
        close_session(key)
    return not _entries


def find_session(thread: str) -> Session | None:
    """Return a thread's session while it has one; never waits."""
    entry = _entries.get(thread)
    return None if entry is None else entry.session


def close_all() -> None:
    """Close all handles of this process. Blocks."""
    for entry in list(_entries.values()):
        if entry.session is not None:
            entry.session.close()
    _entries.clear()


atexit.register(close_all)
