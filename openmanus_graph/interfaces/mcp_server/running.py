"""Serving MCP over stdio or HTTP until the client hangs up or a signal comes."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncGenerator
from typing import Any

import anyio
from mcp.server.runner import serve_loop
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from openmanus_graph.interfaces.mcp_server.server import ToolServer
from openmanus_graph.interfaces.mcp_server.stdio import Wire, stdio_streams
from openmanus_graph.interfaces.service.guard import Guard
from openmanus_graph.interfaces.service.http import serve

PATH = "/mcp"
VERSION_HEADER = b"mcp-protocol-version"
MAX_BODY_BYTES = 16 << 20


async def serve_stdio(server: ToolServer, wire: Wire) -> None:
    """Serve one client over stdin and stdout."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    async with stdio_streams(wire) as (incoming, outgoing):
        with anyio.CancelScope() as serving:
            for number in numbers:
                loop.add_signal_handler(number, serving.cancel)
            await serve_loop(
                server,
                incoming,
                outgoing,
                lifespan_state=None,
                init_options=server.create_initialization_options(),
            )
    await asyncio.to_thread(wire.flush)


async def serve_http(
    server: ToolServer, listening: socket.socket, host: str, token: str | None, idle_s: float
) -> None:
    """Serve any number of clients over streamable HTTP, each with a session of its own.

    Args:
        server: Answers.
        listening: Is bound already.
        host: That it is bound to.
        token: What clients must send; None for none.
        idle_s: Seconds after which a session without a request is closed.
    """
    manager = StreamableHTTPSessionManager(
        server, session_idle_timeout=idle_s, max_request_body_size=MAX_BODY_BYTES
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Route(PATH, endpoint=_Endpoint(manager))], lifespan=lifespan)
    guarded: Any = Guard(app, token=token, bound_to=(host,))
    await serve(guarded, listening)


class _Endpoint:
    """Starlette takes a class's object for an app, and a function for a handler of requests."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A version without sessions counts as none: the client then falls back to one with them.
        known = {version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS}
        scope["headers"] = [
            (name, value)
            for name, value in scope["headers"]
            if name != VERSION_HEADER or value in known
        ]
        await self._manager.handle_request(scope, receive, send)
