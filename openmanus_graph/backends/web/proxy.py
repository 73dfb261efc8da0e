"""A forward proxy on this machine through which all traffic of one browser context goes.

Chromium resolves no names and opens no connections itself: it asks here, the guard decides, and
the connection is made to the address that was checked. It is written here, on h11, because no
maintained library pins addresses: proxy.py brings a framework of processes and plugins, mitmproxy
intercepts TLS, and both resolve names again when they connect.
"""

import asyncio
import base64
import hmac
import os
import secrets
import socket
import ssl
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import h11

from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.backends.web.guard import (
    Guard,
    UnnamedHostError,
    Upstream,
    environment_upstream,
)
from openmanus_graph.backends.web.own_pages import OwnPages
from openmanus_graph.errors import ToolError
from openmanus_graph.state.addresses import (
    WORKSPACE_HOST,
    WebAddress,
    authority,
    is_loopback,
    parse_address,
)

CONNECT_S = 10.0
IDLE_S = 600.0
BYPASS = "<-loopback>"  # Chromium's list of hosts that bypass the proxy: none, not even localhost
MARK = "x-openmanus-proxy"  # header of responses that the proxy itself made: `refused`, `failed`
_READ_BYTES = 64 * 1024
_MAX_REFUSALS = 100
_MAX_HEAD_BYTES = 256 * 1024
_HOP_BY_HOP = {
    b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"host",
}  # fmt: skip
Event = h11.Event | type[h11.PAUSED]


@dataclass(frozen=True)
class Refusal:
    url: str  # the address; of an encrypted connection only `https://HOST[:PORT]/` is known
    reason: str  # for the model
    by_guard: bool  # True: the guard refused it. False: the host could not be reached.
    unnamed: bool = False  # True: only because nobody has named the host
    method: str = ""  # of the request; CONNECT for an encrypted connection

    @property
    def origin(self) -> str:
        return parse_address(self.url).origin


@dataclass
class ProxyConnection:
    """One connection and its HTTP state."""

    connection: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    through_proxy: bool = False  # the peer is an upstream proxy, which needs absolute URLs
    login: bytes = b""  # ... and this Proxy-Authorization header.

    async def next_event(self) -> Event:
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(IDLE_S):
                self.connection.receive_data(await self.reader.read(_READ_BYTES))
        return event  # type: ignore[return-value]  # NEED_DATA is handled above

    async def send(self, event: h11.Event) -> None:
        data = self.connection.send(event)
        if data:
            self.writer.write(data)
            async with asyncio.timeout(IDLE_S):
                await self.writer.drain()

    async def copy_body(self, other: "ProxyConnection") -> None:
        while isinstance(event := await self.next_event(), h11.Data):
            await other.send(h11.Data(data=event.data))
        await other.send(h11.EndOfMessage())

    async def finish_request(self) -> bool:
        """Read the rest of a request that got an early response; False if it does not end."""
        while self.connection.their_state is h11.SEND_BODY:
            if not isinstance(await self.next_event(), h11.Data | h11.EndOfMessage):
                return False
        return self.connection.their_state is h11.DONE


