"""Crawling several pages at once, rendered by the browser if there is one, else by plain HTTP."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from openmanus_graph.backends.browser.browsers import browser_loop, browsers
from openmanus_graph.backends.browser.connection import Connection, open_connection
from openmanus_graph.backends.browser.launch import first_line
from openmanus_graph.backends.browser.page import PageView
from openmanus_graph.backends.browser.page.frames import script
from openmanus_graph.backends.browser.tab import Tab, answer_dialog
from openmanus_graph.backends.web.client import Robots, fetch
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.reading import (
    HEADER_CHARS,
    Reading,
    fitted,
    read_html,
    read_page,
)
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.tool_traits import Observation

if TYPE_CHECKING:
    from playwright.async_api import Page


PAGES_AT_ONCE = 5
_LEAST_CHARS = 300
"""Of each page in the report, however many there are."""
_HTML_TYPES = ("text/html", "application/xhtml+xml")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CrawledPage:
    """A page that was read."""

    requested: str
    url: str
    status: int
    title: str
    text: str
    words: int
    links: int
    images: int
    note: str
    seconds: float = 0.0
    cached: bool = False


@dataclass(frozen=True)
class FailedPage:
    """A page that could not be read."""

    url: str
    reason: str
    trusted_text: bool = False
    """The reason contains no text from outside."""


class Crawler:
    """Crawls pages for one run, and caches them until it ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._guard = Guard.of(session.settings)
        self._robots = Robots(self._guard)
        self._pages: dict[tuple[str, int], CrawledPage] = {}

    async def read(
        self, urls: Sequence[str], *, timeout_s: float, fresh: bool, word_count_threshold: int
    ) -> list[CrawledPage | FailedPage]:
        """Read pages, a few at a time; one that fails does not stop the others.

        Args:
            urls: Their addresses.
            timeout_s: For each of them.
            fresh: Read pages again that are cached.
            word_count_threshold: As `page_text` takes it.
        """
        limit = asyncio.Semaphore(PAGES_AT_ONCE)

        async def read_one(url: str) -> CrawledPage | FailedPage:
            cached = self._pages.get((url, word_count_threshold))
            if cached is not None and not fresh:
                return replace(cached, cached=True)
            async with limit:
                result = await self._within_limit(url, timeout_s, word_count_threshold)
            if isinstance(result, CrawledPage) and result.status < 400:
                self._pages[url, word_count_threshold] = result
            return result

        return await asyncio.gather(*map(read_one, urls))

    async def _within_limit(
        self, url: str, timeout_s: float, threshold: int
    ) -> CrawledPage | FailedPage:
        started = time.monotonic()
        clock = asyncio.timeout(timeout_s)
        try:
            async with clock:
                crawled = await self._read_page(url, timeout_s, threshold)
        except ToolError as error:
            return FailedPage(url, str(error), isinstance(error, TrustedToolError))
        except Exception as error:  # one page must not make the others fail
            if clock.expired():
                return FailedPage(
                    url, f"It was not read within {timeout_s:g} s.", trusted_text=True
                )
            log.info("crawling %s failed", url, exc_info=error)
            return FailedPage(url, f"{type(error).__name__}: {error}")
        if crawled.status >= 400:
            return FailedPage(url, f"HTTP {crawled.status}. {crawled.title}".strip())
        return replace(crawled, seconds=time.monotonic() - started)

    async def _read_page(self, url: str, timeout_s: float, threshold: int) -> CrawledPage:
        """Read a page in the browser, or without it, with a note that says why."""
        self._guard.check(url)
        if not await self._robots.allow(url):
            raise TrustedToolError(
                "The site's robots.txt asks programs not to read this page. Open it with "
                "browser_use if the person wants this very page."
            )
        render, note = await asyncio.to_thread(_import_renderer), ""  # imports much
        try:
            rendered = await render(self._session, url, timeout_s)
        except ToolError as error:
            note = f"Read without running its scripts: {error}"
        else:
            if rendered.media_type in _HTML_TYPES:
                reading = await read_html(
                    rendered.html, rendered.url, word_count_threshold=threshold
                )
                return _to_crawled_page(url, rendered.url, rendered.status, reading, note)
        downloads = self._session.settings.browser.max_download_mb << 20
        page = await fetch(url, self._guard, timeout_s=timeout_s, download_limit_bytes=downloads)
        reading = await read_page(page, self._session.workspace, word_count_threshold=threshold)
        html = reading.kind == "page"
        return _to_crawled_page(url, page.url, page.status, reading, note if html else "")


