"""Lets a user take over a thread's browser and give it back. One watching user has it at a time.

The server does not log or store what is sent here, and passes it only to the browser.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Generator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from openmanus_graph.backends.desktop.desktop import HANDLE as DESKTOP
from openmanus_graph.backends.files.file_content import data_url
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.runtime.process import EventLoopThread
from openmanus_graph.runtime.session_registry import borrow_session, find_session

if TYPE_CHECKING:
    from openmanus_graph.backends.browser.takeover import Takeover

LEFT_S = 20.0
"""Seconds until a takeover ends without a watcher: after a closed tab, or a lost connection."""
FRAME_WAIT_S = 1.0
MOST_INPUTS = 500
SCREENSHOT_TIMEOUT_MS = 3000
router = APIRouter(prefix="/app/api/threads/{thread}")


@dataclass
class Visit:
    thread: str
    worker: str
    """Of a plan, if it is that worker's browser; empty for the thread's own."""
    takeover: "Takeover"
    loop: EventLoopThread
    """The browser's."""
    stack: contextlib.AsyncExitStack
    watchers: int = 0
    _leaving: asyncio.TimerHandle | None = None
    _ending: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @contextlib.contextmanager
    def watched(self) -> Generator[None]:
        """Keep the takeover while the user watches, and a little longer."""
        self.watchers += 1
        try:
            yield
        finally:
            self.watchers -= 1
            self.end_unless_watched()

    def end_unless_watched(self) -> None:
        """End the takeover after a while, unless a watcher comes."""
        loop = asyncio.get_running_loop()

        def end() -> None:
            if not self.watchers:
                self._ending.add(loop.create_task(end_takeover(self)))

        if self._leaving is not None:
            self._leaving.cancel()
        self._leaving = loop.call_later(LEFT_S, end)


visits: dict[str, Visit] = {}
"""By the takeover's id."""
_beginning = asyncio.Lock()


def find_visit(thread: str, takeover: str) -> Visit:
    visit = visits.get(takeover)
    if visit is None or visit.thread != thread or visit.takeover.ended:
        raise Refused(410, "This takeover is over.")
    return visit


async def begin_takeover(thread: str, worker: str, *, force: bool) -> Visit:
    """Take a thread's browser over; it is opened if it is not open. `worker` as in `Visit`.

    Refused if another user has it (unless `force`), the agent uses it, or it cannot be opened.
    """
    from openmanus_graph.backends.browser.action_specs import HANDLE
    from openmanus_graph.backends.browser.browser_session import BrowserSession
    from openmanus_graph.backends.browser.browsers import browser_loop
    from openmanus_graph.backends.browser.takeover import Takeover

    async with _beginning:
        known = [one for one in visits.values() if (one.thread, one.worker) == (thread, worker)]
        if not force and any(not one.takeover.ended for one in known):
            raise Refused(409, "The browser was taken over in another tab.")
        for one in known:
            await end_takeover(one)
        async with contextlib.AsyncExitStack() as stack:
            settings = await store.current().settings(thread)
            session = await stack.enter_async_context(borrow_session(thread, settings, worker))
            browser = await asyncio.to_thread(
                session.handle, HANDLE, lambda: BrowserSession(session)
            )

            async def begin() -> Takeover:  # on the browser's loop, to which its locks belong
                takeover = Takeover(browser)
                await takeover.begin()
                return takeover

            try:
                takeover = await browser_loop.run(begin)
            except ToolError as error:
                raise Refused(409, str(error)) from error
            visit = visits[takeover.id] = Visit(
                thread, worker, takeover, browser_loop, stack.pop_all()
            )
    visit.end_unless_watched()
    return visit


async def end_takeovers(thread: str) -> None:
    for visit in [one for one in visits.values() if one.thread == thread]:
        await end_takeover(visit)


async def end_takeover(visit: Visit) -> None:
    if visits.pop(visit.takeover.id, None) is not None:
        await visit.loop.run(visit.takeover.end)
        await visit.stack.aclose()


pages: list[str] = []
"""The page's address with its token, as `openmanus serve` prints it. Empty in another server."""


def announce_takeover(thread: str, worker: str) -> None:
    """Print where the user finds a browser of a thread."""
    for known in pages:
        page, _, token = known.partition("#")
        link = f"{page}/t/{thread}?browser={quote(worker, safe='')}#{token}"
        sys.stdout.write(f"The agent asks you to take its browser over: {link}\n")
        sys.stdout.flush()


