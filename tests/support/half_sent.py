"""Requests of which only a part is ever sent, as attackers and broken clients send them."""

import asyncio
import contextlib
from urllib.parse import urlsplit

HEAD = b"POST /app/api/threads HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LENGTH = HEAD + b"Content-Type: application/json\r\nContent-Length: 1000000\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
HALVES = {
    "nothing": b"",
    "half a line": b"POST /app",
    "half a head": HEAD + b"X-Slow: 1",
    "a head without its last line": HEAD,
    "a body that never comes": LENGTH + b"\r\n",
    "half a body": LENGTH + b"\r\n" + b"{" * 100_000,
    "a body shorter than said": LENGTH + b"\r\n{}",
    "half a chunk": CHUNKED + b"ffff\r\n{}",
    "chunks without an end": CHUNKED + b"2\r\n{}\r\n",
    "half the size of a chunk": CHUNKED + b"ff",
    "one that waits to go on": LENGTH + b"Expect: 100-continue\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an answered one, and half of the next": (
        b"GET /ok HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /ok HTTP/1.1\r\nHo"
    ),
    "an answered one, and nothing": b"GET /ok HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}
DRIPS = {"head": HEAD + b"X-Slow: ", "body": LENGTH + b"\r\n", "chunks": CHUNKED + b"ffffff\r\n"}
"""Of each there is one more byte now and then, for ever."""


GIVEN_UP_S = 40.0
"""Seconds after which a connection counts as kept for ever."""


async def seconds_open(url: str, sent: bytes, token: str | None, drip_s: float = 0) -> float:
    """Send a part of a request, and return how long the server keeps the connection.

    Args:
        url: Of the server.
        sent: What is sent at once.
        token: Of the server; None to send none.
        drip_s: After so many seconds there is always one byte more; 0 for never.
    """
    loop, place = asyncio.get_running_loop(), urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    if token:
        sent = sent.replace(b"Host:", f"Authorization: Bearer {token}\r\nHost:".encode())
    began = loop.time()
    writer.write(sent)

    async def drip() -> None:
        while True:
            await asyncio.sleep(drip_s)
            writer.write(b"x")

    dripping = asyncio.create_task(drip()) if drip_s else None
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(GIVEN_UP_S):
            while await reader.read(1 << 16):
                pass
    took = loop.time() - began
    if dripping is not None:
        dripping.cancel()
    writer.close()
    return took


async def times_open(url: str, token: str | None, drip_s: float) -> dict[str, float]:
    """Send all kinds at once, and return how long each connection is kept."""
    kinds = {name: (sent, 0.0) for name, sent in HALVES.items()}
    kinds |= {f"{name} byte by byte": (sent, drip_s) for name, sent in DRIPS.items()}
    cases = [(f"{name}, {given}", *kinds[name], given) for name in kinds for given in ("", token)]
    took = await asyncio.gather(
        *(seconds_open(url, sent, given or None, drip) for _, sent, drip, given in cases)
    )
    return {name: seconds for (name, *_), seconds in zip(cases, took, strict=True)}