class GuardedProxy:
    """Runs in the event loop in which it is started, until it is closed.

    WebSockets come as tunnels, encrypted or not, as Chromium makes them.

    An upstream proxy resolves names itself. The guard then checks only literal addresses, local
    names and the lists of domains.
    """

    def __init__(
        self, guard: Guard, upstream: Upstream | None = None, *, login: bool = True
    ) -> None:
        """Without `login`, whoever reaches it may use it."""
        self.username = "openmanus"
        self.password = secrets.token_urlsafe(24)
        """Keeps other processes of this machine from using the proxy."""
        known = _basic_authorization(self.username, self.password)
        self._authorization = known if login else b""
        self._guard = guard
        self._upstream = upstream
        self._refusals: deque[Refusal] = deque(maxlen=_MAX_REFUSALS)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def server(self) -> str:
        if self._server is None:
            raise RuntimeError("the proxy is not started")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self, listening: socket.socket | None = None) -> None:
        """Listen on a socket, or on a free port of this machine."""
        place = {"host": "127.0.0.1", "port": 0} if listening is None else {"sock": listening}
        self._server = await asyncio.start_server(self._accept, **cast("Any", place))

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def take_refusals(self) -> list[Refusal]:
        refusals = list(self._refusals)
        self._refusals.clear()
        return refusals

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())  # the server runs this as one
        self._tasks.add(task)
        connection = h11.Connection(h11.SERVER, _MAX_HEAD_BYTES)
        # One side may disconnect. Only `close` cancels, and asyncio would report it as an error.
        ends = (OSError, h11.ProtocolError, TimeoutError, asyncio.CancelledError)
        try:
            with suppress(*ends):
                await self._serve(ProxyConnection(connection, reader, writer))
        finally:
            self._tasks.discard(task)
            with suppress(OSError):
                writer.transport.abort() if task.cancelling() else writer.close()

    async def _serve(self, browser: ProxyConnection) -> None:
        while isinstance(request := await browser.next_event(), h11.Request):
            received = dict(request.headers).get(b"proxy-authorization", b"")
            if self._authorization and not hmac.compare_digest(received, self._authorization):
                login = ("Proxy-Authenticate", 'Basic realm="openmanus"')
                await _respond(browser, request, 407, b"Log in to the proxy.\n", login)
            elif request.method == b"CONNECT":
                await self._tunnel(browser, request)
                return
            else:
                await self._forward(browser, request)
            if browser.connection.our_state is not h11.DONE:
                return
            if not await browser.finish_request():
                return
            browser.connection.start_next_cycle()

    async def _tunnel(self, browser: ProxyConnection, request: h11.Request) -> None:
        """Open a tunnel between browser and server; its content is not read."""
        host = request.target.decode("ascii", "replace")
        try:
            address = parse_address(f"https://{host}")
            server = await connect(address, self._guard, self._upstream, tunnel=True)
        except (ToolError, OSError) as error:
            await self._refuse(browser, request, f"https://{host}/", error)
            return
        try:
            await browser.send(h11.Response(status_code=200, headers=[], reason=b"Connected"))
            await relay(browser, server)
        finally:
            server.writer.close()

    async def _forward(self, browser: ProxyConnection, request: h11.Request) -> None:
        url = request.target.decode("ascii", "replace")
        try:
            address = parse_address(url)
            if address.scheme != "http":
                raise ToolError(f"{url} is not a request for a proxy.")
            if self._guard.own is not None and address.host == WORKSPACE_HOST:
                await self._show_file(browser, request, address, self._guard.own)
                return
            server = await connect(address, self._guard, self._upstream)
        except (ToolError, OSError) as error:
            await self._refuse(browser, request, url, error)
            return
        try:
            with suppress(OSError):  # it may answer, and close, before it has read everything
                await server.send(_rewrite_request(request, address, server))
                await browser.copy_body(server)
            await self._return_response(browser, request, server)
        finally:
            server.writer.close()

    async def _show_file(
        self, browser: ProxyConnection, request: h11.Request, address: WebAddress, own: OwnPages
    ) -> None:
        """Answer with a file of the workspace. ToolError: it is out of reach."""
        if request.method not in (b"GET", b"HEAD"):
            await _respond(browser, request, 405, b"Files can only be read.\n")
            return
        file = await asyncio.to_thread(own.read, urlsplit(address.url).path)
        headers = [("Cache-Control", "no-store")]
        headers += [("Location", file.location)] if file.location else []
        await _respond(browser, request, file.status, file.body, *headers, typed=file.media_type)

    async def _return_response(
        self, browser: ProxyConnection, request: h11.Request, server: ProxyConnection
    ) -> None:
        try:
            response = await server.next_event()
            while isinstance(response, h11.InformationalResponse):
                response = await server.next_event()
            if not isinstance(response, h11.Response):
                raise h11.RemoteProtocolError("the server closed the connection without an answer")
        except (h11.RemoteProtocolError, OSError, TimeoutError) as error:
            await self._refuse(browser, request, request.target.decode("ascii", "replace"), error)
            return
        headers, status = _headers_without(response, _HOP_BY_HOP), response.status_code
        await browser.send(
            h11.Response(status_code=status, headers=headers, reason=response.reason)
        )
        await server.copy_body(browser)

    async def _refuse(
        self, browser: ProxyConnection, request: h11.Request, url: str, error: Exception
    ) -> None:
        by_guard, method = isinstance(error, ToolError), request.method.decode()
        advice = "Check the address, try again later, or use another source."
        reason = str(error) if by_guard else f"{url} cannot be reached ({error}). {advice}"
        self._refusals.append(
            Refusal(url, reason, by_guard, isinstance(error, UnnamedHostError), method)
        )
        mark = (MARK, "refused" if by_guard else "failed")
        status, text = 403 if by_guard else 502, f"{reason}\n".encode()
        await _respond(browser, request, status, text, mark)


async def _respond(
    browser: ProxyConnection,
    request: h11.Request,
    status: int,
    body: bytes,
    *further: tuple[str, str],
    typed: str = "text/plain; charset=utf-8",
) -> None:
    headers = [("Content-Type", typed), ("Content-Length", str(len(body))), *further]
    await browser.send(h11.Response(status_code=status, headers=headers))
    if request.method != b"HEAD":
        await browser.send(h11.Data(data=body))
    await browser.send(h11.EndOfMessage())


