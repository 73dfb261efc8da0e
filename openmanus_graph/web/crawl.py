"""Several pages at once: rendered by the browser if there is one, else by plain HTTP."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from openmanus_graph.errors import OwnWordsError, ToolError
from openmanus_graph.sessions import Session
from openmanus_graph.web.client import fetch
from openmanus_graph.web.guard import Guard
from openmanus_graph.web.reading import Reading, read_html, read_page
from openmanus_graph.web.robots import Robots

if TYPE_CHECKING:
    from openmanus_graph.browser.rendering import Rendered

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
    """A page that was not."""

    url: str
    reason: str
    own_words: bool = False
    """The reason holds nothing from outside."""


class Crawl:
    """What one run has crawled; pages are kept until it ends."""

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
            fresh: Read again what is known.
            word_count_threshold: As `page_text` takes it.
        """
        places = asyncio.Semaphore(AT_ONCE)

        async def one(url: str) -> Crawled | Failed:
            known = self._pages.get((url, word_count_threshold))
            if known is not None and not fresh:
                return replace(known, cached=True)
            async with places:
                result = await self._bounded(url, timeout_s, word_count_threshold)
            if isinstance(result, Crawled) and result.status < 400:
                self._pages[url, word_count_threshold] = result
            return result

        return await asyncio.gather(*map(one, urls))

    async def _bounded(self, url: str, timeout_s: float, threshold: int) -> Crawled | Failed:
        started = time.monotonic()
        clock = asyncio.timeout(timeout_s)
        try:
            async with clock:
                crawled = await self._one(url, timeout_s, threshold)
        except ToolError as error:
            return Failed(url, str(error), isinstance(error, OwnWordsError))
        except Exception as error:  # one page must not take the others with it
            if clock.expired():
                return Failed(url, f"It was not read within {timeout_s:g} s.", own_words=True)
            log.info("crawling %s failed", url, exc_info=error)
            return Failed(url, f"{type(error).__name__}: {error}")
        if crawled.status >= 400:
            return Failed(url, f"HTTP {crawled.status}. {crawled.title}".strip())
        return replace(crawled, seconds=time.monotonic() - started)

    async def _one(self, url: str, timeout_s: float, threshold: int) -> Crawled:
        self._guard.check(url)
        if not await self._robots.allow(url):
            raise OwnWordsError(
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
            shown = await render(self._session, url, timeout_s)
        except ToolError as error:
            return None, f"Read without running its scripts: {error}"
        if shown.media_type not in _HTML:
            return None, ""
        reading = await read_html(shown.html, shown.url, word_count_threshold=threshold)
        return _crawled(url, shown.url, shown.status, reading, ""), ""


def _renderer() -> "Callable[[Session, str, float], Awaitable[Rendered]]":
    from openmanus_graph.browser.rendering import rendered

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