class TakeoverRequest(BaseModel):
    worker: str = Field("", max_length=200)
    force: bool = False


class GivenInput(BaseModel):
    """An input of the user; see `backends.browser.takeover.Input`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    kind: Literal["move", "down", "up", "wheel", "text", "key", "back", "reload", "dialog"]
    x: float = Field(0, ge=0, le=1e5)
    y: float = Field(0, ge=0, le=1e5)
    dx: float = Field(0, ge=-1e5, le=1e5)
    dy: float = Field(0, ge=-1e5, le=1e5)
    button: Literal["left", "middle", "right"] = "left"
    count: int = Field(1, ge=1, le=3)
    text: str = Field("", max_length=10_000, repr=False)
    modifiers: tuple[str, ...] = ()
    accept: bool = True


@router.post("/takeover", status_code=201)
async def take_over(thread: str, wanted: TakeoverRequest) -> dict[str, str]:
    await store.require_thread(thread)
    visit = await begin_takeover(thread, wanted.worker, force=wanted.force)
    return {"id": visit.takeover.id}


@router.get("/takeover/{takeover}/frames")
async def follow_frames(thread: str, takeover: str) -> StreamingResponse:
    """Stream what the browser shows as server-sent events, until the takeover ends."""
    return store.event_stream(_frames(find_visit(thread, takeover)))


@router.post("/takeover/{takeover}/input", status_code=204)
async def act(thread: str, takeover: str, inputs: list[GivenInput]) -> Response:
    from openmanus_graph.backends.browser.takeover import Input

    visit = find_visit(thread, takeover)
    done = [Input(**one.model_dump()) for one in inputs[:MOST_INPUTS]]
    await visit.loop.run(lambda: visit.takeover.act(done))
    return Response(status_code=204)


@router.delete("/takeover/{takeover}", status_code=204)
async def give_back(thread: str, takeover: str) -> Response:
    await end_takeover(find_visit(thread, takeover))
    return Response(status_code=204)


async def _frames(visit: Visit) -> AsyncGenerator[str]:
    after = 0
    with visit.watched():
        while not visit.takeover.ended and not store.current().journal.is_closing:
            frame = await visit.loop.run(lambda: visit.takeover.next_frame(after, FRAME_WAIT_S))  # noqa: B023  # awaited here
            if frame is None:
                yield ": ping\n\n"
                continue
            after = frame.number
            yield f"data: {json.dumps({'type': 'frame', **asdict(frame)})}\n\n"
        yield 'data: {"type": "ended"}\n\n'


@router.get("/browser")
async def show_browser(thread: str) -> dict[str, Any]:
    """Take a screenshot of the current tab; `open` is false if there is none."""
    await store.require_thread(thread)
    session = find_session(thread)
    browser = session.find("browser") if session else None
    if browser is None:
        return {"open": False}
    from playwright.async_api import Error

    from openmanus_graph.backends.browser.browser_session import BrowserSession
    from openmanus_graph.backends.browser.browsers import browser_loop

    if not isinstance(browser, BrowserSession) or not browser.tabs:
        return {"open": False}

    async def take_screenshot() -> dict[str, Any]:
        page, timeout = browser.current.page, SCREENSHOT_TIMEOUT_MS
        photo = await page.screenshot(
            type="jpeg", quality=70, scale="css", caret="initial", timeout=timeout
        )
        image = data_url(photo, "image/jpeg")
        return {"open": True, "url": page.url, "title": await page.title(), "image": image}

    try:
        return await browser_loop.run(take_screenshot)
    except (Error, TimeoutError):  # the tab is being closed, or a dialog blocks it
        return {"open": True, "url": browser.current.current_url, "title": "", "image": None}


@router.get("/desktop")
async def show_desktop(thread: str) -> dict[str, Any]:
    """Take a screenshot of the desktop; `open` is false if there is none."""
    await store.require_thread(thread)
    session = find_session(thread)
    desktop = session.find(DESKTOP) if session else None
    if desktop is None:
        return {"open": False}
    from openmanus_graph.backends.desktop.desktop import Desktop, as_jpeg

    if not isinstance(desktop, Desktop):
        return {"open": False}
    windows = desktop.windows
    title = windows.titles.get(windows.active) or "Desktop"
    try:
        photo = await asyncio.to_thread(lambda: as_jpeg(desktop.picture()))
    except (ToolError, OSError):  # it is being closed
        return {"open": True, "title": title, "image": None}
    return {"open": True, "title": title, "image": data_url(photo, "image/jpeg")}
