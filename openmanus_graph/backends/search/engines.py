"""The search engines: those with an HTTP interface, and those that ddgs asks without a key."""

import asyncio
import base64
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from ddgs.ddgs import DDGS
from ddgs.exceptions import DDGSException
from pydantic import SecretStr

from openmanus_graph.backends.models.endpoint import certificate_path
from openmanus_graph.backends.search.search_engine import (
    EngineError,
    Hit,
    SearchEngine,
    SearchQuery,
    ask,
    hits_of,
    plain,
)
from openmanus_graph.state.search_engines import COUNTRY_NAMES, SearchLocale, codes

_MAX_WORDS_CHARS = 160
_MAX_NAMED = 4
_SEARXNG_PAGE = 10  # pages differ in length; a shorter one is the last
_SEARXNG_REFUSALS = {
    403: "it does not give out JSON (HTTP 403); add json to search.formats in its settings.yml",
    429: "its limiter refuses programs (HTTP 429); set server.limiter to false in its settings.yml",
}


def searxng(url: str) -> SearchEngine:
    """Return SearXNG, a search server that the person runs.

    https://docs.searxng.org/dev/search_api.html
    """
    parts = urlsplit(url)
    login, _, place = parts.netloc.rpartition("@")
    # In a header, because addresses are logged.
    encoded = base64.b64encode(unquote(login).encode()).decode()
    headers = {"Authorization": f"Basic {encoded}"} if login else {}
    path = parts.path.rstrip("/").removesuffix("/search")
    address = f"{parts.scheme}://{place}{path}/search"

    async def page(query: SearchQuery, number: int) -> list[Hit]:
        params = {
            "q": query.text,
            "format": "json",
            "categories": "general",
            "language": query.locale.tag,
            "pageno": str(number + 1),
        }
        answer = await ask("GET", address, headers, params=params, refusals=_SEARXNG_REFUSALS)
        hits = hits_of(answer.get("results"), snippet="content")
        if not hits and (failed := _failed_engines(answer)):
            words = f"its own engines did not answer: {failed}"
            raise EngineError(words, passing=True, quotes=True)
        return hits

    return SearchEngine("searxng", page, _SEARXNG_PAGE)


def _failed_engines(answer: Mapping[str, Any]) -> str:
    """Name the engines behind it that failed: pairs of name and reason."""
    entries: Any = answer.get("unresponsive_engines")
    if not isinstance(entries, list):
        return ""
    named = [
        f"{pair[0]} ({pair[1]})"
        for pair in cast("list[Any]", entries)
        if isinstance(pair, list) and len(cast("list[Any]", pair)) > 1
    ]
    return ", ".join(named[:_MAX_NAMED])


_TAVILY_URL = "https://api.tavily.com"
_TAVILY_MOST = 20
_TAVILY_QUERY_CHARS = 400
_TAVILY_REFUSALS = {
    432: "the plan's credits are used up (HTTP 432)",
    433: "the pay-as-you-go limit is reached (HTTP 433)",
}


def tavily(key: SecretStr, url: str = _TAVILY_URL) -> SearchEngine:
    """Return Tavily; it takes countries by their English names, and no language.

    https://docs.tavily.com/documentation/api-reference/endpoint/search
    """

    async def page(query: SearchQuery, _number: int) -> list[Hit]:
        body = {
            "query": query.text_up_to(_TAVILY_QUERY_CHARS),
            "max_results": min(query.count, _TAVILY_MOST),
            "topic": "general",  # the only one that takes a country
            "search_depth": "basic",
        }
        if country := COUNTRY_NAMES.get(query.locale.country):
            body["country"] = country
        headers = {"Authorization": f"Bearer {key.get_secret_value()}"}
        refusals = _TAVILY_REFUSALS
        answer = await ask("POST", f"{url}/search", headers, body=body, refusals=refusals)
        return hits_of(answer.get("results"), snippet="content")

    return SearchEngine("tavily", page, ignores=("lang",))


