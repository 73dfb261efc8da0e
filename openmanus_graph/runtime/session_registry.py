"""Assigns sessions to runs, and closes them.

Sessions are found by run. `SessionKeeper`, a callback on each compiled graph, sees every run start
and end, also by an error, a cancellation or a drain, and under every server.

1. A run on a thread uses the thread's session. A second run on the same thread at the same time (of
   another graph, for example) gets a separate session.
2. A run without a thread has a separate session, which is closed when it ends.
3. A graph run inside a node shares the session of the run around it, unless its metadata name a
   worker (`WORKER_KEY`): parallel runs must not share a kernel, a shell or a page. A worker's
   session lives as long as the one around it, so the next plan step of the same worker reuses it.
4. A session gets a run's settings once, at the run's first node (`enter_session`): the
   configuration is resolved, the workspace prepared, and the run's start reported to the observer.
   After a return to an earlier checkpoint, the files are restored.
5. A thread's session is closed by its owner (`open_session`). Without one it is closed when its run
   ends with nothing open or is cancelled, after `IDLE_S` seconds, or when the process exits.
"""

import asyncio
import atexit
import contextlib
import os
import threading
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime

from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime import checkpoint_lineage as lineages
from openmanus_graph.runtime.events import Emit, ObservedRun, notice, run_observer
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import WORKER_SEPARATOR, Session, WritingHandle
from openmanus_graph.runtime.traces import RunSpan
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

MOST_CLOSERS = 32
"""Threads that close the sessions of a server that ends."""
WORKER_KEY = "openmanus_worker"
"""Metadata of a run inside another one that gets a separate session; rule 3."""
TRIGGER_KEY = "openmanus_trigger"
"""Metadata of a server's run: what started it."""
IDLE_S = 600.0


@dataclass
class _Entry:
    thread: str
    """Determines the private folder and the default workspace, also for workers."""
    lasting: bool
    """A thread's session outlives its runs."""
    has_thread: bool = True
    """Whether `thread` is one; else it is the key of a run without a thread."""
    session: Session | None = None
    configured_for: uuid.UUID | None = None
    """The run whose settings the session has."""
    runs: set[uuid.UUID] = field(default_factory=set[uuid.UUID])
    observed: dict[uuid.UUID, ObservedRun] = field(default_factory=dict[uuid.UUID, ObservedRun])
    """The runs reported, or to be reported, to the observer, by id."""
    started: set[uuid.UUID] = field(default_factory=set[uuid.UUID])
    """The runs whose start was reported to the observer."""
    prepared_for: uuid.UUID | None = None
    """The run whose start was reported, and whose files and handles match its history."""
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    owners: int = 0
    idle: threading.Timer | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_entries: dict[str, _Entry] = {}
_lock = threading.Lock()
"""Guards `_entries`: sessions are closed in other OS threads than the event loop's."""


class RunLocation(NamedTuple):
    """Where a node, or a graph within it, runs."""

    run: uuid.UUID
    """Of the graph it belongs to."""
    key: str
    """Of that graph's session."""
    worker: str
    """See `WORKER_KEY`; empty for the thread's own run."""
    answered: bool
    """Whether the run may have been resumed with an answer."""
    span: RunSpan | None = None
    """The run's span, where runs are traced."""
    agent: str = ""
    """Name of the graph."""


locations: dict[uuid.UUID, RunLocation] = {}
"""By LangChain's run id of each running graph and node."""
tool_calls: dict[uuid.UUID, RunLocation] = {}
"""The run around each tool call that is under way."""


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


Preparation = Callable[[Session, Sequence[Session], Emit], Awaitable[Sequence[str]]]
"""Takes the session of a run, with its lineage, the sessions of its workers, and the function that
sends events; returns notices for the person."""
_preparations: list[Preparation] = []


def prepare_runs_with(prepare: Preparation) -> None:
    """Register a function to call before the first node of each run on a thread."""
    _preparations.append(prepare)


async def enter_session(runtime: Runtime[Any]) -> Session:
    """Return the session of a node's run, with this run's settings. ConfigError: they are wrong."""
    config = get_config()
    location = location_of(config)
    run, entry = location.run, _entries[location.key]
    if entry.session is not None and entry.configured_for == run:
        session = entry.session
    else:
        lineage = await lineages.lineage_of(config)
        session = await asyncio.to_thread(_configure, entry, location.key, run, lineage, runtime)
        lineages.require_shared_ledger(config, session.settings.database)
        own_thread = location.key.partition(WORKER_SEPARATOR)[0]
        is_kept = current_replay() is None  # a replay does not change the thread
        session.checkpointed = is_kept and lineages.checkpointed_thread(config) == own_thread
    if entry.prepared_for != run:
        await _start(entry, location, session, runtime)
    return session


