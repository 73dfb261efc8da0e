"""Search engines without a key, through the package ddgs, which reads their public pages."""

import asyncio
import time
from http import HTTPStatus
from typing import Any

from ddgs.ddgs import DDGS

from openmanus_graph.backends.models.endpoint import certificate_path
from openmanus_graph.backends.search.search_engine import (
    EngineError,
    Hit,
    SearchQuery,
    hits_of,
    paged,
    plain,
)
from openmanus_graph.state.search_engines import SearchLocale

REQUEST_TIMEOUT_S = 5
"""Of one request; a search takes one or two."""
_IGNORES = {"yahoo": ("lang", "country"), "wikipedia": ("country",)}
_PAGE = 10
_MAX_WORDS_CHARS = 160
_NOTHING = "No results found"
# Where DuckDuckGo's own codes are not those of ISO.
_DUCK_LANGUAGES = {"ja": "jp", "ko": "kr", "nb": "no", "nn": "no"}
_CAUSES = {
    "error resolving DNS": "its name cannot be resolved: is there a network?",
    "dns error": "its name cannot be resolved: is there a network?",
    "ertificate": "its certificate is not trusted here",
    "ConnectError": "it cannot be reached",
    "timed out": "it did not answer in time",
}


class Metasearch:
    """One of ddgs's backends."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self.name = f"ddgs:{backend}"
        self.ignores = _IGNORES.get(backend, ())

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Ask for hits; as `SearchEngine.search`."""

        async def page(number: int) -> list[Hit]:
            return await asyncio.to_thread(self._ask, query, number + 1)

        return await paged(page, query.count, _PAGE)

    def _ask(self, query: SearchQuery, page: int) -> list[Hit]:
        from ddgs.exceptions import DDGSException  # ddgs takes a while to load

        authorities = certificate_path()
        verify = str(authorities) if authorities and authorities.is_file() else True
        client = WatchedDDGS(REQUEST_TIMEOUT_S, verify)
        started = time.monotonic()
        try:
            found: list[dict[str, Any]] = client.text(
                query.text,
                region=region(query.locale, self._backend),
                max_results=query.count,
                page=page,
                backend=self._backend,
            )
        except DDGSException as error:
            if time.monotonic() - started >= REQUEST_TIMEOUT_S:
                raise EngineError("it did not answer in time", passing=True) from error
            refused = next((status for status in client.statuses if status != HTTPStatus.OK), None)
            if refused is not None:
                words = f"it refuses programs for the moment (HTTP {refused})"
                raise EngineError(words, passing=True) from error
            if _NOTHING in str(error):
                return []
            # ddgs wraps several errors into one another.
            cause = next((words for sign, words in _CAUSES.items() if sign in str(error)), None)
            words = cause or plain(str(error), _MAX_WORDS_CHARS)
            raise EngineError(words, passing=True, quotes=cause is None) from error
        return hits_of(found, title="title", url="href", snippet="body")


def region(locale: SearchLocale, backend: str) -> str:
    """Return ddgs's `country-language`, which each backend reads in its own way."""
    if backend != "duckduckgo":
        return f"{locale.country}-{locale.lang}"
    country = "uk" if locale.country == "gb" else locale.country
    language = _DUCK_LANGUAGES.get(locale.lang, locale.lang)
    if locale.lang == "zh":
        language = "tzh" if locale.traditional else "zh"
    return f"{country}-{language}"


class WatchedDDGS(DDGS):
    """Should ddgs change inside, the statuses are missing and nothing else."""

    def __init__(self, timeout_s: int, verify: bool | str) -> None:
        super().__init__(timeout=timeout_s, verify=verify)
        self.statuses: list[int] = []

    def _get_engines(self, category: str, backend: str) -> list[Any]:
        engines = super()._get_engines(category, backend)
        for engine in engines:
            client: Any = getattr(engine, "http_client", None)
            if client is not None:
                client.request = self._watched(client.request)
        return engines

    def _watched(self, request: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            answer = request(*args, **kwargs)
            self.statuses.append(answer.status_code)
            return answer

        return watched