_BRAVE_URL = "https://api.search.brave.com"
_BRAVE_PAGE = 20
_BRAVE_QUERY_CHARS, _BRAVE_QUERY_WORDS = 400, 50
# Brave answers 422 to a country or language that it does not list.
_BRAVE_COUNTRIES = codes(
    "ar au at be br ca cl cn dk fi fr de gr hk in id it jp kr my mx nl nz no pl pt ph ru sa za "
    "es se ch tw tr gb us"
)
_BRAVE_LANGUAGES = codes(
    "ar eu bn bg ca hr cs da nl en et fi fr gl de el gu he hi hu is it kn ko lv lt ms ml mr nb pl "
    "pa ro ru sr sk sl es sv ta te th tr uk vi"
)
_BRAVE_OWN_CODES = {"ja": "jp", "no": "nb", "nn": "nb"}


def brave(key: SecretStr, url: str = _BRAVE_URL) -> SearchEngine:
    """Return Brave.

    https://api-dashboard.search.brave.com/api-reference/web/search/get
    """

    async def page(query: SearchQuery, number: int) -> list[Hit]:
        params = {
            "q": query.text_up_to(_BRAVE_QUERY_CHARS, _BRAVE_QUERY_WORDS),
            "count": str(min(query.count, _BRAVE_PAGE)),
            "offset": str(number),
            "text_decorations": "false",
            "result_filter": "web",
            **_brave_locale(query.locale),
        }
        headers = {"X-Subscription-Token": key.get_secret_value()}
        answer = await ask("GET", f"{url}/res/v1/web/search", headers, params=params)
        web: Any = answer.get("web") or {}  # left out when nothing was found
        if not isinstance(web, dict):
            raise EngineError("its answer is not in the documented form")
        return hits_of(web.get("results"), snippet="description")

    return SearchEngine("brave", page, _BRAVE_PAGE)


def _brave_locale(locale: SearchLocale) -> dict[str, str]:
    country = locale.country.upper() if locale.country in _BRAVE_COUNTRIES else "ALL"
    language = _BRAVE_OWN_CODES.get(locale.lang, locale.lang)
    if locale.lang == "zh":
        language = "zh-hant" if locale.traditional else "zh-hans"
    elif locale.lang == "pt":
        language = "pt-br" if locale.country == "br" else "pt-pt"
    elif locale.lang == "en" and locale.country == "gb":
        language = "en-gb"
    elif language not in _BRAVE_LANGUAGES and language != "jp":
        return {"country": country}
    return {"country": country, "search_lang": language}


_GOOGLE_URL = "https://customsearch.googleapis.com"
_GOOGLE_PAGE = 10
_GOOGLE_QUERY_CHARS = 1500
_GOOGLE_OWN_CODES = {"he": "iw", "nb": "no", "nn": "no"}
_GOOGLE_RESTRICTABLE = codes(
    "ar bg ca cs da de el en es et fi fr hr hu id is it iw ja ko lt lv nl no pl pt ro ru sk sl sr "
    "sv tr"
)
_GOOGLE_REFUSALS = {
    403: "the key may not use the Custom Search API, or its quota is used up (HTTP 403)"
}


def google(key: SecretStr, cx: str, url: str = _GOOGLE_URL) -> SearchEngine:
    """Return Google's Custom Search JSON API, by key and search engine id (cx).

    https://developers.google.com/custom-search/v1/cse/list
    Closed to new customers; existing keys work until 1 January 2027.
    """

    async def page(query: SearchQuery, number: int) -> list[Hit]:
        size = min(query.count, _GOOGLE_PAGE)
        params = {
            "q": query.text_up_to(_GOOGLE_QUERY_CHARS),
            "cx": cx,
            "num": str(size),
            "start": str(number * size + 1),
            **_google_locale(query.locale),
        }
        address, headers = f"{url}/customsearch/v1", {"X-Goog-Api-Key": key.get_secret_value()}
        answer = await ask("GET", address, headers, params=params, refusals=_GOOGLE_REFUSALS)
        return hits_of(answer.get("items"), url="link", snippet="snippet")

    return SearchEngine("google", page, _GOOGLE_PAGE)


