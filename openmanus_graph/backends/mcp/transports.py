"""The transports: HTTP with its client, the older SSE, and child processes over stdio.

The SDK's SSE transport cuts messages at 1 MB, and never answers a request whose POST fails.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, NamedTuple, Self
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp.client.auth import OAuthFlowError
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from typing_extensions import override

from openmanus_graph.backends.mcp.oauth import LoginStore, StoredLogin, problem_of
from openmanus_graph.backends.sandbox.scratch import network_settings
from openmanus_graph.state.context import MCPServer

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


@contextlib.asynccontextmanager
async def sse_streams(server: MCPServer, client: Client) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect by SSE: messages arrive in one long response, and are sent by POST."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    url, headers = server.url or "", {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def receive(response: httpx2.Response) -> None:
        """Read the long response to its end, which is the end of the connection."""
        async with incoming:
            with contextlib.suppress(httpx2.HTTPError, anyio.BrokenResourceError):
                async for event in httpx2.EventSource(response, max_event_size=MAX_MESSAGE):
                    if event.event == "endpoint" and not endpoint.done():
                        endpoint.set_result(_own_address(url, event.data))
                    elif event.event == "message" and event.data:
                        await incoming.send(read_message(event.data))

    async def send(tasks: Any) -> None:  # anyio's task group
        address = await endpoint
        async with outgoing:
            async for message in outgoing:
                tasks.start_soon(_post, client, address, message, incoming)

    async with (
        incoming, read, write, outgoing,
        client.stream("GET", url, headers=headers) as response,
    ):  # fmt: skip
        client.last_failure = response if response.status_code >= 400 else None
        response.raise_for_status()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive, response)
            tasks.start_soon(send, tasks)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()


async def _post(client: Client, address: str, sent: SessionMessage, incoming: Any) -> None:
    message = sent.message
    try:
        response = await client.post(
            address, json=message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        )
        response.raise_for_status()
    except httpx2.HTTPError as error:
        if isinstance(message, types.JSONRPCRequest):
            text = f"Connection closed: {error or type(error).__name__}"
            why = types.ErrorData(code=types.CONNECTION_CLOSED, message=text)
            answer = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=why)
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
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValidationError as error:
        return error


LINE_CHARS = 300
_ANSWER_TO = re.compile(
    r'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("[^"\\]*"|\d+)(?=\D)'
    r'(?!\s*,\s*"method")'
)
"""The start of a response, with the id of its request."""
GRACE_S = (2.0, 2.0, 1.0)
"""Timeouts for a server to exit: after its stdin was closed, SIGTERM and SIGKILL."""
STDERR_S = 0.5
"""Timeout for reading the rest of its stderr, once it has exited."""
_INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")
log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def stdio_streams(
    server: MCPServer, stderr_lines: deque[str]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start the server and connect to its pipes. OSError: it cannot be started.

    Its stderr goes to the log, and the newest lines to `stderr_lines`.
    """
    # The host's variables are allow-listed: HOME, PATH, USER and others, and proxies.
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    network = network_settings(os.environ)
    process = await asyncio.create_subprocess_exec(
        server.command or "",
        *server.args,
        env={**get_default_environment(), **inherited, **network, **server.env},
        cwd=server.cwd,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=MAX_MESSAGE,
        start_new_session=True,
    )
    stderr_reader = asyncio.ensure_future(_read_stderr(process, server.name, stderr_lines))
    try:
        pipes = _Pipes(process, stderr_reader)
        yield pipes, pipes
    finally:
        await _uninterrupted(_terminate(process, stderr_reader))


class _Pipes:
    """The server's pipes, with the interface that the SDK expects of both streams.

    Messages are read, one per line, until the server exits.
    """

    def __init__(self, process: Process, stderr_reader: "asyncio.Future[None]") -> None:
        self._process, self._stderr_reader = process, stderr_reader

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Do nothing: the pipes are closed when the server is terminated."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        assert self._process.stdout is not None
        with contextlib.suppress(ConnectionError):
            while (line := await _line(self._process.stdout)).start:
                text = line.start.decode("utf-8", "replace")
                if line.too_long and (request := _ANSWER_TO.match(text)):
                    return _too_long(json.loads(request[1]))
                if text.strip() and not line.too_long:
                    return read_message(text)
        await self._wait_for_stderr()
        raise StopAsyncIteration

    async def send(self, sent: SessionMessage) -> None:
        assert self._process.stdin is not None
        text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._process.stdin.write(text.encode() + b"\n")
        try:
            await self._process.stdin.drain()
        except ConnectionError as error:
            await self._wait_for_stderr()
            raise anyio.BrokenResourceError from error

    async def _wait_for_stderr(self) -> None:
        await asyncio.wait({self._stderr_reader}, timeout=STDERR_S)


async def _read_stderr(process: Process, name: str, stderr_lines: deque[str]) -> None:
    assert process.stderr is not None
    while start := (await _line(process.stderr)).start:
        if text := start.decode("utf-8", "replace").rstrip():
            log.info("%s: %s", name, text[:LINE_CHARS])
            stderr_lines.append(text[:LINE_CHARS])


class _Line(NamedTuple):
    start: bytes
    """The whole line, unless it is too long; empty at the end of the stream."""
    too_long: bool


async def _line(stream: asyncio.StreamReader) -> _Line:
    """Return the next line. Of one over the stream's limit only the start is kept."""
    start = b""
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            line = end.partial
        except asyncio.LimitOverrunError as over:
            start = start or (await stream.readexactly(LINE_CHARS))
            await stream.readexactly(over.consumed - LINE_CHARS)
            continue
        return _Line(start or line, too_long=bool(start))


def _too_long(request: str | int) -> SessionMessage:
    """Return the error that answers a request in place of a message over the limit."""
    text = f"The server answered more than {MAX_MESSAGE >> 20} MB. Ask for less."
    why = types.ErrorData(code=types.INTERNAL_ERROR, message=text)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=why))


async def _uninterrupted(coroutine: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine to its end; a cancellation is raised afterwards."""
    task, cancelled = asyncio.ensure_future(coroutine), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _terminate(process: Process, stderr_reader: "asyncio.Future[None]") -> None:
    """Terminate a server and its process group: close stdin, then SIGTERM, then SIGKILL."""
    if process.stdin is not None:
        process.stdin.close()
    steps = zip(GRACE_S, (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL), strict=True)
    for grace_s, next_signal in steps:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.wait()
        if process.returncode is not None:
            break
        _signal(process, next_signal)
    _signal(process, signal.SIGTERM)  # child processes that are still running
    stderr_reader.cancel()
    await asyncio.wait({stderr_reader})


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # it was started as the leader of its group
