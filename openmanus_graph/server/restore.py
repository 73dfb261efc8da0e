"""Makes LangGraph's server know the threads of the home folder again.

The server keeps its own list of threads and runs as pickles in the working folder, ten seconds
late. It is not read: whoever can put a file there - a cloned repository, say - would run code
here. Our database has the same, durably.
"""

import asyncio
import contextlib
import datetime
import uuid
from typing import Any, cast

from openmanus_graph.persistence.threads import Thread
from openmanus_graph.server.store import Store, state_of
from openmanus_graph.server.threads import is_startable

TOLD_AT_ONCE = 20
Restored = list[tuple[Thread, dict[str, Any]]]
"""Threads, and what the server keeps of them."""


def ignore_pickles() -> None:
    """Keep the in-memory server from loading what lies in the working folder."""
    with contextlib.suppress(ImportError):  # another server, which has a database
        from langgraph_runtime_inmem import database

        database.GLOBAL_STORE.flag = "n"


async def restore_threads(store: Store) -> Restored:
    """Tell the server of every thread that it can run.

    Returns:
        Threads whose questions it has not been told yet: reading all of them would take long.
    """
    try:
        from langgraph_runtime_inmem import database
    except ImportError:
        return []
    waiting: Restored = []
    memory: dict[str, list[dict[str, Any]]] = cast("Any", database).GLOBAL_STORE
    known = memory["threads"]
    there = {str(thread["thread_id"]) for thread in known}
    for thread in await asyncio.to_thread(store.threads.all):
        if is_startable(thread.id) and thread.id not in there:
            known.append(_entry(thread))
            if thread.status == "waiting":
                waiting.append((thread, known[-1]))
    await tell_questions(waiting[:TOLD_AT_ONCE])
    return waiting[TOLD_AT_ONCE:]


async def tell_questions(waiting: Restored) -> None:
    """Tell the server what these threads ask."""
    for thread, entry in waiting:
        entry["interrupts"] = await _interrupts(thread)


def _entry(thread: Thread) -> dict[str, Any]:
    """Return what the server keeps of a thread."""
    return {
        "thread_id": uuid.UUID(thread.id),
        "created_at": _moment(thread.created),
        "updated_at": _moment(thread.updated),
        "state_updated_at": _moment(thread.updated),
        "metadata": {"graph_id": thread.agent},
        "status": "interrupted" if thread.status in ("waiting", "running") else "idle",
        "config": {},
        "values": None,
        "interrupts": {},
    }


async def _interrupts(thread: Thread) -> dict[str, Any]:
    state = await state_of(thread.id, thread.agent)
    return {
        task.id: [{"id": one.id, "value": one.value} for one in task.interrupts]
        for task in (state.tasks if state else ())
        if task.interrupts
    }


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


ignore_pickles()
