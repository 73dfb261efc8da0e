"""The browser's state for the next request, which is never stored."""

import asyncio
import base64

from openmanus_graph.browser.declared import HANDLE
from openmanus_graph.browser.engine import engine
from openmanus_graph.browser.observing import state
from openmanus_graph.browser.page import full_text, marked_screenshot
from openmanus_graph.browser.window import Window
from openmanus_graph.sessions import Session

BUDGET_TOKENS = 600
ALL_TOKENS = 1_000_000
LIMIT_S = 10.0


async def state_for_request(session: Session, picture: bool) -> tuple[str, str | None]:
    """Return what the next request should say of the browser; never fails, and is soon done.

    Args:
        session: The thread's.
        picture: Whether the model sees: the window then comes as a picture too.

    Returns:
        The text, empty if there is nothing to say, and the picture as a data URL.
    """
    window = session.find(HANDLE)
    if not isinstance(window, Window) or not window.tabs:
        return "", None
    try:
        async with asyncio.timeout(LIMIT_S):
            return await engine.run(lambda: _state(window, picture))
    except Exception:  # noqa: BLE001  # a page that cannot be shown must not end the run
        return "", None


async def _state(window: Window, picture: bool) -> tuple[str, str | None]:
    text, snapshot = await state(window, BUDGET_TOKENS)
    said = window.secrets.redacted(text)
    if snapshot is None or not picture:
        return said, None
    # A secret that the page shows in its text could be read from the picture as well.
    everything = full_text(snapshot, ALL_TOKENS)
    if window.secrets.redacted(everything) != everything:
        return said, None
    async with window.lock:
        photo = await marked_screenshot(window.current.view, snapshot)
    return said, f"data:image/jpeg;base64,{base64.b64encode(photo).decode()}"
