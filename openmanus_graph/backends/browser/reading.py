"""Reads pages as text: crawled at once, or the current page of a session (`extract_content`).

Crawled pages are rendered by the browser if there is one, else they are read by plain HTTP.
"""

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from playwright.async_api import Error, Page

from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop, first_line, shared_browsers
from openmanus_graph.backends.browser.connection import Connection, open_connection
from openmanus_graph.backends.browser.page.frames import script
from openmanus_graph.backends.browser.page.view import PageView
from openmanus_graph.backends.browser.tab import Tab, answer_dialog
from openmanus_graph.backends.web import reading as web_reading
from openmanus_graph.backends.web.client import Page as WebPage
from openmanus_graph.backends.web.client import Robots, fetch
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.own_pages import OwnPages
from openmanus_graph.backends.web.page_text import PageText, choose_parts, page_text, whole
from openmanus_graph.conversation.answer_sources import unsupported
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.prompts import render
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import AskModel
from openmanus_graph.safety.urls import links_of
from openmanus_graph.state.tool_traits import Observation

PAGES_AT_ONCE = 5
MAX_HTML_CHARS = 5_000_000
MAX_FRAMES = 30
SETTLE_SHARE = 0.5  # of the time limit, at most, for waiting until a page is quiet
_LEAST_CHARS = 300  # of each page in the report, however many there are

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CrawledPage:
    requested: str
    url: str
    status: int
    reading: web_reading.Reading
    note: str  # why it was read without its scripts; empty if it was not
    seconds: float = 0.0
    cached: bool = False

    def head(self, number: int) -> str:
        found, text = self.reading.page, self.reading.text
        words = found.words if found else len(text.split())
        links, images = (found.links, found.images) if found else (0, 0)
        counts = f"{words} words, {links} links, {images} images"
        moved = f" (from {self.requested})" if self.url != self.requested else ""
        time_taken = "from the cache" if self.cached else f"{self.seconds:.1f} s"
        lines = [f"## {number}. {self.url}{moved}", f"HTTP {self.status}, {time_taken}, {counts}"]
        lines += [f"Title: {self.reading.title}"] if self.reading.title else []
        lines += [f"({self.note})"] if self.note else []
        return "\n".join(lines)


@dataclass(frozen=True)
class FailedPage:
    url: str
    reason: str
    trusted_text: bool = False  # the reason contains no text from outside

    def head(self, number: int) -> str:
        return f"## {number}. {self.url}\nFAILED: {self.reason}"