async def _start(entry: _Entry, at: RunLocation, session: Session, runtime: Runtime[Any]) -> None:
    """Report a run, and restore the files and handles it begins with, before its first node."""
    async with entry.starting:  # waiting calls resume in parallel
        if (observer := run_observer()) and at.run in entry.observed.keys() - entry.started:
            context = runtime.context if isinstance(runtime.context, Context) else None
            await observer.on_start(entry.observed[at.run], session.settings, context)
            entry.started.add(at.run)
        if entry.prepared_for != at.run and entry.has_thread and not session.is_nested:
            if session.lineage.came_back and not entry.lasting:
                raise ConfigError(
                    f"A run works on thread {entry.thread}, whose files cannot be restored "
                    "now. Wait for its end, or stop it, before you go back."
                )
            if current_replay() is None:  # a replay has no files
                emit = runtime.stream_writer
                for prepare in _preparations:
                    for text in await prepare(session, _workers_of(at.key), emit):
                        notice(emit, text)
        entry.prepared_for = at.run


def _workers_of(key: str) -> list[Session]:
    below = key + WORKER_SEPARATOR
    found = (entry.session for name, entry in list(_entries.items()) if name.startswith(below))
    return [session for session in found if session is not None]


def running_session(config: RunnableConfig) -> Session | None:
    """Return the session of the run that a node belongs to; None outside of runs."""
    location = find_location(config)
    return _entries[location.key].session if location else None


def newest_output(thread: str, resource: str) -> str:
    """Return the newest output line of the call that uses a thread's handle; never waits."""
    entry = _entries.get(thread)
    handle = entry.session.find(resource) if entry is not None and entry.session else None
    return handle.newest_line() if isinstance(handle, WritingHandle) else ""


def is_answered(config: RunnableConfig) -> bool:
    """Return True if a node's run may have been resumed with an answer; so in others' graphs."""
    location = find_location(config)
    return location is None or location.answered


def observed_run(config: RunnableConfig) -> tuple[str, str] | None:
    """Return run and thread of a node if the run is reported to the observer; else None."""
    location = location_of(config)
    entry = _entries.get(location.key.partition(WORKER_SEPARATOR)[0])
    known = next(iter(entry.observed.values()), None) if entry is not None else None
    return None if known is None else (known.id, known.thread)


@contextlib.asynccontextmanager
async def open_session(thread: str) -> AsyncGenerator[None]:
    """Own a thread: its kernel, shell and browser stay open until the last owner exits."""
    with _lock:
        entry = _entries.setdefault(thread, _Entry(thread, lasting=True))
        entry.owners += 1
    try:
        yield
    finally:
        entry.owners -= 1
        await asyncio.shield(asyncio.to_thread(close_session, thread))


@contextlib.asynccontextmanager
async def borrow_session(
    thread: str, settings: Settings, worker: str = ""
) -> AsyncGenerator[Session]:
    """Use a thread's session between or during its runs; afterwards it is treated as after a run.

    `settings` are for a session that is opened for this. `worker` is as in `WORKER_KEY`.
    """
    key = f"{thread}{WORKER_SEPARATOR}{worker}" if worker else thread

    def opened() -> Session:
        with used.lock:
            if used.session is None:
                used.session = Session(key, settings)
                used.session.checkpointed = True  # the thread is, so its saved data is used
                used.session.workspace.prepare()
            return used.session

    with _lock:
        entry = _entries.setdefault(thread, _Entry(thread, lasting=True))
        used = _entries.setdefault(key, _Entry(thread, lasting=True))
        entry.owners += 1
        _stop_idling(entry)
    try:
        yield await asyncio.to_thread(opened)
    finally:
        entry.owners -= 1
        if not entry.runs and not entry.owners:
            _begin_idling(entry, thread)


