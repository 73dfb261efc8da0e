"""The route that shows what a thread's browser shows."""

import base64
from typing import Any

from fastapi import APIRouter

from openmanus_graph.registry import find_session
from openmanus_graph.server.threads import require_thread

PATIENCE_MS = 3000
router = APIRouter(prefix="/app/api/threads/{thread}")


@router.get("/browser")
async def show_browser(thread: str) -> dict[str, Any]:
    """Photograph the current tab; `open` is false when there is none."""
    await require_thread(thread)
    session = find_session(thread)
    if session is None or session.find("browser") is None:
        return {"open": False}
    from playwright.async_api import Error

    from openmanus_graph.browser.engine import engine
    from openmanus_graph.browser.window import Window

    window = session.find("browser")
    if not isinstance(window, Window) or not window.tabs:
        return {"open": False}

    async def look() -> dict[str, Any]:
        page = window.current.page
        photo = await page.screenshot(
            type="jpeg", quality=70, scale="css", caret="initial", timeout=PATIENCE_MS
        )
        image = f"data:image/jpeg;base64,{base64.b64encode(photo).decode()}"
        return {"open": True, "url": page.url, "title": await page.title(), "image": image}

    try:
        return await engine.run(look)
    except (Error, TimeoutError):  # it is just being closed, or a dialog keeps it
        return {"open": True, "url": window.current.place, "title": "", "image": None}
