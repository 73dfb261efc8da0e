"""What the model reads of a search, and the person of its settings."""

import asyncio
from collections.abc import Iterator, Sequence

from openmanus_graph.events import Emit, notice
from openmanus_graph.search.engine import SearchQuery
from openmanus_graph.search.pages import PageContent, read_pages
from openmanus_graph.search.searching import SearchReport, search_for
from openmanus_graph.sessions import Session
from openmanus_graph.tools.declaration import Observation
from openmanus_graph.tools.output import shorten
from openmanus_graph.web.guard import Guard
from openmanus_graph.workspace import Workspace

_PAGES_CHARS = 5500
"""For the texts of all pages together, so that the observation is not cut in the middle."""


async def searched(
    session: Session,
    emit: Emit,
    query: str,
    num_results: int,
    lang: str | None,
    country: str | None,
    *,
    with_pages: bool,
) -> Observation:
    """Search the web, and read the pages found if they are wanted.

    Raises:
        ToolError: No engine answered, or the query cannot be asked.
    """
    report = await search_for(session, query, num_results=num_results, lang=lang, country=country)
    _tell(session, report, emit)
    pages = await _pages(session, report) if with_pages else ()
    text = await asyncio.to_thread(_text, report, pages, session.workspace)
    return Observation(text, own_words=not report.quotes)


def _tell(session: Session, report: SearchReport, emit: Emit) -> None:
    """Tell the person, once per run, which engines of the settings are not set up."""

    def tell() -> None:
        for text in report.notices:
            notice(emit, text)

    session.cached(SearchReport, tell)


async def _pages(session: Session, report: SearchReport) -> Sequence[PageContent]:
    """Read the pages of a report, once per run unless some of them failed."""
    known: dict[SearchQuery, Sequence[PageContent]] = session.cached(
        PageContent, dict[SearchQuery, Sequence[PageContent]]
    )
    pages = known.get(report.query)
    if pages is None:
        pages = await read_pages(report.hits, Guard.of(session.settings))
        if not any(page.problem for page in pages):
            known[report.query] = pages
    return pages


def _text(report: SearchReport, pages: Sequence[PageContent], workspace: Workspace) -> str:
    """Write a report as the model reads it. Blocks when a page is long."""
    found, query = len(report.hits), report.query
    head = f"{found or 'No'} result{'' if found == 1 else 's'} for {query.text!r}."
    rows = [head if found else f"{head} {_ADVICE}"]
    room = _PAGES_CHARS // max(1, len(pages))
    for number, hit in enumerate(report.hits, 1):
        rows += ["", f"{number}. {hit.title}", f"   {hit.url}"]
        rows += [f"   {hit.snippet}"] if hit.snippet else []
        if number <= len(pages):
            rows += _page(pages[number - 1], workspace, room)
    if pages and len(pages) < found:
        rows += ["", f"(Only the first {len(pages)} pages were read.)"]
    return "\n".join([*rows, "", *_sources(report)])


_ADVICE = "Use fewer or other words, another lang or country, or open a page that you know."


def _page(page: PageContent, workspace: Workspace, room: int) -> Iterator[str]:
    if page.problem:
        yield f"   (The page was not read: {page.problem})"
    else:
        yield "   Content:"
        yield shorten(page.text, workspace, room)


def _sources(report: SearchReport) -> Iterator[str]:
    """Say who answered, and who did not and why."""
    answered = [attempt for attempt in report.attempts if not attempt.problem]
    yield f"Asked: {', '.join(f'{item.engine} ({item.hits})' for item in answered)}."
    failed = [f"{item.engine} ({item.problem})" for item in report.attempts if item.problem]
    if failed:
        yield f"Did not answer: {', '.join(failed)}."
    asked = {
        name
        for name, usual in (("lang", "en"), ("country", "us"))
        if getattr(report.query.place, name) != usual
    }
    for item in answered:
        missed = [name for name in item.ignores if name in asked]
        if item.hits and missed:
            yield f"{item.engine} cannot be told {' or '.join(missed)}."
