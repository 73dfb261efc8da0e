"""Servers over HTTP: the client, and the older SSE transport.

The SDK's SSE transport cuts messages at 1 MB, and never answers a request whose POST fails.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from typing_extensions import override

from openmanus_graph.backends.mcp.oauth import LoginStore, StoredLogin, problem_of
from openmanus_graph.state.mcp_server import MCPServer

MAX_MESSAGE = 100 * 1024 * 1024
"""Limit of one message in bytes."""
MAX_LOGIN_ANSWER = 1024 * 1024
"""Limit of an authorization server's answer in bytes."""
CONNECT_S, READ_S = 30.0, 3600.0


class Client(httpx2.AsyncClient):
    """Keeps the last failure, because the transports only report that something failed."""

    def __init__(self, server: MCPServer, auth: httpx2.Auth | None = None) -> None:
        """Use a server's headers and its stored login, unless `auth` is given. Blocks."""
        super().__init__(
            # The length of a compressed answer is only known after decompression.
            headers={"Accept-Encoding": "identity", **server.headers},
            timeout=httpx2.Timeout(CONNECT_S, read=READ_S),
            auth=auth or _stored_auth(server),
            event_hooks={"response": [self._limit_length]},
        )
        self._url = httpx2.URL(server.url or "")
        self.last_failure: httpx2.TransportError | httpx2.Response | None = None
        self._login_failed = False
        self.login_problem = ""
        """Why the login does not work; it follows the server's name in a sentence."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. If its login fails, return the response to a request without a login."""
        if self._login_failed:  # the SDK tries another message, which must not log in again
            return httpx2.Response(401, request=request)
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            if error.request.url == request.url:
                self.last_failure = error
                raise
            why = str(error) if isinstance(error, TooLongError) else "cannot be reached"
            self.login_problem = f"{error.request.url.host} {why} for its login"
            response = httpx2.Response(503, request=request)
        except (OAuthFlowError, ValueError, httpx2.InvalidURL) as error:
            self.login_problem, self._login_failed = problem_of(error), True
            response = httpx2.Response(401, request=request)
        # A server that has no stream for its own messages, or no sessions to end, says 405.
        if response.status_code >= 400 and request.method == "POST":
            self.last_failure = response
        return response

    async def _limit_length(self, response: httpx2.Response) -> None:
        """Make a body that is too long end in an error. Streams have no limit."""
        if response.headers.get("Content-Type", "").startswith("text/event-stream"):
            return
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        limit = MAX_MESSAGE if response.request.url == self._url else MAX_LOGIN_ANSWER
        response.stream = _LimitedBody(response.stream, limit, response.request)


class TooLongError(httpx2.ReadError):
    """A server's answer exceeds the limit."""


class _LimitedBody(httpx2.AsyncByteStream):
    def __init__(
        self, body: httpx2.AsyncByteStream, limit_bytes: int, request: httpx2.Request
    ) -> None:
        self._body, self._limit_bytes, self._request = body, limit_bytes, request

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for part in self._body:
            read += len(part)
            if read > self._limit_bytes:
                text = f"answered more than {self._limit_bytes >> 20} MB"
                raise TooLongError(text, request=self._request)
            yield part

    @override
    async def aclose(self) -> None:
        await self._body.aclose()


def _stored_auth(server: MCPServer) -> httpx2.Auth | None:
    """Return the authentication of a run's requests; None if there is no login. Blocks."""
    if any(name.lower() == "authorization" for name in server.headers):
        return None
    store = LoginStore(server)
    if server.oauth.grant == "client_credentials":
        # Loads cryptography, which no other login needs.
        from openmanus_graph.backends.mcp.client_credentials import client_credentials

        return client_credentials(server, store)
    return StoredLogin(server, store) if store.read().tokens else None


def http_streams(
    server: MCPServer, client: Client
) -> contextlib.AbstractAsyncContextManager[tuple[Any, Any]]:
    """Connect by streamable HTTP."""
    url = server.url or ""
    return streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE)


@contextlib.asynccontextmanager
async def sse_streams(server: MCPServer, client: Client) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect by SSE: messages arrive in one long response, and are sent by POST."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    async with (
        incoming, read, write, outgoing,
        client.stream("GET", server.url or "", headers=headers) as response,
    ):  # fmt: skip
        client.last_failure = response if response.status_code >= 400 else None
        response.raise_for_status()
        endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, server, response, incoming, endpoint)
            tasks.start_soon(_send, client, endpoint, outgoing, incoming, tasks)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()


async def _receive(
    server: MCPServer,
    response: httpx2.Response,
    incoming: Any,  # anyio's stream of messages
    endpoint: "asyncio.Future[str]",
) -> None:
    """Read the long response to its end, which is the end of the connection."""
    async with incoming:
        with contextlib.suppress(httpx2.HTTPError, anyio.BrokenResourceError):
            async for event in httpx2.EventSource(response, max_event_size=MAX_MESSAGE):
                if event.event == "endpoint" and not endpoint.done():
                    endpoint.set_result(_own_address(server.url or "", event.data))
                elif event.event == "message" and event.data:
                    await incoming.send(read_message(event.data))


async def _send(
    client: Client,
    endpoint: "asyncio.Future[str]",
    outgoing: Any,  # anyio's streams of messages
    incoming: Any,
    tasks: Any,
) -> None:
    address = await endpoint
    async with outgoing:
        async for message in outgoing:
            tasks.start_soon(_post, client, address, message, incoming)


async def _post(client: Client, address: str, sent: SessionMessage, incoming: Any) -> None:
    message = sent.message
    try:
        response = await client.post(
            address, json=message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        )
        response.raise_for_status()
    except httpx2.HTTPError as error:
        if isinstance(message, JSONRPCRequest):
            text = f"Connection closed: {error or type(error).__name__}"
            why = ErrorData(code=CONNECTION_CLOSED, message=text)
            answer = JSONRPCError(jsonrpc="2.0", id=message.id, error=why)
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await incoming.send(SessionMessage(answer))


def _own_address(url: str, endpoint: str) -> str:
    """Return the address for messages. ValueError for another host: headers may hold a key."""
    address = urljoin(url, endpoint)
    if urlsplit(address)[:2] != urlsplit(url)[:2]:
        raise ValueError(f"it wants its messages sent to {address}, another server")
    return address


def read_message(data: str) -> SessionMessage | Exception:
    """Parse a message. Return the exception if it is invalid."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValidationError as error:
        return error
