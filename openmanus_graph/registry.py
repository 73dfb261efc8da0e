"""Which threads of this process hold live handles, and who closes them.

`SessionKeeper` is a callback on the compiled graph: it sees each run begin and end, also by an
error, a cancellation or a drain, and under every server. A run without a thread closes its
handles as it ends. A thread's handles are closed by its owner (`open_session`); nobody's thread
is closed after an idle time, and at the process's exit at the latest.
"""

import asyncio
import atexit
import contextlib
import threading
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime

from openmanus_graph.config import resolve_context
from openmanus_graph.sessions import Session

IDLE_S = 600.0
CHECKPOINTER_KEY = "__pregel_checkpointer"
"""Where LangGraph keeps a run's checkpointer; it has no public name for it."""


@dataclass
class _Entry:
    lasting: bool
    """A thread's session outlives its runs."""
    session: Session | None = None
    configured_for: uuid.UUID | None = None
    """The run whose settings the session has."""
    runs: set[uuid.UUID] = field(default_factory=set[uuid.UUID])
    owners: int = 0
    idle: threading.Timer | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_entries: dict[str, _Entry] = {}
_roots: dict[uuid.UUID, tuple[uuid.UUID, str]] = {}
"""Run id of a chain -> run id of the graph it belongs to, and that graph's session key."""
_lock = threading.Lock()
"""Held while entries come and go; sessions are closed in other threads than the event loop's."""


async def enter_session(runtime: Runtime[Any]) -> Session:
    """Return the session of the run a node belongs to, with this run's settings.

    Raises:
        ConfigError: The settings are wrong.
    """
    config = get_config()
    run, key = _place_of(config)
    entry = _entries[key]
    if entry.session is not None and entry.configured_for == run:
        return entry.session
    line = await _line_of(config)
    return await asyncio.to_thread(_configure, entry, key, run, line, runtime)


def saved_thread(config: RunnableConfig) -> str | None:
    """Return the id of the thread that a checkpointer keeps, if there is one."""
    configurable = config.get("configurable", {})
    # LangGraph fills in the thread's id whether or not anything is saved.
    if configurable.get(CHECKPOINTER_KEY) is None:
        return None
    return str(configurable["thread_id"])


@contextlib.asynccontextmanager
async def open_session(thread: str) -> AsyncGenerator[None]:
    """Own a thread: its kernel, shell and browser stay open until the last owner leaves."""
    with _lock:
        entry = _entries.setdefault(thread, _Entry(lasting=True))
        entry.owners += 1
    try:
        yield
    finally:
        entry.owners -= 1
        await asyncio.shield(asyncio.to_thread(_close, thread))


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
        if run_id in _roots:
            return  # seen already, by the keeper of a graph around this one
        known = _roots.get(parent_run_id) if parent_run_id else None
        if known is not None:
            _roots[run_id] = known
            return
        thread = (metadata or {}).get("thread_id")
        key = str(thread) if thread else f"run {run_id}"
        _roots[run_id] = (run_id, key)
        with _lock:
            entry = _entries.setdefault(key, _Entry(lasting=bool(thread)))
            entry.runs.add(run_id)
        if entry.idle is not None:
            entry.idle.cancel()
            entry.idle = None

    async def on_chain_end(self, outputs: Any, *, run_id: uuid.UUID, **kwargs: Any) -> None:  # noqa: D102  # LangChain's
        await _leave(run_id)

    async def on_chain_error(  # noqa: D102  # LangChain's
        self, error: BaseException, *, run_id: uuid.UUID, **kwargs: Any
    ) -> None:
        await _leave(run_id)


async def _leave(run_id: uuid.UUID) -> None:
    root, key = _roots.pop(run_id, (None, ""))
    if root != run_id:
        return
    entry = _entries[key]
    entry.runs.discard(run_id)
    if entry.runs or entry.owners:
        return
    if entry.lasting:
        # A timer of its own: the event loop may end before the thread is taken up again.
        entry.idle = threading.Timer(IDLE_S, _close, (key,))
        entry.idle.daemon = True
        entry.idle.start()
    else:
        await asyncio.shield(asyncio.to_thread(_close, key))


def _place_of(config: RunnableConfig) -> tuple[uuid.UUID, str]:
    callbacks = config.get("callbacks")
    parent = callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
    if parent is None or parent not in _roots:
        raise RuntimeError("This node runs outside of a graph that build_manus_graph() made.")
    return _roots[parent]


async def _line_of(config: RunnableConfig) -> str:
    """Name the fork that a run is, nothing for one that simply goes on.

    Going back to a checkpoint, or editing one, makes a new checkpoint that says so.
    """
    thread = saved_thread(config)
    if thread is None:
        return ""
    saver: Any = config.get("configurable", {})[CHECKPOINTER_KEY]
    head = await saver.aget_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
    if head is None or head.metadata.get("source") not in ("fork", "update"):
        return ""
    return f"@{head.config['configurable']['checkpoint_id']}"


def _configure(
    entry: _Entry, key: str, run: uuid.UUID, line: str, runtime: Runtime[Any]
) -> Session:
    with entry.lock:
        if entry.session is not None and entry.configured_for == run:
            return entry.session  # another task of the same step was first
        settings = resolve_context(runtime, key)
        if entry.session is None:
            entry.session = Session(key, settings)
        else:
            entry.session.configure(settings)
        entry.session.line = line
        entry.session.workspace.prepare()
        entry.configured_for = run
        return entry.session


def _close(key: str) -> None:
    with _lock:
        entry = _entries.get(key)
        if entry is None or entry.runs or entry.owners:
            return  # somebody else still needs it
        del _entries[key]
    if entry.idle is not None:
        entry.idle.cancel()
    if entry.session is not None:
        entry.session.close()


def _close_all() -> None:
    for entry in list(_entries.values()):
        if entry.session is not None:
            entry.session.close()
    _entries.clear()


atexit.register(_close_all)
