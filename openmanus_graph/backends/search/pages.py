"""Reading the pages that a search found."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from openmanus_graph.backends.search.search_engine import Hit
from openmanus_graph.backends.web.client import Page, fetch
from openmanus_graph.backends.web.exchange import is_text
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.markdown import page_text
from openmanus_graph.errors import ToolError

MAX_PAGES = 10
PAGE_TIMEOUT_S = 20.0
_HTML = ("text/html", "application/xhtml+xml", "")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PageContent:
    """The text of a page, or why it was not read."""

    text: str = ""
    problem: str = ""


async def read_pages(hits: Sequence[Hit], guard: Guard) -> list[PageContent]:
    """Read the first pages at once; one that fails or hangs does not hold up the others."""
    return await asyncio.gather(*(_content(hit.url, guard) for hit in hits[:MAX_PAGES]))


async def _content(url: str, guard: Guard) -> PageContent:
    clock = asyncio.timeout(PAGE_TIMEOUT_S)
    try:
        async with clock:
            text = await _text(await fetch(url, guard))
    except ToolError as error:
        return PageContent(problem=str(error))
    except Exception as error:  # the search has its results whatever a page does
        if clock.expired():
            return PageContent(problem=f"it was not read within {PAGE_TIMEOUT_S:g} s")
        log.info("reading %s failed", url, exc_info=error)
        return PageContent(problem=f"{type(error).__name__}: {error}")
    return PageContent(text.strip()) if text.strip() else PageContent(problem="it holds no text")


async def _text(page: Page) -> str:
    if page.status >= 400:
        raise ToolError(f"it answered {page.reason}")
    if page.media_type in _HTML:
        shown = await page_text(page.body, page.url, charset=page.charset)
        return shown.main or shown.rest
    if is_text(page.media_type):
        return await asyncio.to_thread(lambda: page.text)
    raise ToolError(f"it is {page.media_type}; read it with fetch_page")