def _rewrite_request(
    request: h11.Request, address: WebAddress, server: ProxyConnection
) -> h11.Request:
    listed = dict(request.headers).get(b"connection", b"").lower()
    dropped = _HOP_BY_HOP | {name.strip() for name in listed.split(b",")}
    headers = _headers_without(request, dropped)
    host = address.origin.partition("://")[2].encode()
    if any(name == b"transfer-encoding" for name, _ in request.headers):
        headers.append((b"transfer-encoding", b"chunked"))
    if server.login:
        headers.append((b"proxy-authorization", server.login))
    path = b"/" + request.target.split(b"/", 3)[3] if request.target.count(b"/") > 2 else b"/"
    target = request.target if server.through_proxy else path
    return h11.Request(
        method=request.method,
        target=target,
        headers=[(b"Host", host), *headers, (b"Connection", b"close")],
    )


def _headers_without(
    message: h11.Request | h11.Response, dropped: set[bytes]
) -> list[tuple[bytes, bytes]]:
    """Return headers with their original capitalization, which some sites need."""
    return [pair for pair in message.headers.raw_items() if pair[0].lower() not in dropped]


async def connect(
    address: WebAddress, guard: Guard, upstream: Upstream | None, *, tunnel: bool = False
) -> ProxyConnection:
    """Connect to a server. ToolError: that is not allowed; OSError: it cannot be reached.

    Without an upstream proxy, the environment's is used. In a tunnel the browser itself speaks TLS.
    """
    if own := guard.own_at(address.host, address.port):
        guard.check_host(address.host, address.port)
        made = await own.connect(address.host, address.port)
        streams = await asyncio.open_connection(sock=made)
        return ProxyConnection(h11.Connection(h11.CLIENT), *streams)
    upstream = None if is_loopback(address.host) else upstream
    upstream = upstream or environment_upstream(address.scheme, address.host, address.port)
    if upstream is not None:
        guard.check_host(address.host, address.port)
        return await _connect_through(upstream, address if tunnel else None)
    failure = OSError("it has no address")
    for number in await guard.resolve(address.host, address.port):
        try:
            streams = await _open(str(number), address.port)
        except OSError as error:
            failure = error
        else:
            return ProxyConnection(h11.Connection(h11.CLIENT), *streams)
    raise failure


async def _connect_through(upstream: Upstream, tunnel_to: WebAddress | None) -> ProxyConnection:
    try:
        reader, writer = await _open(upstream.host, upstream.port, upstream.scheme == "https")
    except OSError as error:
        raise OSError(f"the proxy {upstream.host}:{upstream.port}: {error}") from error
    login = b""
    if upstream.username:
        login = _basic_authorization(upstream.username, upstream.password)
    proxy = ProxyConnection(
        h11.Connection(h11.CLIENT), reader, writer, through_proxy=True, login=login
    )
    if tunnel_to is None:
        return proxy
    target = authority(tunnel_to.host, tunnel_to.port, "").encode()
    headers = [(b"host", target), *([(b"proxy-authorization", login)] if login else [])]
    try:
        await proxy.send(h11.Request(method=b"CONNECT", target=target, headers=headers))
        answer = await proxy.next_event()
    except (h11.RemoteProtocolError, TimeoutError):
        answer = None
    except BaseException:  # no caller has this connection yet
        writer.close()
        raise
    if isinstance(answer, h11.Response) and 200 <= answer.status_code < 300:
        return proxy
    writer.close()
    said = answer.status_code if isinstance(answer, h11.Response) else "nothing"
    raise OSError(f"the proxy {upstream.host}:{upstream.port} answered {said}")


async def _open(
    host: str, port: int, encrypted: bool = False
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(CONNECT_S):
            tls = await asyncio.to_thread(tls_context) if encrypted else None
            return await asyncio.open_connection(host, port, ssl=tls)
    except TimeoutError as error:
        raise OSError(f"no answer within {CONNECT_S:g} s") from error
    except OSError as error:
        if isinstance(error, ssl.SSLError | socket.gaierror) or not error.errno:
            raise
        raise OSError(os.strerror(error.errno).lower()) from error  # without asyncio's own words


def _basic_authorization(username: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{username}:{password}".encode())


async def relay(one: ProxyConnection, other: ProxyConnection) -> None:
    """Relay bytes both ways until both sides have closed, or a timeout without data."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(IDLE_S) as clock:

        async def pump(source: ProxyConnection, sink: ProxyConnection) -> None:
            early = source.connection.trailing_data[0]
            try:
                data = early or await source.reader.read(_READ_BYTES)
                while data:
                    sink.writer.write(data)
                    await sink.writer.drain()
                    clock.reschedule(loop.time() + IDLE_S)
                    data = await source.reader.read(_READ_BYTES)
                sink.writer.write_eof()
            except OSError:  # one side has disconnected: close the other
                source.writer.transport.abort()
                sink.writer.transport.abort()

        await asyncio.gather(pump(one, other), pump(other, one))
