"""The connections of a proxy: to the browser on one side, to servers on the other."""

import asyncio
import base64
import os
import socket
import ssl
from dataclasses import dataclass

import h11

from openmanus_graph.backends.web.certificates import tls_context
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.routes import Upstream, environment_upstream, is_this_machine
from openmanus_graph.state.addresses import WebAddress, authority

CONNECT_S = 10.0
IDLE_S = 600.0
_PIECE = 64 * 1024

Event = h11.Event | type[h11.PAUSED]


@dataclass
class ProxyConnection:
    """One connection and its HTTP state."""

    connection: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    through_proxy: bool = False
    """The peer is an upstream proxy, which needs absolute URLs ..."""
    login: bytes = b""
    """... and this Proxy-Authorization header."""

    async def next_event(self) -> Event:
        """Return the next HTTP event from the peer."""
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(IDLE_S):
                self.connection.receive_data(await self.reader.read(_PIECE))
        return event  # type: ignore[return-value]  # NEED_DATA is handled above

    async def send(self, event: h11.Event) -> None:
        """Send an event, with flow control."""
        data = self.connection.send(event)
        if data:
            self.writer.write(data)
            async with asyncio.timeout(IDLE_S):
                await self.writer.drain()

    async def copy_body(self, other: "ProxyConnection") -> None:
        """Stream the message body from this connection to the other one."""
        while isinstance(event := await self.next_event(), h11.Data):
            await other.send(h11.Data(data=event.data))
        await other.send(h11.EndOfMessage())

    async def finish_request(self) -> bool:
        """Read the rest of a request that got an early response; False if it does not end."""
        while self.connection.their_state is h11.SEND_BODY:
            if not isinstance(await self.next_event(), h11.Data | h11.EndOfMessage):
                return False
        return self.connection.their_state is h11.DONE


@dataclass(frozen=True)
class Route:
    """The target of a connection, and the upstream proxy on the way."""

    address: WebAddress
    guard: Guard
    upstream: Upstream | None
    """The proxy to go through. None: as the environment says."""
    tunnel: bool = False
    """A tunnel: the browser speaks TLS with the server."""


async def connect(route: Route) -> ProxyConnection:
    """Connect to a server. ToolError: that is not allowed; OSError: it cannot be reached."""
    address = route.address
    upstream = None if is_this_machine(address.host) else route.upstream
    upstream = upstream or environment_upstream(address.scheme, address.host, address.port)
    if upstream is None:
        reader, writer = await _open_checked(address, route.guard)
        return ProxyConnection(h11.Connection(h11.CLIENT), reader, writer)
    route.guard.check_host(address.host, address.port)
    return await _through(upstream, route)


async def _open_checked(
    address: WebAddress, guard: Guard
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    failure = OSError("it has no address")
    for number in await guard.resolve(address.host, address.port):
        try:
            return await _open(str(number), address.port)
        except OSError as error:
            failure = error
    raise failure


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


async def _through(upstream: Upstream, route: Route) -> ProxyConnection:
    try:
        reader, writer = await _open(upstream.host, upstream.port, upstream.scheme == "https")
    except OSError as error:
        raise OSError(f"the proxy {upstream.host}:{upstream.port}: {error}") from error
    credentials = f"{upstream.username}:{upstream.password}".encode()
    login = b"Basic " + base64.b64encode(credentials) if upstream.username else b""
    hop = ProxyConnection(
        h11.Connection(h11.CLIENT), reader, writer, through_proxy=True, login=login
    )
    if not route.tunnel:
        return hop
    target = authority(route.address.host, route.address.port, "").encode()
    headers = [(b"host", target), *([(b"proxy-authorization", login)] if login else [])]
    try:
        await hop.send(h11.Request(method=b"CONNECT", target=target, headers=headers))
        answer = await hop.next_event()
    except (h11.RemoteProtocolError, TimeoutError):
        answer = None
    except BaseException:  # nobody else knows this connection yet
        writer.close()
        raise
    if isinstance(answer, h11.Response) and 200 <= answer.status_code < 300:
        return hop
    writer.close()
    said = answer.status_code if isinstance(answer, h11.Response) else "nothing"
    raise OSError(f"the proxy {upstream.host}:{upstream.port} answered {said}")


async def relay(one: ProxyConnection, other: ProxyConnection) -> None:
    """Relay bytes both ways until both sides have closed, or a timeout without data."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(IDLE_S) as clock:

        async def pump(source: ProxyConnection, sink: ProxyConnection) -> None:
            early = source.connection.trailing_data[0]
            try:
                data = early or await source.reader.read(_PIECE)
                while data:
                    sink.writer.write(data)
                    await sink.writer.drain()
                    clock.reschedule(loop.time() + IDLE_S)
                    data = await source.reader.read(_PIECE)
                sink.writer.write_eof()
            except OSError:  # one side has disconnected: close the other
                source.writer.transport.abort()
                sink.writer.transport.abort()

        await asyncio.gather(pump(one, other), pump(other, one))
