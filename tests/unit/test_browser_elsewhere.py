"""A browser that somebody else has started: by CDP, here or elsewhere, or a Playwright server."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from playwright._impl._driver import compute_driver_executable
from playwright.async_api import async_playwright

from openmanus_graph.backends.browser import browsers as shared
from openmanus_graph.backends.browser.browsers import browser_loop, find_browser
from openmanus_graph.state.settings import BrowserSettings
from tests.support.awkward_site import awkward_site
from tests.support.browsing import Browsing
from tests.support.cli import until
from tests.support.limits import BACKSTOP_S
from tests.support.pages import PageServer
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

ELSEWHERE = "127.0.0.2"
"""Not among the names of this machine, so that our proxy counts as out of reach."""


@pytest.fixture(autouse=True)
def _own_browser() -> Iterator[None]:
    yield
    browser_loop.call(shared.shared_browsers.close, BACKSTOP_S)


@pytest.fixture
def site() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@asynccontextmanager
async def somebodys_chromium(folder: Path) -> AsyncGenerator[int]:
    """Start a Chromium that can be told what to do, and give its port."""
    program = [str(find_browser(None)), "--headless", "--no-sandbox", "--remote-debugging-port=0",
               f"--user-data-dir={folder}"]  # fmt: skip
    process = await asyncio.create_subprocess_exec(*program, stderr=subprocess.DEVNULL)
    try:
        place = folder / "DevToolsActivePort"
        await asyncio.to_thread(until, lambda: place.is_file() and place.read_text() != "")
        yield int(place.read_text().splitlines()[0])
        assert process.returncode is None, "it is not ours to end"
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def reached_at(host: str, port: int) -> AsyncGenerator[str]:
    """Give the address of a port of this machine as seen from elsewhere."""

    async def pump(source: ByteStream, sink: ByteStream) -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                await sink.send(data)
        await sink.aclose()

    async def forward(outer: ByteStream) -> None:
        async with (
            outer,
            await anyio.connect_tcp("127.0.0.1", port) as inner,
            anyio.create_task_group() as both,
        ):
            both.start_soon(pump, outer, inner)
            both.start_soon(pump, inner, outer)

    if host == "127.0.0.1":
        yield f"http://{host}:{port}"
        return
    async with (
        await anyio.create_tcp_listener(local_host=host) as listener,
        anyio.create_task_group() as connections,  # which end with it
    ):
        connections.start_soon(listener.serve, forward)
        yield f"http://{host}:{listener.extra(SocketAttribute.local_port)}"
        connections.cancel_scope.cancel()


@asynccontextmanager
async def closed_later(use: Browsing) -> AsyncGenerator[None]:
    """Close a thread's browser while this loop goes on: the way there may lead through it."""
    try:
        yield
    finally:
        await asyncio.to_thread(use.session.close)


@pytest.mark.parametrize("host", sampled(("127.0.0.1", ELSEWHERE), 1, "cdp"))
async def test_a_browser_reached_by_cdp_is_guarded_and_logged_in(
    tmp_path: Path, site: PageServer, host: str
) -> None:
    with PageServer() as private:
        inside = private.add("/secret", "<p>Data of the intranet.")
        start = site.add("/start", "<p id=said></p><script>said.textContent = document.cookie +"
                         " ' ' + localStorage.getItem('kept')</script>")  # fmt: skip
        site.add("/frame", f"<p>The outer page.<iframe src='/redirect?to={inside}'></iframe>")
        site.add("/tricks", f"<p>Many tricks.</p><script>fetch('/redirect?to={inside}', "
                 "{mode: 'no-cors'}).catch(() => 0); new Image().src = "
                 f"'/redirect?to={inside}'; new WebSocket('ws://{private.place}/socket')"
                 "</script>")  # fmt: skip
        async with (
            somebodys_chromium(tmp_path / "person") as port,
            reached_at(host, port) as address,
            async_playwright() as playwright,
        ):
            person = await playwright.chromium.connect_over_cdp(address)
            window = person.contexts[0]
            await window.add_cookies([{"name": "login", "value": "ada", "url": site.url()}])
            use = Browsing(tmp_path / "work", BrowserSettings(cdp_url=address), allow=site.place)
            async with closed_later(use):
                assert "login=ada" in await use("go_to_url", url=start)
                redirected = await use.observe("go_to_url", url=site.url(f"/redirect?to={inside}"))
                assert redirected.failed
                assert "--allow-host" in redirected.text
                assert "intranet" not in await use("go_to_url", url=site.url("/frame"))
                assert "Many tricks" in await use("go_to_url", url=site.url("/tricks"))
                assert "outer page" in await use("open_tab", url=site.url("/frame"))
            await person.close()
        assert private.asked == []


@asynccontextmanager
async def other_playwright() -> AsyncGenerator[str]:
    """Answer as Playwright's server does to a client of another version; give its address."""
    text = b"Playwright version mismatch:\n- server version: v1.50\n- client version: v9.9"
    answer = b"HTTP/1.1 428 Precondition Required\r\nContent-Length: %d\r\n\r\n%s"

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer % (len(text), text))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_unreachable_remote_browser_is_reported(tmp_path: Path) -> None:
    async with other_playwright() as address:
        for settings, said in (
            (BrowserSettings(cdp_url="http://127.0.0.1:9"), "cdp_url names cannot be reached"),
            (BrowserSettings(wss_url="ws://127.0.0.1:9/devtools/browser/1"), "set it as cdp_url"),
            (BrowserSettings(wss_url=address), "client version: v9.9, server version: v1.50"),
        ):
            use = Browsing(tmp_path, settings)
            with contextlib.closing(use.session):
                seen = await use.observe("go_to_url", url="https://example.com")
            assert said in seen.text


@pytest.fixture
def server_options(tmp_path: Path) -> Path:
    options = {"executablePath": str(find_browser(None)), "chromiumSandbox": False,
               "host": "127.0.0.1", "port": 0}  # fmt: skip
    path = tmp_path / "server.json"
    path.write_text(json.dumps(options))
    return path


@asynccontextmanager
async def playwright_server(options: Path) -> AsyncGenerator[str]:
    """Start a Playwright server with a Chromium and give its address."""
    program = [*compute_driver_executable(), "launch-server", "--browser", "chromium",
               "--config", str(options)]  # fmt: skip
    process = await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def test_a_playwright_server_is_used(tmp_path: Path, server_options: Path) -> None:
    with awkward_site() as awkward:
        async with playwright_server(server_options) as address:
            use = Browsing(tmp_path / "work", BrowserSettings(wss_url=address))
            async with closed_later(use):
                assert "Plain page" in await use("go_to_url", url=f"{awkward}/plain")
                assert (await use.observe("go_to_url", url=f"{awkward}/inwards")).failed
                await use("go_to_url", url=f"{awkward}/files")
                assert "Downloaded downloads/report.txt" in await use.click("Report")
                (use.session.workspace.root / "note.txt").write_text("note")
                await use.click("Choose")
                assert "note.txt: note" in await use("upload_file", text="note.txt")
