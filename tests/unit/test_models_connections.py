"""Connections to a model's server: kept, closed, cut, sent through proxies."""

import asyncio
import gc
import gzip
import logging
import struct
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from openmanus_graph.backends.models.build import close_models, prepare_model
from openmanus_graph.backends.models.endpoint import Connections, StatusError, TransportError
from openmanus_graph.backends.models.failures import classify
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.model_settings import ModelSettings
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BACKSTOP_S = 30.0


@asynccontextmanager
async def serving(handle: Handler) -> AsyncGenerator[str]:
    """Serve raw connections; yields the address."""

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handled, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/v1/chat/completions"


@asynccontextmanager
async def opened(
    proxy: str | None = None, idle_s: float = BACKSTOP_S
) -> AsyncGenerator[Connections]:
    connections = Connections(True, proxy, BACKSTOP_S, idle_s)
    try:
        yield connections
    finally:
        await connections.aclose()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return head and body of a request."""
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = (
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    return head, await reader.readexactly(length)


async def whole(connections: Connections, url: str, content: bytes = b"{}") -> bytes:
    body = await connections.post(url, content, {})
    try:
        return b"".join([piece async for piece in body])
    finally:
        await body.aclose()


async def test_requests_at_the_same_time_have_connections_of_their_own_which_are_kept() -> None:
    opened_count = 0
    all_there = asyncio.Barrier(3)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened_count
        opened_count += 1
        first = True
        while not reader.at_eof():
            try:
                await read_request(reader)
            except asyncio.IncompleteReadError:
                break
            if first and opened_count <= 3:
                await all_there.wait()
            first = False
            writer.write(OK)
        writer.close()

    async with serving(handle) as url, opened() as connections:
        together = await asyncio.gather(*(whole(connections, url) for _ in range(3)))
        one_by_one = [await whole(connections, url) for _ in range(4)]
        assert [*together, *one_by_one] == [b"{}"] * 7
        assert opened_count == 3


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)  # and closes it, though the answer does not say so
        writer.close()

    async with serving(handle) as url, opened() as connections:
        for _ in range(3):
            assert await whole(connections, url) == b"{}"
            await asyncio.to_thread(gc.collect)  # the loop gets to see the end of the connection


async def test_a_request_that_is_cancelled_hangs_up() -> None:
    asked, hung_up = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        assert await reader.read() == b""
        hung_up.set()
        writer.close()

    async with serving(handle) as url, opened() as connections:
        asking = asyncio.create_task(whole(connections, url))
        await asked.wait()
        asking.cancel()
        async with asyncio.timeout(BACKSTOP_S):
            await hung_up.wait()


async def test_a_body_that_is_given_up_hangs_up() -> None:
    hung_up = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        assert await reader.read() == b""
        hung_up.set()
        writer.close()

    async with serving(handle) as url, opened() as connections:
        body = await connections.post(url, b"{}", {})
        assert await anext(body) == b"abc"
        await body.aclose()
        async with asyncio.timeout(BACKSTOP_S):
            await hung_up.wait()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "broke its answer off: the connection was closed without an answer; perhaps it spe"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "broke its answer off"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
            "broke its answer off",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            "gave no usable reply",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "is not an answer in HTTP (Bad status line: "),
        (b"\x15\x03\x03\x00\x02\x02\x46", "perhaps it speaks https, not http. Check"),  # TLS
    ],
)
async def test_what_a_server_breaks_is_said(answer: bytes, said: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        writer.close()

    async with serving(handle) as url, opened() as connections:
        with pytest.raises(TransportError) as raised:
            await whole(connections, url)
    failure = classify(raised.value)
    assert failure is not None
    assert (failure.kind, said in failure.sentence) == ("retry", True), failure.sentence


async def test_a_silent_server_is_given_up_and_its_address_is_named() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(handle) as url, opened(idle_s=0.05) as connections:
        with pytest.raises(TransportError) as raised:
            await whole(connections, url)
    failure = classify(raised.value)
    assert failure is not None
    assert failure.event == f"The model did not answer in time at {url}: nothing came."


async def test_an_unreachable_server_is_named_with_the_reason() -> None:
    async with opened() as connections:
        with pytest.raises(TransportError) as raised:
            await whole(connections, "http://127.0.0.1:9/v1/chat/completions")
    failure = classify(raised.value)
    assert failure is not None
    assert failure.kind == "retry"
    assert "could not be reached at http://127.0.0.1:9/v1/chat/completions: " in failure.event
    assert "connection refused" in failure.event


async def test_a_server_without_tls_is_told_from_one_that_cannot_be_trusted() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(handle) as url, opened() as connections:
        with pytest.raises(TransportError, match="perhaps it speaks http, not https"):
            await whole(connections, url.replace("http://", "https://"))


async def test_a_refusal_holds_what_the_server_said() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        body = b'{"error": {"message": "slow down"}}'
        head = b"HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        writer.close()

    async with serving(handle) as url, opened() as connections:
        with pytest.raises(StatusError) as raised:
            await connections.post(url, b"{}", {})
    assert raised.value.status_code == 429
    assert raised.value.headers["retry-after"] == "3"
    assert raised.value.body == {"error": {"message": "slow down"}}


async def test_megabytes_are_sent_whole_and_compressed_answers_are_read() -> None:
    content = b"x" * 5_000_000

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_request(reader)
        packed = gzip.compress(b"%d bytes" % len(body))
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(packed) + packed)
        writer.close()

    async with serving(handle) as url, opened() as connections:
        assert await whole(connections, url, content) == b"5000000 bytes"


async def test_a_server_that_moved_is_followed_with_the_whole_request() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await read_request(reader)
        if head.startswith(b"POST /v1/chat/completions "):
            writer.write(b"HTTP/1.1 307 Moved\r\nLocation: /v2\r\n")
            writer.write(b"Connection: close\r\nContent-Length: 0\r\n\r\n")
        else:
            said = head.split(b" HTTP")[0] + b" " + body
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
        writer.close()

    async with serving(handle) as url, opened() as connections:
        assert await whole(connections, url, b"the request") == b"POST /v2 the request"


@pytest.mark.parametrize(("status", "place"), [(301, "/v2"), (302, "/v2"), (308, "/v1")])
async def test_a_server_that_moved_but_loses_the_request_is_named(status: int, place: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST"):
            writer.write(b"HTTP/1.1 %d Moved\r\nLocation: %b\r\n" % (status, place.encode()))
            writer.write(b"Connection: close\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(OK)
        writer.close()

    async with serving(handle) as url, opened() as connections:
        with pytest.raises(StatusError) as raised:
            await whole(connections, url)
    failure = classify(raised.value)
    moved_to = url.replace("/v1/chat/completions", place)
    assert failure is not None
    assert failure.kind == "not_found"
    assert failure.event == (
        f"The model answered with {status} (moved): it redirects requests to {moved_to}."
    )


async def test_a_proxy_that_is_not_there_or_refuses_is_named() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Login Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    target = "https://model.test/v1/chat/completions"
    async with opened(proxy="http://127.0.0.1:9") as connections:
        with pytest.raises(
            TransportError, match=r"the proxy 127\.0\.0\.1:9: .*Connect call failed"
        ):
            await whole(connections, target)
    async with serving(refuse) as proxy, opened(proxy=proxy) as connections:
        with pytest.raises(TransportError, match="the proxy refused it with 407 Proxy Login Req"):
            await whole(connections, target)


def test_connections_end_with_their_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer([Reply(text="Hi")]) as server:
        settings = ModelSettings("openai:m", base_url=server.base_url)

        async def ask() -> str:
            return (await (await prepare_model(settings)).ainvoke("Hello")).text

        with caplog.at_level(logging.WARNING):
            assert asyncio.run(ask()) == "Hi"
            gc.collect()
    assert not caplog.records


async def _socks5(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak SOCKS5 without a login and lead every connection to the port it names, here."""
    count = (await reader.readexactly(2))[1]
    await reader.readexactly(count)
    writer.write(b"\x05\x00")
    kind = (await reader.readexactly(4))[3]
    length = 4 if kind == 1 else (await reader.readexactly(1))[0]
    await reader.readexactly(length)
    (port,) = struct.unpack(">H", await reader.readexactly(2))
    back, forth = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    await asyncio.gather(pass_on(reader, forth), pass_on(back, writer))


