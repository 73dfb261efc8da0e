"""Asking the engines in turn until there are enough results, within a bounded time."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from openmanus_graph.errors import OwnWordsError, ToolError
from openmanus_graph.search.choose import choose
from openmanus_graph.search.engine import Engine, EngineError, Hit, SearchQuery
from openmanus_graph.search.gathering import Attempt, Gathering
from openmanus_graph.search.names import MAX_RESULTS
from openmanus_graph.search.places import Place, parse_place
from openmanus_graph.sessions import Session
from openmanus_graph.settings import SearchSettings

MAX_QUERY_CHARS = 2000
MAX_DELAY_S = 5.0
MAX_RETRIES = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchReport:
    """What a search came to."""

    query: SearchQuery
    hits: tuple[Hit, ...]
    """May be fewer than were wanted, or none."""
    attempts: tuple[Attempt, ...]
    """The engines that were asked, in order."""
    notices: tuple[str, ...]
    """Engines that the settings name and that are not set up."""

    @property
    def quotes(self) -> bool:
        """Whether anything in it comes from an engine."""
        return bool(self.hits) or any(attempt.quotes for attempt in self.attempts)


@dataclass
class _Memory:
    """What is known for the rest of the run."""

    reports: dict[SearchQuery, SearchReport] = field(
        default_factory=dict[SearchQuery, SearchReport]
    )
    not_before: dict[str, float] = field(default_factory=dict[str, float])
    """When an engine that asked to be left alone may be asked again, on the monotonic clock."""


async def search_for(
    session: Session,
    query: str,
    *,
    num_results: int = 5,
    lang: str | None = None,
    country: str | None = None,
) -> SearchReport:
    """Search the web as the session's settings say; the same question is asked once per run.

    Args:
        session: Its settings name the engines.
        query: What to look for.
        num_results: How many results are wanted, 1 to 50.
        lang: Language code; None: the settings'.
        country: Country code; None: the settings'.

    Raises:
        ToolError: A value is wrong, no engine is set up, or none answered; and what to do.
    """
    settings = session.settings.search
    wanted = _query(query, num_results, _place(settings, lang, country))
    memory = session.cached(_Memory, _Memory)
    if wanted in memory.reports:
        return memory.reports[wanted]
    choice = choose(settings)
    if not choice.engines:
        raise OwnWordsError(
            f"The web was not searched: no search engine is set up. {' '.join(choice.notices)} "
            "The engine ddgs needs no key."
        )
    found = await _Rounds(wanted, settings, memory.not_before).ask(choice.engines)
    report = SearchReport(
        wanted, tuple(found.hits), tuple(found.attempts.values()), tuple(choice.notices)
    )
    if all(attempt.problem for attempt in report.attempts):
        raise (ToolError if report.quotes else OwnWordsError)(_all_down(report))
    if report.hits:
        memory.reports[wanted] = report
    return report


class _Rounds:
    """One search: every engine in order, and again those for which waiting may help."""

    def __init__(
        self, query: SearchQuery, settings: SearchSettings, not_before: dict[str, float]
    ) -> None:
        self._query = query
        self._settings = settings
        self._not_before = not_before
        self._found = Gathering(query.count)
        self._deadline = time.monotonic() + settings.total_timeout_s

    async def ask(self, engines: Sequence[Engine]) -> Gathering:
        pending = await self._round(engines)
        for _ in range(min(self._settings.max_retries, MAX_RETRIES)):
            if self._found.hits or not pending or not await self._pause(pending):
                break
            pending = await self._round(pending)
        return self._found

    async def _round(self, engines: Sequence[Engine]) -> list[Engine]:
        """Ask each engine; return those that may answer later."""
        again: list[Engine] = []
        for engine in engines:
            if self._found.complete:
                break
            if not await self._one(engine):
                again.append(engine)
        return again

    async def _one(self, engine: Engine) -> bool:
        """Ask one engine; say whether it is done with."""
        now = time.monotonic()
        wait_s = self._not_before.get(engine.name, 0) - now
        left_s = min(self._settings.timeout_s, self._deadline - now)
        if wait_s > 0:
            self._found.skip(engine.name, f"it asked to be left alone for {wait_s:.0f} s more")
            return False
        if left_s <= 0:
            self._found.skip(engine.name, "not asked, the time was over")
            return True
        try:
            hits = await _answer(engine, self._query, left_s)
        except EngineError as error:
            self._found.fail(engine.name, error.reason, quotes=error.quotes)
            if error.retry_after_s is not None:
                self._not_before[engine.name] = time.monotonic() + error.retry_after_s
            return not error.passing
        self._found.add(engine.name, hits, engine.ignores)
        if self._found.hits:  # the rest of the results is worth less waiting
            soon = time.monotonic() + self._settings.timeout_s
            self._deadline = min(self._deadline, soon)
        return True

    async def _pause(self, pending: Sequence[Engine]) -> bool:
        """Wait until an engine may be asked again; not if that takes too long."""
        now = time.monotonic()
        usual = now + min(self._settings.retry_delay, MAX_DELAY_S)
        ready = min(self._not_before.get(engine.name, usual) for engine in pending)
        if ready >= self._deadline:
            return False
        await asyncio.sleep(max(0.0, ready - now))
        return True


async def _answer(engine: Engine, query: SearchQuery, limit_s: float) -> list[Hit]:
    """Get hits, or an EngineError whatever the engine does."""
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


def _place(settings: SearchSettings, lang: str | None, country: str | None) -> Place:
    try:
        return parse_place(lang or settings.lang, country or "", settings.country)
    except ValueError as error:
        raise OwnWordsError(f"The web was not searched: {error}.") from error


def _query(text: str, count: int, place: Place) -> SearchQuery:
    words = " ".join(text.split())
    if not words:
        raise OwnWordsError("The web was not searched: the query is empty. Say what to look for.")
    if len(words) > MAX_QUERY_CHARS:
        raise OwnWordsError(
            f"The web was not searched: the query has {len(words)} characters. A search takes a "
            "few words; shorten it."
        )
    if not 1 <= count <= MAX_RESULTS:
        raise OwnWordsError(f"num_results is {count}; it must be 1 to {MAX_RESULTS}.")
    return SearchQuery(words, count, place)


def _all_down(report: SearchReport) -> str:
    reasons = "; ".join(f"{attempt.engine}: {attempt.problem}" for attempt in report.attempts)
    advice = " ".join(report.notices)
    return (
        f"The web could not be searched. {reasons}. Try again later, open a page whose address "
        f"you know, or go on without the web. {advice}"
    ).rstrip()
