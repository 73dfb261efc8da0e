"""Searches the web: queries the engines in turn within a time limit, and reports to the model."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from openmanus_graph.backends.search import engines
from openmanus_graph.backends.search.search_engine import (
    EngineError,
    Hit,
    SearchEngine,
    SearchQuery,
    page_key,
)
from openmanus_graph.backends.web.client import Page, fetch, is_text
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.page_text import page_text
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.output import shorten
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.information_flow import LEFT_OUT, UnaskedOpenings
from openmanus_graph.state import search_engines as names
from openmanus_graph.state.search_engines import SearchLocale, SearchSettings
from openmanus_graph.state.tool_traits import Observation

MAX_QUERY_CHARS = 2000
MAX_DELAY_S = 5.0
MAX_RETRIES = 5
_SET_UP: Mapping[str, Callable[..., SearchEngine]] = {
    "searxng": engines.searxng,
    "tavily": engines.tavily,
    "brave": engines.brave,
    "google": engines.google,
    "baidu": engines.baidu,
}
"""Engines that the user sets up by a key or an address, in the order of asking."""
# Startpage shows Google's results.
_BACKENDS_WITHOUT_KEY = {"google": "startpage", "brave": "brave"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineChoice:
    """Engines in the order of asking, and notices for the person."""

    engines: Sequence[SearchEngine]
    notices: Sequence[str]


def choose_engines(settings: SearchSettings) -> EngineChoice:
    """Choose by the settings: the engine named, its fallbacks, or else all there are."""
    order = list(_order(settings))
    by_name: dict[str, SearchEngine] = {}
    for engine in chain.from_iterable(_engines(name, settings) for name in order):
        by_name.setdefault(engine.name, engine)
    notices = [_notice(name) for name in order if not is_configured(name, settings)]
    return EngineChoice(list(by_name.values()), notices)


def _order(settings: SearchSettings) -> Iterator[str]:
    set_up = [name for name in _SET_UP if is_configured(name, settings)]
    if settings.engine is not None:
        yield settings.engine
    elif settings.fallback_engines is not None:
        yield from set_up or ["ddgs"]
    yield from (*set_up, "ddgs") if settings.fallback_engines is None else settings.fallback_engines


def is_configured(name: str, settings: SearchSettings) -> bool:
    """Return True if the key or address that an engine needs is set."""
    if name == "searxng":
        return name in settings.urls
    if name == "google":
        return name in settings.keys and settings.google_cse_id is not None
    return name not in names.KEY_VARIABLES or name in settings.keys


def _engines(name: str, settings: SearchSettings) -> Sequence[SearchEngine]:
    address = {"url": settings.urls[name]} if name in settings.urls else {}
    if name == "ddgs":
        return list(map(engines.metasearch, names.DDGS_BACKENDS))
    if not is_configured(name, settings):
        backend = _BACKENDS_WITHOUT_KEY.get(name)
        return [engines.metasearch(backend)] if backend else []
    if name not in _SET_UP:
        return [engines.metasearch(name)]
    arguments: list[object] = [settings.keys[name]] if name in settings.keys else []
    if name == "google":
        arguments.append(settings.google_cse_id or "")
    return [_SET_UP[name](*arguments, **address)]


def _notice(name: str) -> str:
    if name == "searxng":
        variable = names.SEARXNG_VARIABLE
        return f"Search: searxng is not asked; set searxng_url in [search], or {variable}."
    also = f" and {names.GOOGLE_ID_VARIABLE}" if name == "google" else ""
    instead = _BACKENDS_WITHOUT_KEY.get(name)
    served = f"is asked through ddgs:{instead}, without a key" if instead else "is not asked"
    needs = f"{names.KEY_VARIABLES[name][0]}{also}"
    return f"Search: {name} {served}; set {needs} to ask its own service."


@dataclass(frozen=True)
class Attempt:
    engine: str
    hits: int = 0  # how many results it gave that were not there yet
    problem: str = ""  # why it gave no answer; empty when it answered
    quotes: bool = False  # whether the problem quotes text from the engine
    ignores: tuple[str, ...] = ()  # which of `lang` and `country` it does not support


@dataclass(frozen=True)
class SearchReport:
    query: SearchQuery
    hits: tuple[Hit, ...]  # may be fewer than were requested, or none
    attempts: tuple[Attempt, ...]  # the engines that were asked, in order
    notices: tuple[str, ...]  # notices on configured engines that are not set up

    @property
    def quotes(self) -> bool:
        """Whether it contains text from an engine."""
        return bool(self.hits) or any(attempt.quotes for attempt in self.attempts)


async def search_for(
    session: Session,
    query: str,
    *,
    num_results: int = 5,
    lang: str | None = None,
    country: str | None = None,
) -> SearchReport:
    """Search the web as the session's settings say; the same question is asked once per run.

    1 to 50 results; language and country are those of the settings if they are None. ToolError if a
    value is wrong or no engine answered.
    """
    settings = session.settings.search
    try:
        locale = names.parse_search_locale(lang or settings.lang, country or "", settings.country)
    except ValueError as error:
        raise TrustedToolError(f"The web was not searched: {error}.") from error
    search_query = _query(query, num_results, locale)
    reports = session.cached(SearchQuery, dict[SearchQuery, SearchReport])
    if search_query in reports:
        return reports[search_query]
    choice = choose_engines(settings)
    if not choice.engines:
        raise TrustedToolError(
            f"The web was not searched: no search engine is set up. {' '.join(choice.notices)} "
            "The engine ddgs needs no key."
        )
    not_before = session.cached(EngineError, dict[str, float])
    run = SearchRun(search_query, settings, not_before)
    await run.ask(choice.engines)
    attempts = tuple(run.attempts.values())
    report = SearchReport(search_query, tuple(run.hits), attempts, tuple(choice.notices))
    if all(attempt.problem for attempt in report.attempts):
        raise (ToolError if report.quotes else TrustedToolError)(_all_failed(report))
    if report.hits:
        reports[search_query] = report
    return report


def _query(text: str, count: int, locale: SearchLocale) -> SearchQuery:
    words = " ".join(text.split())
    if not words:
        raise TrustedToolError(
            "The web was not searched: the query is empty. Say what to look for."
        )
    if len(words) > MAX_QUERY_CHARS:
        raise TrustedToolError(
            f"The web was not searched: the query has {len(words)} characters. A search takes a "
            "few words; shorten it."
        )
    if not 1 <= count <= names.MAX_RESULTS:
        raise TrustedToolError(f"num_results is {count}; it must be 1 to {names.MAX_RESULTS}.")
    return SearchQuery(words, count, locale)


def _all_failed(report: SearchReport) -> str:
    reasons = "; ".join(f"{attempt.engine}: {attempt.problem}" for attempt in report.attempts)
    advice = " ".join(report.notices)
    return (
        f"The web could not be searched. {reasons}. Try again later, open a page whose address "
        f"you know, or continue without the web. {advice}"
    ).rstrip()


@dataclass
class SearchRun:
    """One search: queries every engine in order, and retries those with passing errors."""

    query: SearchQuery
    settings: SearchSettings
    not_before: dict[str, float]
    """When a rate-limited engine may be queried again, on the monotonic clock."""
    hits: list[Hit] = field(default_factory=list[Hit])  # without duplicates, best first
    attempts: dict[str, Attempt] = field(default_factory=dict[str, Attempt])  # by engine

    def __post_init__(self) -> None:
        self._pages = set[str]()
        self._deadline = time.monotonic() + self.settings.total_timeout_s

    @property
    def complete(self) -> bool:
        return len(self.hits) >= self.query.count

    def add(self, engine: str, hits: Sequence[Hit], ignores: tuple[str, ...]) -> None:
        before = len(self.hits)
        for hit in hits:
            page = page_key(hit.url)
            if page not in self._pages and not self.complete:
                self._pages.add(page)
                self.hits.append(replace(hit, engine=engine))
        self.attempts[engine] = Attempt(engine, len(self.hits) - before, ignores=ignores)

    async def ask(self, engines: Sequence[SearchEngine]) -> None:
        pending = list(engines)
        for turn in range(1 + min(self.settings.max_retries, MAX_RETRIES)):
            if turn and (self.hits or not pending or not await self._pause(pending)):
                break
            asked, pending = pending, []
            for engine in asked:
                if not self.complete and not await self._ask_engine(engine):
                    pending.append(engine)

    async def _ask_engine(self, engine: SearchEngine) -> bool:
        """Query one engine; return False if it should be retried."""
        now = time.monotonic()
        wait_s = self.not_before.get(engine.name, 0) - now
        left_s = min(self.settings.timeout_s, self._deadline - now)
        if wait_s > 0:
            self._skip(engine.name, f"it asked to be left alone for {wait_s:.0f} s more")
            return False
        if left_s <= 0:
            self._skip(engine.name, "not asked, the time was over")
            return True
        try:
            hits = await _search_with_timeout(engine, self.query, left_s)
        except EngineError as error:
            failed = Attempt(engine.name, problem=error.reason, quotes=error.quotes)
            self.attempts[engine.name] = failed
            if error.retry_after_s is not None:
                self.not_before[engine.name] = time.monotonic() + error.retry_after_s
            return not error.passing
        self.add(engine.name, hits, engine.ignores)
        if self.hits:  # wait less for further results
            latest = time.monotonic() + self.settings.timeout_s
            self._deadline = min(self._deadline, latest)
        return True

    def _skip(self, engine: str, reason: str) -> None:
        """Record why an engine was not asked, unless it was asked before."""
        self.attempts.setdefault(engine, Attempt(engine, problem=reason))

    async def _pause(self, pending: Sequence[SearchEngine]) -> bool:
        """Wait until an engine may be retried; return False if that takes too long."""
        now = time.monotonic()
        default = now + min(self.settings.retry_delay, MAX_DELAY_S)
        ready = min(self.not_before.get(engine.name, default) for engine in pending)
        if ready >= self._deadline:
            return False
        await asyncio.sleep(max(0.0, ready - now))
        return True


async def _search_with_timeout(
    engine: SearchEngine, query: SearchQuery, limit_s: float
) -> list[Hit]:
    """Return hits; any failure of the engine becomes an EngineError."""
    clock = asyncio.timeout(limit_s)
    try:
        async with clock:
            return await engine.search(query)
    except EngineError:
        raise
    except Exception as error:  # an engine's fault must not keep the others from answering
        if clock.expired():
            raise EngineError(f"no answer within {limit_s:.0f} s", passing=True) from error
        log.info("search engine %s raised", engine.name, exc_info=error)
        raise EngineError(f"it failed with {type(error).__name__}") from error


MAX_PAGES = 10
PAGE_TIMEOUT_S = 20.0
_HTML = ("text/html", "application/xhtml+xml", "")
_HITS_CHARS = 1500  # of an observation, in addition to the pages, so that these are not cut again
_ADVICE = "Use fewer or other words, another lang or country, or open a page that you know."


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

    Also returns how many pages were opened of each site that was not named.
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
            yield f"{item.engine} does not support {' or '.join(unsupported)}."
