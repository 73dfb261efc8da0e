"""Reports of searches for the model, and notices on search settings for the person."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from openmanus_graph.backends.search.search_engine import SearchQuery
from openmanus_graph.backends.search.searching import SearchReport, search_for
from openmanus_graph.backends.web.client import Page, fetch, is_text
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.page_text import page_text
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.output import shorten
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.information_flow import LEFT_OUT, UnaskedOpenings
from openmanus_graph.state.tool_traits import Observation

MAX_PAGES = 10
PAGE_TIMEOUT_S = 20.0
_HTML = ("text/html", "application/xhtml+xml", "")
_HITS_CHARS = 1500  # of an observation, in addition to the pages, so that these are not cut again
_ADVICE = "Use fewer or other words, another lang or country, or open a page that you know."
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PageContent:
    text: str = ""
    problem: str = ""


async def search_and_report(
    session: Session,
    emit: Emit,
    query: str,
    num_results: int,
    lang: str | None,
    country: str | None,
    *,
    openings: UnaskedOpenings | None,
) -> Observation:
    """Search the web, and read the pages found if they are wanted.

    `openings` decides which pages may be read; None if none are wanted.
    """
    report = await search_for(session, query, num_results=num_results, lang=lang, country=country)

    def notify() -> None:
        for text in report.notices:
            notice(emit, text)

    session.cached(SearchReport, notify)  # once per run: configured engines that are not set up
    pages: Sequence[PageContent] = ()
    opened: Mapping[str, int] | None = None
    if openings is not None:
        pages, opened = await _pages(session, report, openings)
    text = await asyncio.to_thread(_report_text, report, pages, session)
    return Observation(text, trusted_text=not report.quotes, openings=opened)


async def _pages(
    session: Session, report: SearchReport, openings: UnaskedOpenings
) -> tuple[Sequence[PageContent], Mapping[str, int]]:
    """Read the pages of a report, once per run unless some of them failed.

    Also returns how many pages were opened of each site that nobody named.
    """
    cached_pages: dict[SearchQuery, Sequence[PageContent]] = session.cached(
        PageContent, dict[SearchQuery, Sequence[PageContent]]
    )
    if (known := cached_pages.get(report.query)) is not None:
        return known, {}
    # All at once, so that a page that fails or hangs does not delay the others.
    guard = Guard.of(session.settings)
    urls = [hit.url for hit in report.hits[:MAX_PAGES]]
    may_open = [openings.may_open(url) for url in urls]
    pairs = list(zip(urls, may_open, strict=True))
    pages = await asyncio.gather(*(_read_page(url, guard, may) for url, may in pairs))
    if not any(page.problem for page in pages):
        cached_pages[report.query] = pages
    return pages, openings.by_site([url for url, may in pairs if may])


async def _read_page(url: str, guard: Guard, may_open: bool) -> PageContent:
    if not may_open:
        return PageContent(problem=LEFT_OUT)
    clock = asyncio.timeout(PAGE_TIMEOUT_S)
    try:
        async with clock:
            text = await _readable_text(await fetch(url, guard))
    except ToolError as error:
        return PageContent(problem=str(error))
    except Exception as error:  # the search has its results whatever a page does
        if clock.expired():
            return PageContent(problem=f"it was not read within {PAGE_TIMEOUT_S:g} s")
        log.info("reading %s failed", url, exc_info=error)
        return PageContent(problem=f"{type(error).__name__}: {error}")
    return PageContent(text.strip()) if text.strip() else PageContent(problem="it holds no text")


async def _readable_text(page: Page) -> str:
    if page.status >= 400:
        raise ToolError(f"it answered {page.reason}")
    if page.media_type in _HTML:
        shown = await page_text(page.body, page.url, charset=page.charset)
        return shown.main or shown.rest
    if is_text(page.media_type):
        return await asyncio.to_thread(lambda: page.text)
    raise ToolError(f"it is {page.media_type}; read it with fetch_page")


def _report_text(report: SearchReport, pages: Sequence[PageContent], session: Session) -> str:
    """Render a report for the model. Blocks when a page is long."""
    found, query = len(report.hits), report.query
    head = f"{found or 'No'} result{'' if found == 1 else 's'} for {query.text!r}."
    rows = [head if found else f"{head} {_ADVICE}"]
    chars_per_page = (session.max_observation_chars - _HITS_CHARS) // max(1, len(pages))
    for number, hit in enumerate(report.hits, 1):
        rows += ["", f"{number}. {hit.title}", f"   {hit.url}"]
        rows += [f"   {hit.snippet}"] if hit.snippet else []
        if number <= len(pages):
            page = pages[number - 1]
            if page.problem:
                rows.append(f"   (The page was not read: {page.problem})")
            else:
                rows += ["   Content:", shorten(page.text, session.workspace, chars_per_page)]
    if pages and len(pages) < found:
        rows += ["", f"(Only the first {len(pages)} pages were read.)"]
    return "\n".join([*rows, "", *_source_lines(report)])


def _source_lines(report: SearchReport) -> Iterator[str]:
    """Yield which engines answered, and which failed and why."""
    answered = [attempt for attempt in report.attempts if not attempt.problem]
    yield f"Asked: {', '.join(f'{item.engine} ({item.hits})' for item in answered)}."
    failed = [f"{item.engine} ({item.problem})" for item in report.attempts if item.problem]
    if failed:
        yield f"Did not answer: {', '.join(failed)}."
    requested = {
        name
        for name, default in (("lang", "en"), ("country", "us"))
        if getattr(report.query.locale, name) != default
    }
    for item in answered:
        unsupported = [name for name in item.ignores if name in requested]
        if item.hits and unsupported:
            yield f"{item.engine} cannot be told {' or '.join(unsupported)}."
