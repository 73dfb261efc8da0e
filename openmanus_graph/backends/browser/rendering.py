"""Pages rendered for other tools: each in a context of its own, without the thread's logins."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openmanus_graph.backends.browser.browsers import browser_loop, browsers
from openmanus_graph.backends.browser.connection import Connection, open_connection
from openmanus_graph.backends.browser.content import serialized
from openmanus_graph.backends.browser.launch import first_line
from openmanus_graph.backends.browser.page import PageView
from openmanus_graph.backends.browser.tab import Tab
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session import Session

if TYPE_CHECKING:
    from playwright.async_api import Dialog

SETTLE_SHARE = 0.5
"""Of the time limit, at most, for waiting until a page is quiet."""


@dataclass(frozen=True)
class Rendered:
    """A page after its scripts have run."""

    url: str
    """Where it was in the end."""
    status: int
    title: str
    html: str
    """Shadow roots in place, frames at the end."""
    media_type: str


async def rendered(session: Session, url: str, timeout_s: float) -> Rendered:
    """Open a page, wait until it is quiet, and return it.

    Args:
        session: Its settings name browser and guard.
        url: A whole address.
        timeout_s: For all of it, the wait for a turn included.

    Raises:
        ToolError: There is no browser, or the page was not opened, and why.
    """
    return await browser_loop.run(lambda: _rendered(session, url, timeout_s))


async def _rendered(session: Session, url: str, timeout_s: float) -> Rendered:
    try:
        async with asyncio.timeout(timeout_s), browsers().rendering:
            connection = await open_connection(session.settings, None, fresh=True)
            try:
                connection.guard.check(url)
                return await _read(connection, url, timeout_s * SETTLE_SHARE)
            finally:
                await asyncio.shield(connection.close())
    except TimeoutError as error:
        raise ToolError(
            f"{url} was not rendered within {timeout_s:g} s. Try fetch_page, or another source."
        ) from error


async def _read(connection: Connection, url: str, settle_s: float) -> Rendered:
    from playwright.async_api import Error

    connection.context.on("dialog", _dismiss)
    page = await connection.new_page()
    tab = Tab(0, page, PageView(page))
    page.on("response", tab.on_response)
    try:
        await page.goto(url, wait_until="commit")
        await tab.view.settle(settle_s)
        parts = await serialized(page)
    except Error as error:
        raise ToolError(f"{url} was not rendered: {first_line(error)}") from error
    finally:
        tab.view.close()
    html = "\n".join(str(part["html"]) for part in parts)
    return Rendered(page.url, tab.status, parts[0]["title"], html, tab.media_type)


async def _dismiss(dialog: "Dialog") -> None:
    from playwright.async_api import Error

    with contextlib.suppress(Error):
        await dialog.dismiss()