def _google_locale(locale: SearchLocale) -> dict[str, str]:
    """Return the country (gl), the language of the interface (hl) and of the results (lr)."""
    country = "uk" if locale.country == "gb" else locale.country
    language = _GOOGLE_OWN_CODES.get(locale.lang, locale.lang)
    if locale.lang == "zh":
        language = "zh-TW" if locale.traditional else "zh-CN"
    elif language not in _GOOGLE_RESTRICTABLE:
        return {"gl": country, "hl": language}
    return {"gl": country, "hl": language, "lr": f"lang_{language}"}


_BAIDU_URL = "https://qianfan.baidubce.com"
_BAIDU_MOST = 50
_BAIDU_QUERY_CHARS = 72


def baidu(key: SecretStr, url: str = _BAIDU_URL) -> SearchEngine:
    """Return Baidu Search of the Qianfan platform; it takes neither language nor country.

    https://ai.baidu.com/ai-doc/AppBuilder/pmaxd1hvy
    """

    async def page(query: SearchQuery, _number: int) -> list[Hit]:
        secret = key.get_secret_value()
        body = {
            "messages": [{"role": "user", "content": query.text_up_to(_BAIDU_QUERY_CHARS)}],
            "search_source": "baidu_search_v2",
            "resource_type_filter": [{"type": "web", "top_k": min(query.count, _BAIDU_MOST)}],
        }
        address, headers = f"{url}/v2/ai_search/web_search", {"Authorization": f"Bearer {secret}"}
        answer = await ask("POST", address, headers, body=body)
        if answer.get("code") and "references" not in answer:
            said = plain(answer.get("message"), _MAX_WORDS_CHARS)
            said = said.replace(secret, "***")
            raise EngineError(f"error {answer['code']}: {said}", quotes=True)
        return hits_of(answer.get("references"), snippet="content")

    return SearchEngine("baidu", page, ignores=("lang", "country"))


REQUEST_TIMEOUT_S = 5
"""Of one request of ddgs, which reads the engines' public pages; a search takes one or two."""
_IGNORES = {"yahoo": ("lang", "country"), "wikipedia": ("country",)}
_PAGE = 10
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


def metasearch(backend: str) -> SearchEngine:
    """Return one of ddgs's backends."""

    async def page(query: SearchQuery, number: int) -> list[Hit]:
        return await asyncio.to_thread(_ask_ddgs, backend, query, number + 1)

    return SearchEngine(f"ddgs:{backend}", page, _PAGE, _IGNORES.get(backend, ()))


def _ask_ddgs(backend: str, query: SearchQuery, page: int) -> list[Hit]:
    """Ask for one page. Blocks."""
    authorities = certificate_path()
    verify = str(authorities) if authorities and authorities.is_file() else True
    client = _WatchedDDGS(timeout=REQUEST_TIMEOUT_S, verify=verify)
    started = time.monotonic()
    try:
        found: list[dict[str, Any]] = client.text(
            query.text,
            region=region(query.locale, backend),
            max_results=query.count,
            page=page,
            backend=backend,
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
    return hits_of(found, url="href", snippet="body")


def region(locale: SearchLocale, backend: str) -> str:
    """Return ddgs's `country-language`, which each backend reads in its own way."""
    if backend != "duckduckgo":
        return f"{locale.country}-{locale.lang}"
    country = "uk" if locale.country == "gb" else locale.country
    language = _DUCK_LANGUAGES.get(locale.lang, locale.lang)
    if locale.lang == "zh":
        language = "tzh" if locale.traditional else "zh"
    return f"{country}-{language}"


class _WatchedDDGS(DDGS):
    """Records the statuses of responses; if ddgs changes inside, only these are missing."""

    def __init__(self, timeout: int, verify: bool | str) -> None:
        super().__init__(timeout=timeout, verify=verify)
        self.statuses: list[int] = []

    def _get_engines(self, category: str, backend: str) -> list[Any]:
        engines = super()._get_engines(category, backend)
        for engine in engines:
            client: Any = getattr(engine, "http_client", None)
            if client is not None:
                client.request = partial(self._watched, client.request)
        return engines

    def _watched(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        answer = request(*args, **kwargs)
        self.statuses.append(answer.status_code)
        return answer