async def test_a_socks_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer([Reply(text="through the proxy")]) as server:
        async with serving(_socks5) as address:
            proxy = address.removeprefix("http://").partition("/")[0]
            monkeypatch.setenv("ALL_PROXY", f"socks5://{proxy}")
            there = f"http://models.test:{server.port}/v1"
            model = await prepare_model(ModelSettings("openai:m", base_url=there))
            assert (await model.ainvoke("Hello")).text == "through the proxy"
            await close_models()


async def test_a_socks_proxy_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "aiohttp_socks", None)
    with pytest.raises(ConfigError, match="pip install aiohttp-socks"):
        await prepare_model(ModelSettings("openai:m", base_url="http://models.test/v1"))


@pytest.mark.parametrize("proxy", ["quic://127.0.0.1:9", "ftp://proxy.test"])
async def test_a_proxy_of_another_kind_is_reported(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_PROXY", proxy)
    with pytest.raises(ConfigError, match="is not understood"):
        await prepare_model(ModelSettings("openai:m", base_url="http://models.test/v1"))


async def test_this_machine_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with OpenAIServer([Reply(text="directly")]) as server:
        model = await prepare_model(ModelSettings("openai:m", base_url=server.base_url))
        assert (await model.ainvoke("Hello")).text == "directly"
        await close_models()
