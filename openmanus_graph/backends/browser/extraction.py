"""`extract_content`: the text of the current page, and questions about it that a model answers.

All frames, shadow roots and PDFs are read; quotes in an answer are checked against the text.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from playwright.async_api import Error

from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop, first_line
from openmanus_graph.backends.browser.crawl import serialize
from openmanus_graph.backends.web.client import fetch
from openmanus_graph.backends.web.markdown import PageText, choose_parts, page_text, whole
from openmanus_graph.backends.web.reading import HEADER_CHARS, fitted, read_page
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.prompts import render
from openmanus_graph.runtime.tool_runtime import AskModel
from openmanus_graph.safety.urls import links_of

READ_S = 30.0
NOT_FOUND = "NOT FOUND"
_QUESTIONS_AT_ONCE = 3
_QUOTE = re.compile(r"^\s*>\s?(.*\S)\s*$")
_MARKUP = re.compile(r"!?\[([^][]*)\]\([^()\s]*\)|[*_`#>|\\\s\"'“”‘’]+")


@dataclass(frozen=True)
class PageContent:
    url: str
    title: str
    text: str
    """Markdown, the main content first."""


async def extract_content(
    browser: BrowserSession, goal: str | None, ask: AskModel | None
) -> tuple[str, Sequence[str]]:
    """Return the answer to a goal from the page, or the whole page as Markdown.

    With it come the links of the text that are on the page: a model may have made up others.
    ToolError if the page cannot be read.
    """

    async def read() -> tuple[PageContent, list[str]]:
        return await _read_content(browser), browser.notices.take()

    content, pending = await browser_loop.run(read)
    redacted, session = browser.secrets.redacted, browser.session
    notices = "".join(f"{redacted(notice)}\n" for notice in pending)
    content = PageContent(redacted(content.url), redacted(content.title), redacted(content.text))
    head = f"{content.title} {content.url}".strip()
    why = ""
    if goal and ask is not None:
        try:
            answer = f"From {head}:\n{await _answer(content, goal, ask)}"
        except ToolError as error:
            why = f"{error} This is the page itself.\n"
        else:
            return f"{notices}{answer}", await asyncio.to_thread(links_of, answer, content.text)
    room = session.max_observation_chars - HEADER_CHARS
    room = min(session.settings.browser.max_content_length or room, room)
    text = await asyncio.to_thread(fitted, content.text, room, session.workspace)
    return f"{notices}{why}{head}\n\n{text}", await asyncio.to_thread(links_of, text, content.text)


async def _read_content(browser: BrowserSession) -> PageContent:
    """Read the current page, on the browser's event loop. ToolError if it cannot be read."""
    async with browser.lock:
        await browser.ensure()
        if open_dialog := browser.dialogs.describe():
            raise ToolError(f"Nothing was read. {open_dialog}")
        tab = browser.current
        await tab.view.settle()
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
    return PageContent(tab.page.url, parts[0]["title"], whole(texts))


async def _read_document(browser: BrowserSession, url: str) -> PageContent:
    """Read a document that the browser displays or saves: fetch it again, with the cookies."""
    cookies = await browser.connection.context.cookies(url)
    pairs = "; ".join(f"{cookie.get('name')}={cookie.get('value')}" for cookie in cookies)
    headers = {"Cookie": pairs} if pairs else None
    page = await fetch(url, browser.connection.guard, headers=headers)
    reading = await read_page(page, browser.session.workspace)
    return PageContent(url, reading.title, reading.text)


async def _answer(content: PageContent, goal: str, ask: AskModel) -> str:
    """Return a model's answer with the passages that support it."""
    parts, left_out = choose_parts(content.text, goal)
    at_once = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def ask_part(number: int, text: str) -> str:
        part = f"part {number} of {len(parts)}" if len(parts) > 1 else "the whole page"
        request = render("extract_request", goal=goal, url=content.url, part=part, text=text)
        async with at_once:
            return await ask(render("extract_system"), request)

    replies = await asyncio.gather(*(ask_part(n, text) for n, text in enumerate(parts, 1)))
    useful = [reply for reply in replies if not reply.startswith(NOT_FOUND)]
    reply = useful[0] if useful else replies[0]
    if len(useful) > 1:
        merge = render("extract_merge", goal=goal, url=content.url, answers="\n\n".join(useful))
        reply = await ask(render("extract_system"), merge)
    note = f"\n({left_out} of the page's parts were not read: the least related.)"
    return check_quotes(reply, content.text) + (note if left_out else "")


def check_quotes(reply: str, text: str) -> str:
    """Remove quotes that are not in the text from a reply, and add a note on it."""
    normalized = _normalized(text)
    lines, missing, passages = list[str](), 0, 0
    for line in reply.strip().splitlines():
        quote = _QUOTE.match(line)
        if quote is None:
            lines.append(line)
        elif _normalized(quote[1]) in normalized:
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


def _normalized(text: str) -> str:
    """Normalize text for comparing quotes: no markup, white space or quotation marks."""
    return _MARKUP.sub(lambda found: _MARKUP.sub("", found[1] or ""), text).lower()