class Crawler:
    """Crawls pages for one run, and caches them until it ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._guard = Guard.of(session.settings)
        self._robots = Robots(self._guard)
        self._pages: dict[tuple[str, int], CrawledPage] = {}

    async def read(
        self, urls: Sequence[str], *, timeout_s: float, fresh: bool, threshold: int
    ) -> list[CrawledPage | FailedPage]:
        """Read pages, a few at a time, as `crawl_pages`; one failure does not stop the others."""
        limit = asyncio.Semaphore(PAGES_AT_ONCE)

        async def read_one(url: str) -> CrawledPage | FailedPage:
            cached = self._pages.get((url, threshold))
            if cached is not None and not fresh:
                return replace(cached, cached=True)
            async with limit:
                result = await self._read_in_time(url, timeout_s, threshold)
            if isinstance(result, CrawledPage) and not self._guard.refuses(url):
                self._pages[url, threshold] = result
            return result

        return await asyncio.gather(*map(read_one, urls))

    async def _read_in_time(
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
                late = f"It was not read within {timeout_s:g} s."
                return FailedPage(url, late, trusted_text=True)
            log.info("crawling %s failed", url, exc_info=error)
            return FailedPage(url, f"{type(error).__name__}: {error}")
        if crawled.status >= 400:
            return FailedPage(url, f"HTTP {crawled.status}. {crawled.reading.title}".strip())
        return replace(crawled, seconds=time.monotonic() - started)

    async def _read_page(self, url: str, timeout_s: float, threshold: int) -> CrawledPage:
        """Read a page in the browser, or without it, with a note that says why."""
        guard = web_reading.guard_for(self._session, url)
        guard.check(url)
        if guard.own is None and not await self._robots.allow(url):
            raise TrustedToolError(
                "The site's robots.txt asks programs not to read this page. Open it with "
                "browser_use if the person wants this very page."
            )
        page, note = None, ""
        try:
            page = await render_page(self._session, url, timeout_s, guard.own)
        except ToolError as error:
            note = f"Read without running its scripts: {error}"
        if page is None or page.media_type not in web_reading.HTML:
            downloads = self._session.settings.browser.max_download_mb << 20
            page = await fetch(url, guard, timeout_s=timeout_s, download_limit_bytes=downloads)
        reading = await web_reading.read_page(
            page, self._session.workspace, word_count_threshold=threshold
        )
        note = note if reading.kind == "page" else ""
        return CrawledPage(url, page.url, page.status, reading, note)


async def crawl_pages(
    session: Session, urls: Sequence[str], timeout_s: int, threshold: int, *, fresh: bool
) -> Observation:
    """Crawl pages and report on each. ToolError if no address is given.

    Lines of menus and footers with fewer words than `threshold` are left out. `fresh` reads again
    what was read before.
    """
    crawler = session.cached(Crawler, lambda: Crawler(session))
    wanted = list(dict.fromkeys(url.strip() for url in urls if url.strip()))
    if not wanted:
        raise TrustedToolError(
            "urls names no address. Give whole addresses, such as https://example.com/"
        )
    results = await crawler.read(wanted, timeout_s=timeout_s, fresh=fresh, threshold=threshold)
    text = await asyncio.to_thread(_report, results, session)
    failures = [result for result in results if isinstance(result, FailedPage)]
    failed = len(failures) == len(results)
    trusted = failed and all(failure.trusted_text for failure in failures)
    return Observation(text, failed=failed, trusted_text=trusted)


def _report(results: Sequence[CrawledPage | FailedPage], session: Session) -> str:
    """Blocks when a page is long."""
    texts = [one.reading.text if isinstance(one, CrawledPage) else None for one in results]
    failed = texts.count(None)
    some = f"{len(results)} address{'es' if len(results) > 1 else ''}"
    rows = [f"{some}: {len(results) - failed} read, {failed} failed."]
    heads = [result.head(number) for number, result in enumerate(results, 1)]
    budget = session.max_observation_chars - web_reading.HEADER_CHARS - sum(map(len, heads))
    shares = _shares([len(text or "") for text in texts], budget)
    for head, text, share in zip(heads, texts, shares, strict=True):
        rows.append(head)
        if text is not None:
            rows.append(web_reading.fitted(text, share, session.workspace))
    return "\n\n".join(rows)


def _shares(sizes: Sequence[int], budget: int) -> list[int]:
    """Divide the budget: what short pages do not need goes to the long ones."""
    shares = [0] * len(sizes)
    for left, (size, index) in enumerate(sorted(zip(sizes, range(len(sizes)), strict=True))):
        fair = max(_LEAST_CHARS, budget // (len(sizes) - left))
        shares[index] = min(size, fair)
        budget -= shares[index]
    return shares


async def render_page(
    session: Session, url: str, timeout_s: float, own: OwnPages | None = None
) -> WebPage:
    """Open a page without the thread's logins, wait until it is quiet, and return it.

    Its HTML has shadow roots in place, and frames at the end. The time limit includes the wait for
    a turn. ToolError if it was not opened.
    """

    async def render() -> WebPage:
        async with asyncio.timeout(timeout_s), shared_browsers.rendering:
            connection = await open_connection(session.settings, None, fresh=True, own=own)
            try:
                connection.guard.check(url)
                return await _load(connection, url, timeout_s * SETTLE_SHARE)
            finally:
                await asyncio.shield(connection.close())

    try:
        return await browser_loop.run(render)
    except TimeoutError as error:
        raise ToolError(
            f"{url} was not rendered within {timeout_s:g} s. Try fetch_page, or another source."
        ) from error


async def _load(connection: Connection, url: str, settle_s: float) -> WebPage:
    connection.context.on("dialog", lambda dialog: answer_dialog(dialog, accept=False))
    page = await connection.new_page()
    tab = Tab(0, page, PageView(page), connection)
    page.on("response", tab.on_response)
    try:
        await page.goto(url, wait_until="commit")
        await tab.view.settle(settle_s)
        parts = await serialize(page)
    except Error as error:
        raise ToolError(f"{url} was not rendered: {first_line(error)}") from error
    finally:
        tab.view.close()
    html = "\n".join(str(part["html"]) for part in parts).encode("utf-8", "replace")
    return WebPage(page.url, url, tab.status, tab.media_type, "utf-8", html, cut=False)


async def serialize(page: Page) -> list[dict[str, Any]]:
    """Return `title`, `base`, `html` and `cut` of a page and its frames, the page first."""
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


READ_S = 30.0
NOT_FOUND = "NOT FOUND"
_QUESTIONS_AT_ONCE = 3
_QUOTE = re.compile(r"^\s*>\s?(.*\S)\s*$")
_MARKUP = re.compile(r"!?\[([^][]*)\]\([^()\s]*\)|[*_`#>|\\\s\"'“”‘’]+")


async def extract_content(
    browser: BrowserSession, goal: str | None, ask: AskModel | None
) -> Observation:
    """Return the answer to a goal from the page, or the whole page as Markdown, with its links.

    The links are those of the text that are on the page: a model may have made up others.
    """

    async def read() -> tuple[tuple[str, str, str], list[str]]:
        return await read_content(browser), browser.notices.take()

    found, pending = await browser_loop.run(read)
    redacted, session = browser.secrets.redacted, browser.session
    notices = "".join(f"{redacted(notice)}\n" for notice in pending)
    url, title, content = map(redacted, found)
    head = f"{title} {url}".strip()
    why = ""
    if goal and ask is not None:
        try:
            answer = f"From {head}:\n{await _answer(url, content, goal, ask)}"
        except ToolError as error:
            why = f"{error} This is the page itself.\n"
        else:
            links = await asyncio.to_thread(links_of, answer, content)
            made_up = await asyncio.to_thread(unsupported, answer, f"{head}\n{content}")
            return Observation(f"{notices}{answer}", links=links, unsupported=made_up)
    room = session.max_observation_chars - web_reading.HEADER_CHARS
    room = min(session.settings.browser.max_content_length or room, room)
    text = await asyncio.to_thread(web_reading.fitted, content, room, session.workspace)
    links = await asyncio.to_thread(links_of, text, content)
    return Observation(f"{notices}{why}{head}\n\n{text}", links=links)


async def ready_tab(browser: BrowserSession) -> Tab:
    """Return the current tab when its page can be read. The lock is held."""
    await browser.ensure()
    if open_dialog := browser.dialogs.describe():
        raise ToolError(f"Nothing was read. {open_dialog}")
    await browser.current.view.settle()
    return browser.current


async def read_content(browser: BrowserSession) -> tuple[str, str, str]:
    """Return the current page's address, title and text, on the browser's event loop.

    The text is Markdown, the main content first. ToolError if it cannot be read.
    """
    async with browser.lock:
        tab = await ready_tab(browser)
        if tab.is_pdf or tab.file:
            return await _read_document(browser, tab.file or tab.page.url)
        try:
            async with asyncio.timeout(READ_S):
                parts = await serialize(tab.page)
        except TimeoutError as error:
            raise TrustedToolError(
                "The page is too busy to be read. Wait, or load it with refresh."
            ) from error
        except Error as error:
            raise ToolError(
                f"The page could not be read: {first_line(error)} Look at it with get_state."
            ) from error
    texts: list[PageText] = []
    for part in parts:
        text = await page_text(part["html"], part["base"])
        texts.append(replace(text, read=text.read or len(part["html"])) if part["cut"] else text)
    return tab.page.url, parts[0]["title"], whole(texts)


async def _read_document(browser: BrowserSession, url: str) -> tuple[str, str, str]:
    """Read a document that the browser displays or saves: fetch it again, with the cookies."""
    connection = browser.current.connection
    cookies = await connection.context.cookies(url)
    pairs = "; ".join(f"{cookie.get('name')}={cookie.get('value')}" for cookie in cookies)
    headers = {"Cookie": pairs} if pairs else None
    page = await fetch(url, connection.guard, headers=headers)
    reading = await web_reading.read_page(page, browser.session.workspace)
    return url, reading.title, reading.text


async def ask_parts(
    url: str, content: str, goal: str, ask: AskModel, system: str
) -> tuple[list[str], int]:
    """Ask about each part of a text; also return how many parts were left out."""
    parts, left_out = choose_parts(content, goal)
    at_once = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def ask_part(number: int, text: str) -> str:
        part = f"part {number} of {len(parts)}" if len(parts) > 1 else "the whole page"
        request = render("extract_request", goal=goal, url=url, part=part, text=text)
        async with at_once:
            return await ask(system, request)

    replies = await asyncio.gather(*(ask_part(n, text) for n, text in enumerate(parts, 1)))
    return replies, left_out


async def _answer(url: str, content: str, goal: str, ask: AskModel) -> str:
    system = render("extract_system")
    replies, left_out = await ask_parts(url, content, goal, ask, system)
    useful = [reply for reply in replies if not reply.startswith(NOT_FOUND)]
    reply = useful[0] if useful else replies[0]
    if len(useful) > 1:
        merge = render("extract_merge", goal=goal, url=url, answers="\n\n".join(useful))
        reply = await ask(system, merge)
    note = f"\n({left_out} of the page's parts were not read: the least related.)"
    return check_quotes(reply, content) + (note if left_out else "")


def check_quotes(reply: str, text: str) -> str:
    """Remove quotes that are not in the text from a reply, and add a note on it."""
    normalized = plain_words(text)
    lines, missing, passages = list[str](), 0, 0
    for line in reply.strip().splitlines():
        quote = _QUOTE.match(line)
        if quote is None:
            lines.append(line)
        elif plain_words(quote[1]) in normalized:
            passages += 1
            lines.append(line)
        else:
            missing += 1
    if missing:
        one, more = "passage is not on the page and was", "passages are not on the page and were"
        some = one if missing == 1 else more
        lines.append(f"({missing} quoted {some} left out. Check the answer on the page itself.)")
    elif not passages and not reply.startswith(NOT_FOUND):
        lines.append("(No passage was quoted. Check the answer on the page itself.)")
    return "\n".join(lines)


def plain_words(text: str) -> str:
    return _MARKUP.sub(lambda found: _MARKUP.sub("", found[1] or ""), text).lower()
