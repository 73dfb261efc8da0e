"""Waiting: what an action sets off is there at the next look, and nothing waits for ever."""

import asyncio
import base64
import hashlib
import os
import signal
from functools import partial
from typing import Any, cast

import pytest
from playwright.async_api import ConsoleMessage, WebSocket

from openmanus_graph.backends.browser.page import view
from openmanus_graph.backends.browser.page.frames import EVENTS
from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.backends.browser.page.text import change_text
from tests.support.limits import BACKSTOP_S
from tests.support.pages import PageServer
from tests.support.tabs import Tab

BARE_MS = 2500  # how long a page that shows nothing yet is awaited

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("button", "result"),
    [
        ("Fetch", "fetched 500"), ("Late", "late result"), ("Chain", "chain done"),
        ("Toast", "after toast"), ("Leave", "# Prices"),
    ],
)  # fmt: skip
async def test_the_effects_of_a_click_are_awaited(tab: Tab, button: str, result: str) -> None:
    await tab.open("waits.html")
    assert result in await tab.do(click, f'"{button}"')


async def test_a_request_just_sent_is_awaited_before_the_driver_reports_it(tab: Tab) -> None:
    await tab.open("waits.html")
    left = await tab.page.evaluate(
        """(name) => {
            let left;
            window.addEventListener(`${name}timers!`, (event) => (left = event.screenX), true);
            fetch('/slow?ms=1');
            window.dispatchEvent(new MouseEvent(`${name}timers?`, { screenX: 0, screenY: 600 }));
            return left;
        }""",
        EVENTS,
    )
    assert left > 0


@pytest.mark.parametrize(
    ("page", "result"), [("late", "drawn by itself"), ("boot", 'button "Start"')]
)
async def test_content_drawn_by_scripts_is_awaited(tab: Tab, page: str, result: str) -> None:
    assert result in await tab.open(f"waits.html?{page}")


async def test_a_message_that_is_gone_again_is_repeated(tab: Tab) -> None:
    await tab.open("waits.html")
    assert 'Message (gone again): "Saved for a moment"' in await tab.do(click, '"Toast"')


async def test_a_page_that_never_rests_is_not_waited_for(tab: Tab) -> None:
    await tab.page.goto(f"{tab.site}/waits.html?restless")
    assert await tab.view.settle(9.5) == ""
    await tab.see()
    assert "fetched 500" in await tab.do(click, '"Fetch"')


async def test_a_long_poll_is_not_waited_for(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "SLOW_S", 0.2)
    monkeypatch.setattr(view, "MAX_REPEATS", 1000)
    await tab.page.goto(f"{tab.site}/waits.html?polls")
    assert await tab.view.settle(20) == ""


async def test_a_request_without_an_end_is_reported(tab: Tab) -> None:
    await tab.page.goto(f"{tab.site}/waits.html?endless")
    note = await tab.view.settle(1.0)
    assert note == "The page is still loading (slow)."
    await tab.view.look()
    assert await tab.view.settle(0.01) != ""


@pytest.mark.parametrize(
    ("button", "result", "note"),
    [
        ("Fade in", 'button "In the card"', ""),
        ("Fade out", "Gone: [", ""),
        ("In steps", 'button "At last"', ""),
        ("Slowly", 'button "In the card"', "Still moving: Faded content In the card."),
    ],
)
async def test_what_moves_or_fades_is_awaited_or_said(
    tab: Tab, button: str, result: str, note: str
) -> None:
    await tab.open("waits.html")
    if button == "Fade out":
        await tab.do(click, '"Fade in"')
    said = await tab.do(click, f'"{button}"')
    assert result in said
    assert "Nothing on the page changed" not in said
    assert said.split("\n")[1] == note


@pytest.mark.parametrize(
    ("page", "note"),
    [("unread", "A response is still coming in (drip)."), ("streams", "")],
)
async def test_a_response_that_nobody_reads_is_not_waited_for(
    tab: Tab, page: str, note: str
) -> None:
    await tab.page.goto(f"{tab.site}/waits.html?{page}")
    assert await tab.view.settle(BACKSTOP_S) == note


