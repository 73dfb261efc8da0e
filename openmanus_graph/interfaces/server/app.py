"""The web app inside LangGraph's server; langgraph.json names `app`."""

import asyncio
import contextlib
import datetime
import logging
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import FastAPI
from langgraph.pregel import Pregel
from langgraph_api.config import THREAD_TTL
from langgraph_api.graph import get_assistant_id
from starlette.responses import JSONResponse

from openmanus_graph.backends.persistence.accounts import MACHINE_IDENTITY
from openmanus_graph.backends.persistence.threads import DAMAGED, Thread
from openmanus_graph.errors import StorageError
from openmanus_graph.interfaces.server.runs import stop_all_runs
from openmanus_graph.interfaces.server.store import (
    OWNER_KEY,
    Store,
    current,
    is_startable,
    state_of,
)
from openmanus_graph.interfaces.server.turns import begin_at_once
from openmanus_graph.interfaces.server.web_app import build_app, serving
from openmanus_graph.interfaces.service.accounts import accounts
from openmanus_graph.interfaces.service.http import end_in_time
from openmanus_graph.state.setting_declaration import times_by_state

READ_AT_START = 20
READY_S = 5.0
Restored = list[tuple[Thread, dict[str, Any]]]
"""Threads, each with its entry in the server's list."""


def _global_store() -> Any:  # a dictionary with attributes, of a package without types
    try:
        from langgraph_runtime_inmem.database import GLOBAL_STORE
    except ImportError:
        return None
    return GLOBAL_STORE


async def restore_threads(store: Store) -> Restored:
    """Add every thread that the server can run to its list.

    Returns those whose questions are not added yet: reading all of them would take long.
    """
    server_store = _global_store()
    if server_store is None:  # LangGraph's server has its own database
        return []
    known: list[dict[str, Any]] = server_store["threads"]
    waiting: Restored = []
    known_ids = {str(thread["thread_id"]) for thread in known}
    owners = await asyncio.to_thread(lambda: accounts().owners())
    for thread in await asyncio.to_thread(store.threads.outlines):
        damaged = thread.status == DAMAGED  # neither agent nor times of its row can be trusted
        if is_startable(thread.id) and thread.id not in known_ids and not damaged:
            known.append(_entry(thread, owners.get(thread.id, "")))
            if thread.status == "waiting":
                waiting.append((thread, known[-1]))
    await add_questions(waiting[:READ_AT_START])
    return waiting[READ_AT_START:]


async def add_questions(waiting: Restored) -> None:
    for thread, entry in waiting:
        state = await state_of(thread.id, thread.agent)
        entry["interrupts"] = {
            task.id: [{"id": one.id, "value": one.value} for one in task.interrupts]
            for task in (state.tasks if state else ())
            if task.interrupts
        }


def _entry(thread: Thread, owner: str) -> dict[str, Any]:
    created, updated = (
        datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
        for text in (thread.created, thread.updated)
    )
    return {
        "thread_id": uuid.UUID(thread.id),
        "created_at": created,
        "updated_at": updated,
        "state_updated_at": updated,
        "metadata": {"graph_id": thread.agent, OWNER_KEY: owner or MACHINE_IDENTITY},
        "status": "interrupted" if thread.status in ("waiting", "running") else "idle",
        "config": {},
        "values": None,
        "interrupts": {},
    }


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    ttl = THREAD_TTL or {}  # which LangGraph's server in memory does not sweep itself
    minutes = ttl.get("default_ttl") if ttl.get("strategy", "delete") == "delete" else None
    keep_s = times_by_state(f"{minutes:.0f}m") if minutes else None
    async with serving(end_in_time, keep_s) as store:
        deferred = await restore_threads(store)
        text = "Studio needs the header Authorization: Bearer TOKEN. See docs/server.md."
        logging.getLogger(__name__).info(text)
        adding_questions = asyncio.create_task(add_questions(deferred))
        try:
            yield
        finally:
            await stop_all_runs()
            adding_questions.cancel()


# At DEBUG the server logs whole requests: keys of the form, and what the user types into a browser
# that they took over.
logging.getLogger("asgi").setLevel(logging.INFO)
# The server would load pickles of the working folder, before the lifespan starts.
if (_pickles := _global_store()) is not None:
    from langgraph_runtime_inmem.ops import Runs

    _pickles.flag = "n"  # `PersistentDict`'s mark of a new file
    begin_at_once(Runs)
_graphs: Any = Pregel
_make_schema = _graphs.get_context_jsonschema
_schemas: dict[Any, Any] = {}


def _schema_of(graph: Any) -> Any:
    """Return the schema of a graph's context: the server asks at each run, which took 20 ms."""
    context = graph.context_schema
    return _schemas.get(context) or _schemas.setdefault(context, _make_schema(graph))


_graphs.get_context_jsonschema = _schema_of
app = build_app(get_assistant_id, lifespan)


@app.get("/health")
@app.get("/ready")
async def ready() -> JSONResponse:
    """Say whether requests can be served: the database answers, and the server is not ending."""
    try:
        async with asyncio.timeout(READY_S):
            await asyncio.to_thread(current().threads.existing, [""])
        is_ready = not current().journal.is_closing
    except (TimeoutError, StorageError):
        is_ready = False
    return JSONResponse({"ok": is_ready}, 200 if is_ready else 503)