def register_run(
    run_id: uuid.UUID,
    around: RunLocation | None,
    worker: str,
    metadata: dict[str, Any],
    inputs: Any,
) -> str:
    """Assign an entry to a run, and return the entry's key. `around` is the run around it."""
    thread = metadata.get("thread_id")
    with _lock:
        known = _entries.get(str(thread))
        if around is not None:
            key = f"{around.key}{WORKER_SEPARATOR}{worker}"
        elif thread and (known is None or not known.runs):
            key = str(thread)
        else:  # no thread, or a run works on it already
            key = f"run {run_id}"
        lasting = key == str(thread) or bool(worker)
        named = str(thread) if thread else key
        entry = _entries.setdefault(key, _Entry(named, lasting, has_thread=bool(thread)))
        if not entry.runs:
            entry.starting = asyncio.Lock()  # the one before belongs to that run's event loop
        entry.runs.add(run_id)
        if thread and around is None and run_observer() is not None:
            entry.observed[run_id] = ObservedRun(
                id=str(run_id),
                thread=str(thread),
                agent=str(metadata.get("graph_id", "")),
                given=inputs,
                checkpoint=str(metadata.get("checkpoint_id") or ""),
                trigger=str(metadata.get(TRIGGER_KEY) or "api"),
            )
    _stop_idling(entry)
    return key


async def release_run(location: RunLocation, error: BaseException | None) -> None:
    """Release the session of a run that has ended; close it if nothing needs it."""
    run_id, key = location.run, location.key
    entry = _entries[key]
    entry.runs.discard(run_id)
    entry.started.discard(run_id)
    run, observer = entry.observed.pop(run_id, None), run_observer()
    if run is not None and observer is not None:
        await observer.on_end(run, error)
    if not entry.runs and entry.session is not None and entry.session.closers_of_run:
        await asyncio.shield(asyncio.to_thread(entry.session.end_run))
    if entry.runs or entry.owners or location.worker:
        return  # a worker's session ends with the outer run
    sessions = [entry.session, *_workers_of(key)]
    is_used = any(session is not None and not session.is_empty for session in sessions)
    if entry.lasting and is_used and not isinstance(error, asyncio.CancelledError):
        _begin_idling(entry, key)
    else:
        await asyncio.shield(asyncio.to_thread(close_session, key))


def _begin_idling(entry: _Entry, key: str) -> None:
    # Not a timer of the event loop, which may end before the thread is used again.
    entry.idle = threading.Timer(IDLE_S, close_session, (key,))
    entry.idle.daemon = True
    entry.idle.start()


def _stop_idling(entry: _Entry) -> None:
    if entry.idle is not None:
        entry.idle.cancel()
        entry.idle = None


def _configure(
    entry: _Entry, key: str, run: uuid.UUID, lineage: lineages.Lineage, runtime: Runtime[Any]
) -> Session:
    with entry.lock:
        if entry.session is not None and entry.configured_for == run:
            return entry.session  # configured by another task of the same superstep
        # Inside another app's graph the runtime carries that app's context: ours is unset.
        context = runtime.context if isinstance(runtime.context, Context) else Context()
        settings = resolve_settings(context, entry.thread, has_thread=entry.has_thread)
        if entry.session is None:
            entry.session = Session(key, settings)
        else:
            entry.session.configure(settings)
        entry.session.lineage = lineage
        entry.session.workspace.prepare()
        entry.configured_for = run
        return entry.session


def close_session(key: str) -> None:
    """Close a thread's session, unless it has owners or runs. Blocks."""
    with _lock:
        entry = _entries.get(key)
        if entry is None or entry.runs or entry.owners:
            return  # still in use
        workers = [name for name in _entries if name.startswith(key + WORKER_SEPARATOR)]
        closed = [_entries.pop(name) for name in (*workers, key)]
    _stop_idling(entry)
    for closing in closed:
        if closing.session is not None:
            closing.session.close()


def close_unused() -> bool:
    """Close the sessions without owners and runs. Return False if others remain. Blocks."""
    for key in list(_entries):
        if WORKER_SEPARATOR not in key:  # workers' sessions are closed with their outer ones
            close_session(key)
    return not _entries


def find_session(thread: str) -> Session | None:
    entry = _entries.get(thread)
    return None if entry is None else entry.session


def close_all() -> None:
    """Close all handles of this process. Blocks."""
    for session in _all_sessions():
        session.close()


async def close_all_at_once() -> None:
    """Close all handles of this process, one thread per session: programs take time to end."""
    sessions, loop = _all_sessions(), asyncio.get_running_loop()
    with ThreadPoolExecutor(max(1, min(len(sessions), MOST_CLOSERS))) as pool:
        await asyncio.gather(*(loop.run_in_executor(pool, one.close) for one in sessions))


def _all_sessions() -> list[Session]:
    entries = list(_entries.values())
    _entries.clear()
    return [entry.session for entry in entries if entry.session is not None]


def _reset_after_fork() -> None:
    """Drop all runs and sessions in a forked child: they belong to the parent."""
    global _lock  # another thread may hold it, which the child does not have
    _lock = threading.Lock()
    for belonging in (_entries, locations, tool_calls):
        belonging.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(close_all)
