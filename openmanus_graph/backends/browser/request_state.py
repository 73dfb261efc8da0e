"""The browser's state for the next request, which is never stored."""

import asyncio

from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.declared import HANDLE
from openmanus_graph.backends.browser.observing import state
from openmanus_graph.backends.browser.page import full_text, marked_screenshot
from openmanus_graph.backends.files.file_kinds import data_url
from openmanus_graph.runtime.session import Session

BUDGET_TOKENS = 600
ALL_TOKENS = 1_000_000
LIMIT_S = 10.0


async def state_for_request(session: Session, picture: bool) -> tuple[str, str | None]:
    """Return the browser's state for the next request; never raises, and is bounded in time.

    Args:
        session: The thread's.
        picture: Whether to return a screenshot too, for a model that reads images.

    Returns:
        The text, empty if there is nothing to say, and the picture as a data URL.
    """
    browser = session.find(HANDLE)
    if not isinstance(browser, BrowserSession) or not browser.tabs:
        return "", None
    try:
        async with asyncio.timeout(LIMIT_S):
            return await browser_loop.run(lambda: _state(browser, picture))
    except Exception:  # noqa: BLE001  # a page that cannot be shown must not end the run
        return "", None


async def _state(browser: BrowserSession, picture: bool) -> tuple[str, str | None]:
    text, snapshot = await state(browser, BUDGET_TOKENS)
    redacted = browser.secrets.redacted(text)
    if snapshot is None or not picture:
        return redacted, None
    # A secret that the page shows in its text could be read from the picture as well.
    everything = full_text(snapshot, ALL_TOKENS)
    if browser.secrets.redacted(everything) != everything:
        return redacted, None
    async with browser.lock:
        photo = await marked_screenshot(browser.current.view, snapshot)
    return redacted, data_url(photo, "image/jpeg")
