"""Half-sent requests at all our servers: none stays open, and SIGTERM ends a server with some."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.support import servers
from tests.support.cli import Cli
from tests.support.half_sent import HALVES, times_open
from tests.support.limits import BACKSTOP_S
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Served, new_page
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

LONGEST_S = 25.0
TOKEN = "a-token-of-the-tests"


async def test_no_server_keeps_half_a_request_for_long(
    cli: Cli, model: OpenAIServer, tmp_path: Path, zygote: Zygote
) -> None:
    with contextlib.ExitStack() as running:
        ours = running.enter_context(Served(tmp_path / "served", zygote=zygote))
        urls = [(ours.url, ours.token)]
        for command in (["mcp-server", "--transport", "http"], ["a2a"]):
            one = running.enter_context(servers.served(cli, *command, token=TOKEN))
            urls.append((one.url.removesuffix("/mcp"), TOKEN))
        for times in await asyncio.gather(*(times_open(*url, 1.0) for url in urls)):
            assert not {name: took for name, took in times.items() if took > LONGEST_S}


async def test_large_uploads_at_a_slow_rate_arrive(served: Served) -> None:
    block = os.urandom(1 << 16)

    async def body() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield block
            await asyncio.sleep(0.05)

    async with new_page(served) as page:
        put = await page.http.put(f"{page.base}/files/slow.bin", content=body())
        assert (put.status_code, put.json()["size"]) == (201, 20 << 16)


@pytest.mark.parametrize("kind", ["upload", "events", "head", "download"])
async def test_sigterm_ends_a_server_with_hanging_requests(
    tmp_path: Path, zygote: Zygote, kind: str
) -> None:
    served = Served(tmp_path / "served", zygote=zygote)
    served.start()
    writers: list[asyncio.StreamWriter] = []
    try:
        async with new_page(served) as page:
            put = await page.http.put(f"{page.base}/files/big.bin", content=bytes(64 << 20))
            assert put.status_code == 201
            auth = f"Host: 127.0.0.1\r\nAuthorization: Bearer {served.token}\r\n"
            wanted = {
                "upload": f"PUT {page.base}/files/x HTTP/1.1\r\n{auth}Content-Length: 99\r\n\r\nx",
                "events": f"GET {page.base}/events?from=0 HTTP/1.1\r\n{auth}\r\n",
                "head": HALVES["half a head"].decode(),
                "download": f"GET {quote(put.json()['url'])} HTTP/1.1\r\n{auth}\r\n",
            }[kind]
            host, _, port = served.url.removeprefix("http://").partition(":")
            for _ in range(20):
                _, writer = await asyncio.open_connection(host, int(port), limit=1 << 12)
                writer.write(wanted.encode())
                writers.append(writer)
            async with httpx.AsyncClient(base_url=served.url, timeout=BACKSTOP_S) as client:
                assert (await client.get("/health")).status_code == 200
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.to_thread(served.stop, signal.SIGTERM)
        assert loop.time() - began < LONGEST_S
    finally:
        for writer in writers:
            writer.close()
        served.stop(signal.SIGKILL)
