"""Serving MCP over stdio or HTTP until the client hangs up or a signal comes."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncGenerator
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.runner import serve_loop
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from openmanus_graph.interfaces.mcp_server.server import ToolServer
from openmanus_graph.interfaces.service.http import RequestGuard, serve
from openmanus_graph.interfaces.service.stdio import PARSE_ERROR, StdioPipes

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]
PATH = "/mcp"
VERSION_HEADER = b"mcp-protocol-version"
MAX_BODY_BYTES = 16 << 20


@contextlib.asynccontextmanager
async def stdio_streams(pipes: StdioPipes) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Connect a server's streams with the pipes."""
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        lines = pipes.listen(asyncio.get_running_loop())
        async with incoming:
            while (line := await lines.get()) is not None:
                if not line.strip():
                    continue
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValidationError:
                    pipes.send(PARSE_ERROR)
                    continue
                with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await incoming.send(SessionMessage(message))

    async def send() -> None:
        async with outgoing:
            async for sent in outgoing:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                pipes.send(text.encode("utf-8", "replace") + b"\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        tasks.start_soon(send)
        try:
            yield read_stream, write_stream
        finally:
            tasks.cancel_scope.cancel()


async def serve_stdio(server: ToolServer, pipes: StdioPipes) -> None:
    """Serve one client over stdin and stdout."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    async with stdio_streams(pipes) as (incoming, outgoing):
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
    await asyncio.to_thread(pipes.flush)


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
    guarded: Any = RequestGuard(app, token=token, bound_to=(host,))
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
