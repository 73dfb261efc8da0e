"""The web app inside aegra, which runs our graphs in several processes; deploy/aegra.json names it.

aegra (Apache-2.0) keeps runs in PostgreSQL and hands them to its workers by Redis. When a worker
dies, another one starts its runs again; `shared_graph` has them go on where they were.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator
from importlib import import_module
from typing import Any

import httpx
import psycopg
from langgraph_sdk.client import LangGraphClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.checkpoints import open_server_saver
from openmanus_graph.interfaces.server.own_api import OwnServer, set_own_server
from openmanus_graph.interfaces.server.token import server_token
from openmanus_graph.interfaces.server.web_app import build_app, serving

_START_LOCK = 0x0A_E6_2A
"""The advisory lock of the database that a process holds while it starts."""
_POLL_S = 0.2


class OpenWhileServing:
    """ASGI middleware that opens what runs need before aegra starts, and closes it after its end.

    aegra begins with runs when it starts, before it enters the lifespan of an app of ours, and
    lets them end after that.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; around the lifespan, everything is open."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        async with contextlib.AsyncExitStack() as opened, contextlib.AsyncExitStack() as starting:
            try:
                await opened.enter_async_context(_opened())
                await starting.enter_async_context(_alone())
            except (ConfigError, sqlite3.Error, psycopg.Error, OSError) as error:
                await receive()
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return

            async def send_when_started(message: Message) -> None:
                await starting.aclose()
                await send(message)

            await self._app(scope, receive, send_when_started)


@contextlib.asynccontextmanager
async def _opened() -> AsyncGenerator[None]:
    if database_url().is_local:
        raise ConfigError(
            "Several processes share the threads, so they need one database: set "
            "OPENMANUS_DATABASE_URL to the postgresql:// address that aegra has in DATABASE_URL."
        )
    async with open_server_saver(), serving():
        yield


@contextlib.asynccontextmanager
async def _alone() -> AsyncGenerator[None]:
    """Start while no other process does: aegra's cannot make their tables side by side."""
    address = database_url().secret.get_secret_value()
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        # A statement that waits would keep the other's `CREATE INDEX CONCURRENTLY` from ending.
        while not await _try_lock(connection):  # noqa: ASYNC110  # another process holds it
            await asyncio.sleep(_POLL_S)
        yield


async def _try_lock(connection: psycopg.AsyncConnection[Any]) -> bool:
    cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", (_START_LOCK,))
    return await cursor.fetchone() == (True,)


def _assistant_id(graph: str) -> str:
    # By name: aegra is in no extra of ours, as it wants Python 3.12.
    services: Any = import_module("aegra_api.services.langgraph_service")
    assistants: Any = import_module("aegra_api.utils.assistants")
    known = services.get_langgraph_service().list_graphs()
    return str(assistants.resolve_assistant_id(graph, known))


def _connect() -> LangGraphClient:
    """Return a client that calls the app without a network."""
    own = httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False),
        base_url="http://localhost",
        headers={"Authorization": f"Bearer {server_token()}"},
    )
    return LangGraphClient(own)


set_own_server(OwnServer(_connect, is_alone=False))
app = build_app(_assistant_id)
app.add_middleware(OpenWhileServing)


@app.get("/ok")
async def ok() -> dict[str, bool]:
    """Say that the server answers, as LangGraph's does."""
    return {"ok": True}
