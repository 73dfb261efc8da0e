"""Routes by which a person takes a thread's browser over, and gives it back.

Nothing that is sent here is logged, stored or passed on but to the browser.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from openmanus_graph.backends.desktop.desktop import HANDLE as DESKTOP
from openmanus_graph.backends.files.file_kinds import data_url
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.server.store import store
from openmanus_graph.interfaces.server.threads import require_thread
from openmanus_graph.interfaces.server.visits import (
    Visit,
    begin_takeover,
    end_takeover,
    find_visit,
)
from openmanus_graph.runtime.session_registry import find_session

FRAME_WAIT_S = 1.0
MOST_INPUTS = 500
router = APIRouter(prefix="/app/api/threads/{thread}/takeover")


class Wish(BaseModel):
    """Which of the thread's browsers, and whether to take it from whoever has it."""

    worker: str = Field("", max_length=200)
    force: bool = False


class GivenInput(BaseModel):
    """Something that the person does; see `backends.browser.takeover.Input`."""

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


@router.post("", status_code=201)
async def take_over(thread: str, wish: Wish) -> dict[str, str]:
    """Take the browser over, from another person if that is wished."""
    await require_thread(thread)
    visit = await begin_takeover(thread, wish.worker, force=wish.force)
    return {"id": visit.takeover.id}


@router.get("/{takeover}/frames")
async def follow_frames(thread: str, takeover: str) -> StreamingResponse:
    """Stream what the browser shows as server-sent events, until the takeover ends."""
    visit = find_visit(thread, takeover)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_frames(visit), media_type="text/event-stream", headers=headers)


@router.post("/{takeover}/input", status_code=204)
async def act(thread: str, takeover: str, inputs: list[GivenInput]) -> Response:
    """Do what the person did."""
    from openmanus_graph.backends.browser.browsers import browser_loop
    from openmanus_graph.backends.browser.takeover import Input

    visit = find_visit(thread, takeover)
    done = [Input(**one.model_dump()) for one in inputs[:MOST_INPUTS]]
    await browser_loop.run(lambda: visit.takeover.act(done))
    return Response(status_code=204)


@router.delete("/{takeover}", status_code=204)
async def give_back(thread: str, takeover: str) -> Response:
    """Give the browser back to the agent."""
    await end_takeover(find_visit(thread, takeover))
    return Response(status_code=204)


async def _frames(visit: Visit) -> AsyncGenerator[str]:
    from openmanus_graph.backends.browser.browsers import browser_loop

    after = 0
    with visit.watched():
        while not visit.takeover.ended and not store().journal.is_closing:
            frame = await browser_loop.run(lambda: visit.takeover.next_frame(after, FRAME_WAIT_S))  # noqa: B023  # awaited here
            if frame is None:
                yield ": ping\n\n"
                continue
            after = frame.number
            yield f"data: {json.dumps({'type': 'frame', **asdict(frame)})}\n\n"
        yield 'data: {"type": "ended"}\n\n'


SCREENSHOT_TIMEOUT_MS = 3000
screen_router = APIRouter(prefix="/app/api/threads/{thread}")


@screen_router.get("/browser")
async def show_browser(thread: str) -> dict[str, Any]:
    """Take a screenshot of the current tab; `open` is false when there is none."""
    await require_thread(thread)
    session = find_session(thread)
    if session is None or session.find("browser") is None:
        return {"open": False}
    from playwright.async_api import Error

    from openmanus_graph.backends.browser.browser_session import BrowserSession
    from openmanus_graph.backends.browser.browsers import browser_loop

    browser = session.find("browser")
    if not isinstance(browser, BrowserSession) or not browser.tabs:
        return {"open": False}

    async def take_screenshot() -> dict[str, Any]:
        page = browser.current.page
        photo = await page.screenshot(
            type="jpeg", quality=70, scale="css", caret="initial", timeout=SCREENSHOT_TIMEOUT_MS
        )
        image = data_url(photo, "image/jpeg")
        return {"open": True, "url": page.url, "title": await page.title(), "image": image}

    try:
        return await browser_loop.run(take_screenshot)
    except (Error, TimeoutError):  # the tab is being closed, or a dialog blocks it
        return {"open": True, "url": browser.current.current_url, "title": "", "image": None}


@screen_router.get("/desktop")
async def show_desktop(thread: str) -> dict[str, Any]:
    """Take a screenshot of the desktop; `open` is false when there is none."""
    await require_thread(thread)
    session = find_session(thread)
    if session is None or session.find(DESKTOP) is None:
        return {"open": False}
    from openmanus_graph.backends.desktop.desktop import Desktop, as_jpeg

    desktop = session.find(DESKTOP)
    if not isinstance(desktop, Desktop):
        return {"open": False}
    windows = desktop.windows
    title = windows.titles.get(windows.active) or "Desktop"
    try:
        photo = await asyncio.to_thread(lambda: as_jpeg(desktop.picture()))
    except (ToolError, OSError):  # it is being closed
        return {"open": True, "title": title, "image": None}
    return {"open": True, "title": title, "image": data_url(photo, "image/jpeg")}
