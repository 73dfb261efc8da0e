"""Several pages at once: rendered by the browser if there is one, else by plain HTTP."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from openmanus_graph.backends.web.client import fetch
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.reading import Reading, read_html, read_page
from openmanus_graph.backends.web.robots import Robots
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session

if TYPE_CHECKING:
    from openmanus_graph.backends.browser.rendering import Rendered

AT_ONCE = 5
_HTML = ("text/html", "application/xhtml+xml")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Crawled:
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
class Failed:
    """A page that could not be read."""

    url: str
    reason: str
    trusted_text: bool = False
    """The reason contains no text from outside."""


class Crawl:
    """Crawls pages for one run, and caches them until it ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._guard = Guard.of(session.settings)
        self._robots = Robots(self._guard)
        self._pages: dict[tuple[str, int], Crawled] = {}

    async def read(
        self, urls: Sequence[str], *, timeout_s: float, fresh: bool, word_count_threshold: int
    ) -> list[Crawled | Failed]:
        """Read pages, a few at a time; one that fails does not stop the others.

        Args:
            urls: Their addresses.
            timeout_s: For each of them.
            fresh: Read pages again that are cached.
            word_count_threshold: As `page_text` takes it.
        """
        limit = asyncio.Semaphore(AT_ONCE)

        async def read_one(url: str) -> Crawled | Failed:
            cached = self._pages.get((url, word_count_threshold))
            if cached is not None and not fresh:
                return replace(cached, cached=True)
            async with limit:
                result = await self._within_limit(url, timeout_s, word_count_threshold)
            if isinstance(result, Crawled) and result.status < 400:
                self._pages[url, word_count_threshold] = result
            return result

        return await asyncio.gather(*map(read_one, urls))

    async def _within_limit(self, url: str, timeout_s: float, threshold: int) -> Crawled | Failed:
        started = time.monotonic()
        clock = asyncio.timeout(timeout_s)
        try:
            async with clock:
                crawled = await self._one(url, timeout_s, threshold)
        except ToolError as error:
            return Failed(url, str(error), isinstance(error, TrustedToolError))
        except Exception as error:  # one page must not make the others fail
            if clock.expired():
                return Failed(url, f"It was not read within {timeout_s:g} s.", trusted_text=True)
            log.info("crawling %s failed", url, exc_info=error)
            return Failed(url, f"{type(error).__name__}: {error}")
        if crawled.status >= 400:
            return Failed(url, f"HTTP {crawled.status}. {crawled.title}".strip())
        return replace(crawled, seconds=time.monotonic() - started)

    async def _one(self, url: str, timeout_s: float, threshold: int) -> Crawled:
        self._guard.check(url)
        if not await self._robots.allow(url):
            raise TrustedToolError(
                "The site's robots.txt asks programs not to read this page. Open it with "
                "browser_use if the person wants this very page."
            )
        crawled, note = await self._rendered(url, timeout_s, threshold)
        if crawled is not None:
            return crawled
        downloads = self._session.settings.browser.max_download_mb << 20
        page = await fetch(url, self._guard, timeout_s=timeout_s, download_limit_bytes=downloads)
        reading = await read_page(page, self._session.workspace, word_count_threshold=threshold)
        html = reading.kind == "page"
        return _crawled(url, page.url, page.status, reading, note if html else "")

    async def _rendered(
        self, url: str, timeout_s: float, threshold: int
    ) -> tuple[Crawled | None, str]:
        """Read a page in the browser, or say why that did not work."""
        render = await asyncio.to_thread(_renderer)  # imports much
        try:
            page_seen = await render(self._session, url, timeout_s)
        except ToolError as error:
            return None, f"Read without running its scripts: {error}"
        if page_seen.media_type not in _HTML:
            return None, ""
        reading = await read_html(page_seen.html, page_seen.url, word_count_threshold=threshold)
        return _crawled(url, page_seen.url, page_seen.status, reading, ""), ""


def _renderer() -> "Callable[[Session, str, float], Awaitable[Rendered]]":
    from openmanus_graph.backends.browser.rendering import rendered

    return rendered


def _crawled(url: str, at: str, status: int, reading: Reading, note: str) -> Crawled:
    found = reading.page
    return Crawled(
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
