"""Requests that come too slowly are ended; those at a fair rate take as long as they need."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import uvicorn

from openmanus_graph.interfaces.service.http import TimedProtocol
from tests.support.half_sent import HALVES, times_open

pytestmark = pytest.mark.slow

CHUNK = b"x" * 4096


class Hasty(TimedProtocol):
    """The same with limits that a test can wait for."""

    head_s, window_s, least_rate, stalled_s = 0.5, 0.5, 2000, 0.5


async def echo_length(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request with the length of its body, or with a megabyte ever again."""
    assert scope["type"] == "http"
    length = 0
    if scope["path"] != "/flood":
        while True:
            message = await receive()
            length += len(message.get("body", b""))
            if message["type"] == "http.disconnect":
                return
            if not message.get("more_body"):
                break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/flood":
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x" * (1 << 20), "more_body": True})
    await send({"type": "http.response.body", "body": str(length).encode()})


@contextlib.asynccontextmanager
async def serving() -> AsyncGenerator[tuple[uvicorn.Server, str]]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(echo_length, http=Hasty, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([listening]))  # pyright: ignore[reportPrivateUsage]
    try:
        yield server, f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await task


async def test_what_stops_halfway_is_closed_soon() -> None:
    async with serving() as (server, url):
        took = await times_open(url, "token", 0.05)
        slow = {name: seconds for name, seconds in took.items() if seconds > 8}
        assert not slow  # the longest is what uvicorn gives a connection between two requests, 5 s
        assert len(took) == 2 * (len(HALVES) + 3)
        assert not server.server_state.connections


async def test_who_sends_half_a_request_is_told_why() -> None:
    async with serving() as (_, url):
        host, _, port = url.removeprefix("http://").partition(":")
        for name, words in (("half a head", b"head"), ("half a body", b"body")):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(HALVES[name])
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"The %b of this request came too slowly" % words in answer
            writer.close()


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_at_a_fair_rate_may_take_long(chunked: bool) -> None:
    async with serving() as (_, url):
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {20 * len(CHUNK)}"
        writer.write(
            f"PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{framing}\r\n\r\n".encode()
        )
        for _ in range(20):  # four times as long as any limit
            writer.write(b"1000\r\n%b\r\n" % CHUNK if chunked else CHUNK)
            await writer.drain()
            await asyncio.sleep(0.1)
        writer.write(b"0\r\n\r\n" if chunked else b"")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert str(20 * len(CHUNK)).encode() in answer
        writer.close()


async def test_a_client_that_reads_no_answer_is_given_up() -> None:
    async with serving() as (server, url):
        host, _, port = url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1 << 10)
        writer.write(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(8):
            while not server.server_state.connections:  # noqa: ASYNC110  # it is made meanwhile
                await asyncio.sleep(0.01)
            while server.server_state.connections:  # noqa: ASYNC110  # the server ends it
                await asyncio.sleep(0.05)
        writer.close()
