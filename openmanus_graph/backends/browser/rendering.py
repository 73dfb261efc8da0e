"""Pages as HTML: serialized with their frames, or first rendered for other tools."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openmanus_graph.backends.browser.browsers import browser_loop, browsers
from openmanus_graph.backends.browser.connection import Connection, open_connection
from openmanus_graph.backends.browser.dialogs import answer_dialog
from openmanus_graph.backends.browser.launch import first_line
from openmanus_graph.backends.browser.page import PageView
from openmanus_graph.backends.browser.page.frames import script
from openmanus_graph.backends.browser.tab import Tab
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session

if TYPE_CHECKING:
    from playwright.async_api import Page

MAX_HTML_CHARS = 5_000_000
MAX_FRAMES = 30
SETTLE_SHARE = 0.5
"""Of the time limit, at most, for waiting until a page is quiet."""


@dataclass(frozen=True)
class RenderedPage:
    """A page after its scripts have run."""

    url: str
    """Where it was in the end."""
    status: int
    title: str
    html: str
    """Shadow roots in place, frames at the end."""
    media_type: str


async def render_page(session: Session, url: str, timeout_s: float) -> RenderedPage:
    """Open a page, wait until it is quiet, and return it.

    It gets a context of its own, without the thread's logins.

    Args:
        session: Its settings name browser and guard.
        url: A whole address.
        timeout_s: For all of it, the wait for a turn included.

    Raises:
        ToolError: There is no browser, or the page was not opened, and why.
    """
    return await browser_loop.run(lambda: _render(session, url, timeout_s))


async def _render(session: Session, url: str, timeout_s: float) -> RenderedPage:
    try:
        async with asyncio.timeout(timeout_s), browsers().rendering:
            connection = await open_connection(session.settings, None, fresh=True)
            try:
                connection.guard.check(url)
                return await _load(connection, url, timeout_s * SETTLE_SHARE)
            finally:
                await asyncio.shield(connection.close())
    except TimeoutError as error:
        raise ToolError(
            f"{url} was not rendered within {timeout_s:g} s. Try fetch_page, or another source."
        ) from error


async def _load(connection: Connection, url: str, settle_s: float) -> RenderedPage:
    from playwright.async_api import Error

    connection.context.on("dialog", lambda dialog: answer_dialog(dialog, accept=False))
    page = await connection.new_page()
    tab = Tab(0, page, PageView(page))
    page.on("response", tab.on_response)
    try:
        await page.goto(url, wait_until="commit")
        await tab.view.settle(settle_s)
        parts = await serialize(page)
    except Error as error:
        raise ToolError(f"{url} was not rendered: {first_line(error)}") from error
    finally:
        tab.view.close()
    html = "\n".join(str(part["html"]) for part in parts)
    return RenderedPage(page.url, tab.status, parts[0]["title"], html, tab.media_type)


async def serialize(page: "Page") -> list[dict[str, Any]]:
    """Return `title`, `base`, `html` and `cut` of a page and its frames, the page first."""
    from playwright.async_api import Error

    parts = [await page.evaluate(script("serialize"), MAX_HTML_CHARS)]
    for frame in page.frames[1:MAX_FRAMES]:
        try:
            part = await frame.evaluate(script("serialize"), MAX_HTML_CHARS // 5)
        except Error:
            continue  # it was removed, or never loaded
        if part["html"].strip():
            parts.append(part)
    for part in parts:
        title = str(part["title"]).replace("&", "&amp;").replace("<", "&lt;")
        head = f"<!doctype html><html><head><title>{title}</title></head>"
        part["html"] = f"{head}{part['html']}</html>"
    return parts