def _import_renderer() -> "Callable[[Session, str, float], Awaitable[RenderedPage]]":

    return render_page


def _to_crawled_page(url: str, at: str, status: int, reading: Reading, note: str) -> CrawledPage:
    found = reading.page
    return CrawledPage(
        requested=url,
        url=at,
        status=status,
        title=reading.title,
        text=reading.text,
        words=found.words if found else len(reading.text.split()),
        links=found.internal_links + found.external_links if found else 0,
        images=found.images if found else 0,
        note=note,
    )


async def crawl_pages(
    session: Session, urls: Sequence[str], timeout_s: int, threshold: int, *, fresh: bool
) -> Observation:
    """Crawl pages and report on each.

    Args:
        session: Of the run.
        urls: Their addresses; each is read once.
        timeout_s: For each page.
        threshold: Shorter lines of menus and footers are left out, in words.
        fresh: Whether to read again what was read before.

    Raises:
        ToolError: No address is among them.
    """
    crawler = session.cached(Crawler, lambda: Crawler(session))
    wanted = list(dict.fromkeys(url.strip() for url in urls if url.strip()))
    if not wanted:
        raise TrustedToolError(
            "urls names no address. Give whole addresses, such as https://example.com/"
        )
    results = await crawler.read(
        wanted, timeout_s=timeout_s, fresh=fresh, word_count_threshold=threshold
    )
    text = await asyncio.to_thread(_report, results, session)
    failures = [result for result in results if isinstance(result, FailedPage)]
    failed = len(failures) == len(results)
    return Observation(
        text, failed=failed, trusted_text=failed and all(f.trusted_text for f in failures)
    )


def _report(results: Sequence[CrawledPage | FailedPage], session: Session) -> str:
    """Render the report. Blocks when a page is long."""
    read = [result for result in results if isinstance(result, CrawledPage)]
    failed = len(results) - len(read)
    rows = [f"{len(results)} address{'es' if len(results) > 1 else ''}: {len(read)} read, "
            f"{failed} failed."]  # fmt: skip
    heads = [_head(number, result) for number, result in enumerate(results, 1)]
    budget = session.max_observation_chars - HEADER_CHARS - sum(map(len, heads))
    for result, share in zip(results, _shares(results, budget), strict=True):
        rows.append(heads.pop(0))
        if isinstance(result, CrawledPage):
            rows.append(fitted(result.text, share, session.workspace))
    return "\n\n".join(rows)


def _shares(results: Sequence[CrawledPage | FailedPage], budget: int) -> list[int]:
    """Divide the budget: what short pages do not need goes to the long ones."""
    sizes = [len(result.text) if isinstance(result, CrawledPage) else 0 for result in results]
    shares = [0] * len(sizes)
    for left, (size, index) in enumerate(sorted(zip(sizes, range(len(sizes)), strict=True))):
        fair = max(_LEAST_CHARS, budget // (len(sizes) - left))
        shares[index] = min(size, fair)
        budget -= shares[index]
    return shares


def _head(number: int, result: CrawledPage | FailedPage) -> str:
    if isinstance(result, FailedPage):
        return f"## {number}. {result.url}\nFAILED: {result.reason}"
    title = f"\nTitle: {result.title}" if result.title else ""
    moved = f" (from {result.requested})" if result.url != result.requested else ""
    counts = f"{result.words} words, {result.links} links, {result.images} images"
    cached = "from the cache" if result.cached else f"{result.seconds:.1f} s"
    note = f"\n({result.note})" if result.note else ""
    return (
        f"## {number}. {result.url}{moved}\nHTTP {result.status}, {cached}, {counts}{title}{note}"
    )


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