async def accept_socket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the request that opens a web socket."""
    request = (await reader.readuntil(b"\r\n\r\n")).decode()
    key = request.split("Sec-WebSocket-Key: ")[1].split("\r\n")[0]
    digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
    accept = base64.b64encode(digest).decode()
    writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )


async def answer_messages(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_answer: asyncio.Event
) -> None:
    """Speak as much of the web socket protocol as answering short messages takes."""
    await accept_socket(reader, writer)
    while (head := await reader.read(2)) and head[0] == 0x81:
        await reader.readexactly(4 + (head[1] & 0x7F))
        await may_answer.wait()
        writer.write(b"\x81\x0aanswered " + b"!")
    writer.close()


async def speak_first(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_answer: asyncio.Event
) -> None:
    """Send a message to whoever opens a web socket, and read none."""
    await accept_socket(reader, writer)
    await may_answer.wait()
    writer.write(b"\x81\x0aanswered " + b"!")
    await reader.read()
    writer.close()


def note_waiting(tab: Tab, monkeypatch: pytest.MonkeyPatch, began: asyncio.Event) -> asyncio.Event:
    """Return what is set as soon as the tab waits for the network after something began."""
    waits, busy = asyncio.Event(), tab.view.network.busy

    def noted() -> bool:
        if (now := busy()) and began.is_set():
            waits.set()
        return now

    monkeypatch.setattr(tab.view.network, "busy", noted)
    return waits


async def test_the_answer_to_a_message_over_a_web_socket_is_awaited(
    tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = asyncio.Event()

    def on_socket(socket: WebSocket) -> None:
        socket.on("framesent", lambda _: sent.set())

    answer = partial(answer_messages, may_answer=note_waiting(tab, monkeypatch, sent))
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        await tab.open("waits.html")
        tab.page.once("websocket", on_socket)
        await tab.page.evaluate(
            """(port) => {
                const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
                socket.onmessage = (event) => (out.textContent = event.data);
                nothing.onclick = () => socket.send('click');
                return new Promise((resolve) => (socket.onopen = resolve));
            }""",
            server.sockets[0].getsockname()[1],
        )
        assert "answered !" in await tab.do(click, '"Nothing"')
        await tab.page.goto("about:blank")


async def test_the_first_message_of_a_web_socket_is_awaited(
    tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = asyncio.Event()
    tab.page.once("websocket", lambda _: opened.set())
    answer = partial(speak_first, may_answer=note_waiting(tab, monkeypatch, opened))
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        await tab.open("waits.html")
        await tab.page.evaluate(
            """(port) => (nothing.onclick = () => {
                const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
                socket.onmessage = (event) => (out.textContent = event.data);
                return new Promise((resolve) => (socket.onopen = resolve));
            }) && undefined""",
            server.sockets[0].getsockname()[1],
        )
        assert "answered !" in await tab.do(click, '"Nothing"')
        await tab.page.goto("about:blank")


async def test_a_page_that_shows_something_is_shown_while_it_loads(
    tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "SHOWN_S", 0.1)
    await tab.page.goto(f"{tab.site}/waits.html?endless")
    assert await tab.view.settle(BACKSTOP_S) == "The page is still loading (slow)."


async def test_a_page_whose_scripts_hang_is_waited_for_no_longer_than_allowed(tab: Tab) -> None:
    await tab.open("tables.html")
    busy = "() => { setTimeout(() => { for (const end = Date.now() + 4000; Date.now() < end;); }) }"
    await tab.page.evaluate(busy)
    assert await tab.view.settle(0.3) == "The page is still loading."


async def test_a_click_without_effect_says_so(tab: Tab) -> None:
    await tab.open("tables.html")
    await tab.do(click, '"First"')
    before = tab.shot
    assert before
    said = await tab.do(click, '"First"')
    assert "Nothing on the page changed." in said
    assert change_text(before, before, 500) == "Nothing on the page changed."


async def test_a_list_that_a_script_slides_open_is_awaited_beside_what_never_rests(
    tab: Tab,
) -> None:
    await tab.open("slides.html")
    said = await tab.do(click, '"Open the list"')
    assert all(f'button "{name}"' in said for name in ("First", "Second", "Third"))


async def test_frames_that_a_busy_machine_draws_late_are_awaited(tab: Tab) -> None:
    browser = tab.page.context.browser
    assert browser is not None
    session = await browser.new_browser_cdp_session()
    found = cast("dict[str, Any]", await session.send("SystemInfo.getProcessInfo"))
    drawing: int = next(one["id"] for one in found["processInfo"] if one["type"] == "GPU")
    signals = {"stop": signal.SIGSTOP, "go on": signal.SIGCONT}

    def draw_or_not(message: ConsoleMessage) -> None:
        if message.text in signals:
            os.kill(drawing, signals[message.text])

    tab.page.on("console", draw_or_not)
    try:
        await tab.open("slides.html?late")
        said = await tab.do(click, '"Open the list"')
    finally:
        tab.page.remove_listener("console", draw_or_not)
        os.kill(drawing, signal.SIGCONT)
    assert all(f'button "{name}"' in said for name in ("First", "Second", "Third"))


@pytest.mark.parametrize(
    ("body", "awaited"),
    [
        ("", False), ("<h1>Thank you</h1>", False), ("<title>Done</title>ok", False),
        ("<p style='height:9px; background:red'></p>", False), ("{}", False),
        ("<div id=root></div><script>0</script>", True),
        ("<meta http-equiv=refresh content='60; url=/'>", True),
    ],
)  # fmt: skip
async def test_a_page_with_little_text_is_awaited_only_if_something_may_draw_more(
    tab: Tab, body: str, awaited: bool
) -> None:
    with PageServer() as server:
        await tab.page.goto(server.add("/little", body), wait_until="commit")
        assert await tab.view.settle(BACKSTOP_S) == ""
        # Of the page's own time: a busy machine adds to it, and takes nothing away.
        assert (await tab.page.evaluate("performance.now()") >= BARE_MS) == awaited
