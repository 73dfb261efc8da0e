"""The routes that return a screenshot of a thread's browser, and of its desktop."""

import asyncio
from typing import Any

from fastapi import APIRouter

from openmanus_graph.backends.desktop.desktop import HANDLE as DESKTOP
from openmanus_graph.backends.files.file_kinds import data_url
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.server.threads import require_thread
from openmanus_graph.runtime.session_registry import find_session

SCREENSHOT_TIMEOUT_MS = 3000
router = APIRouter(prefix="/app/api/threads/{thread}")


@router.get("/browser")
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


@router.get("/desktop")
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
