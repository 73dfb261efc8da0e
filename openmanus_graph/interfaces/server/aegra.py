"""The web app inside aegra, which runs our graphs in several processes; deploy/aegra.json names it.

aegra (Apache-2.0) keeps runs in PostgreSQL and passes them to its workers by Redis. When a worker
dies, another one starts its runs again; `shared_graph` lets them continue where they were.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from importlib import import_module
from typing import Any, Self, cast

import httpx
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import CONFIG_KEYS
from langgraph.graph.state import CompiledStateGraph
from langgraph_sdk.client import LangGraphClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from openmanus_graph.backends.persistence.leases import LEASE_GRACE_S, LEASE_POLL_S
from openmanus_graph.backends.persistence.postgres import holding_lock
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url, storage_settings
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.graphs.catalog import build_agent
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.server.guard import INTERNAL
from openmanus_graph.interfaces.server.web_app import build_app, serving
from openmanus_graph.interfaces.service.threads import is_running
from openmanus_graph.state.setting_declaration import times_by_state

_START_LOCK = 0x0A_E6_2A
"""The advisory lock of the database that a process holds while it starts."""


class OpenWhileServing:
    """ASGI middleware that opens what runs need before aegra starts, and closes it after its end.

    aegra runs start before the lifespan of our app, and end after it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        async with contextlib.AsyncExitStack() as opened, contextlib.AsyncExitStack() as starting:
            try:
                if database_url().is_local:
                    raise ConfigError(
                        "Several processes share the threads, so they need one database: set "
                        "OPENMANUS_DATABASE_URL to the postgresql:// address that aegra has in "
                        "DATABASE_URL."
                    )
                await opened.enter_async_context(store.open_server_saver())
                await opened.enter_async_context(serving())
                # aegra's processes cannot make their tables at the same time.
                await starting.enter_async_context(holding_lock(database_url(), _START_LOCK))
            except (ConfigError, StorageError, OSError) as error:
                await receive()
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return

            async def send_when_started(message: Message) -> None:
                await starting.aclose()
                await send(message)

            await self._app(scope, receive, send_when_started)


def _assistant_id(graph: str) -> str:
    # By name: aegra is in none of our extras, because it needs Python 3.12.
    services: Any = import_module("aegra_api.services.langgraph_service")
    assistants: Any = import_module("aegra_api.utils.assistants")
    known = services.get_langgraph_service().list_graphs()
    return str(assistants.resolve_assistant_id(graph, known))


def _connect() -> LangGraphClient:
    """Return a client that acts as the user of the current request, like LangGraph's own."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path=INTERNAL)
    return LangGraphClient(httpx.AsyncClient(transport=transport, base_url="http://localhost"))


def _expire_ours_too() -> None:
    """When aegra's TTL of a thread ends (`checkpointer.ttl`), delete what we keep of it as well.

    A thread that works, waits for a person or is pinned stays: aegra then only shortens a history
    in its own tables, which hold none, and asks again later.
    """
    ttl: Any = import_module("aegra_api.services.thread_ttl")
    apply, ended = ttl._apply_strategy, times_by_state("0m")

    async def expire(session: Any, *, thread_id: str, strategy: str, **others: Any) -> str:
        threads = store.current().threads
        if strategy == "delete" and await asyncio.to_thread(threads.find, thread_id) is not None:
            if await asyncio.to_thread(threads.expired, ended, thread_id):
                await store.saver().adelete_thread(thread_id)
            else:
                strategy = "keep_latest"
        applied = await apply(session, thread_id=thread_id, strategy=strategy, **others)
        return str(applied)

    ttl._apply_strategy = expire


with contextlib.suppress(ImportError):  # a version without it
    _expire_ours_too()
store.own_server.connect, store.own_server.is_alone = _connect, False
app = build_app(_assistant_id)
app.add_middleware(OpenWhileServing)


@app.get("/ok")
async def ok() -> dict[str, bool]:
    return {"ok": True}


class SharedGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """An agent's graph whose runs continue where they were after a worker has died.

    A server starts the run of a dead worker again, with the same id and the same input. LangGraph
    continues it itself if the newest checkpoint is of the same run, but not if the run started at
    an earlier checkpoint: it would go back there again.

    Its checkpoints and long-term store are in our database, whatever the server passes: there the
    thread's lease protects them, and the page and the command line find them.
    """

    @override
    def copy(self, update: dict[str, Any] | None = None) -> Self:
        given = dict(update or {})
        if "checkpointer" in given:
            given |= {"checkpointer": store.saver(), "store": store.long_term_store()}
        return super().copy(given)

    @override
    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Stream a run, as LangGraph does, once no other worker has the thread."""
        # LangGraph takes other keys as `configurable`: a thread's id, for example.
        known: Any = {key: one for key, one in (config or {}).items() if key in CONFIG_KEYS}
        at: RunnableConfig = known
        given = at.get("configurable", {})
        thread = given["thread_id"]
        await _wait_for_worker(str(thread))
        if "checkpoint_id" in given:
            newest = await store.saver().aget_tuple({"configurable": {"thread_id": thread}})
            if newest is not None and newest.metadata.get("run_id") == given["run_id"]:
                # This very run has continued from the earlier checkpoint that it started at.
                kept = {key: one for key, one in given.items() if not key.startswith("checkpoint_")}
                at = {**at, "configurable": kept}
        streamed = cast("AsyncGenerator[Any]", super().astream(input, at, **options))
        async with contextlib.aclosing(streamed) as parts:
            async for part in parts:
                yield part


def shared_graph(agent: str) -> SharedGraph:
    """Build an agent's graph for such a server. ConfigError if there is none of this name."""
    built: Any = build_agent(agent).with_config(metadata={"graph_id": agent})
    return SharedGraph(**cast("dict[str, Any]", vars(built)))


async def _wait_for_worker(thread: str) -> None:
    """Wait until no worker has a thread: a dead worker's is free when its lease has ended."""
    home = await asyncio.to_thread(openmanus_home)
    wait_s = storage_settings().lease_s + LEASE_GRACE_S
    with contextlib.suppress(TimeoutError):  # the run then reports who has it
        async with asyncio.timeout(wait_s):
            while await asyncio.to_thread(is_running, home, thread):  # noqa: ASYNC110  # see above
                await asyncio.sleep(LEASE_POLL_S)
