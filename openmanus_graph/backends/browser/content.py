"""The whole content of the current page as text: all frames, shadow roots, and PDFs."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.launch import first_line
from openmanus_graph.backends.browser.page.frames import script
from openmanus_graph.backends.web.client import fetch
from openmanus_graph.backends.web.markdown import PageText, page_text, whole
from openmanus_graph.backends.web.reading import read_page
from openmanus_graph.errors import ToolError, TrustedToolError

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

MAX_HTML_CHARS = 5_000_000
MAX_FRAMES = 30
READ_S = 30.0


@dataclass(frozen=True)
class Content:
    """The content of a page."""

    url: str
    title: str
    text: str
    """Markdown, the main content first."""


async def read_content(browser: BrowserSession) -> Content:
    """Read the current page. On the browser's event loop.

    Raises:
        ToolError: It cannot be read.
    """
    async with browser.lock:
        await browser.ensure()
        if open_dialog := browser.dialogs.describe():
            raise ToolError(f"Nothing was read. {open_dialog}")
        tab = browser.current
        await tab.view.settle()
        if tab.is_document or tab.file:
            return await _document(browser, tab.file or tab.page.url)
        parts = await _parts(tab.page)
    texts = [await _text_of(part) for part in parts]
    return Content(tab.page.url, parts[0]["title"], whole(texts))


async def _text_of(part: Mapping[str, Any]) -> PageText:
    text = await page_text(part["html"], part["base"])
    return replace(text, read=text.read or len(part["html"])) if part["cut"] else text


async def _parts(page: "Page") -> list[dict[str, Any]]:
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(READ_S):
            return await serialized(page)
    except TimeoutError as error:
        raise TrustedToolError(
            "The page is too busy to be read. Wait, or load it with refresh."
        ) from error
    except Error as error:
        raise ToolError(
            f"The page could not be read: {first_line(error)} Look at it with get_state."
        ) from error


async def serialized(page: "Page") -> list[dict[str, Any]]:
    """Return `title`, `base`, `html` and `cut` of a page and its frames, the page first."""
    found = [await page.evaluate(script("serialize"), MAX_HTML_CHARS)]
    for frame in page.frames[1:MAX_FRAMES]:
        part = await _of_frame(frame)
        if part:
            found.append(part)
    html = [_document_of(part) for part in found]
    return [{**part, "html": text} for part, text in zip(found, html, strict=True)]


async def _of_frame(frame: "Frame") -> dict[str, Any] | None:
    from playwright.async_api import Error

    try:
        part: dict[str, Any] = await frame.evaluate(script("serialize"), MAX_HTML_CHARS // 5)
    except Error:
        return None  # it was removed, or never loaded
    return part if part["html"].strip() else None


def _document_of(part: dict[str, Any]) -> str:
    title = str(part["title"]).replace("&", "&amp;").replace("<", "&lt;")
    return f"<!doctype html><html><head><title>{title}</title></head>{part['html']}</html>"


async def _document(browser: BrowserSession, url: str) -> Content:
    """Read a document that the browser displays or keeps: it is fetched again, with the cookies."""
    cookies = await browser.connection.context.cookies(url)
    pairs = "; ".join(f"{cookie.get('name')}={cookie.get('value')}" for cookie in cookies)
    headers = {"Cookie": pairs} if pairs else None
    page = await fetch(url, browser.connection.guard, headers=headers)
    reading = await read_page(page, browser.session.workspace)
    return Content(url, reading.title, reading.text)
