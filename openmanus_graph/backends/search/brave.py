"""Brave Search: https://api-dashboard.search.brave.com/api-reference/web/search/get."""

from typing import Any

from pydantic import SecretStr

from openmanus_graph.backends.search.search_engine import (
    EngineError,
    Hit,
    Question,
    SearchQuery,
    ask,
    hits_of,
    paged,
)
from openmanus_graph.state.search_engines import SearchLocale, codes

URL = "https://api.search.brave.com"
_PAGE = 20
_QUERY_CHARS, _QUERY_WORDS = 400, 50
# Brave answers 422 to a country or language that it does not list.
_COUNTRIES = codes(
    "ar au at be br ca cl cn dk fi fr de gr hk in id it jp kr my mx nl nz no pl pt ph ru sa za "
    "es se ch tw tr gb us"
)
_LANGUAGES = codes(
    "ar eu bn bg ca hr cs da nl en et fi fr gl de el gu he hi hu is it kn ko lv lt ms ml mr nb pl "
    "pa ro ru sr sk sl es sv ta te th tr uk vi"
)
_OWN_CODES = {"ja": "jp", "no": "nb", "nn": "nb"}


class Brave:
    """By key."""

    name = "brave"
    ignores = ()

    def __init__(self, key: SecretStr, url: str = URL) -> None:
        self._key = key
        self._url = f"{url}/res/v1/web/search"

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Ask for hits; as `SearchEngine.search`."""
        size = min(query.count, _PAGE)
        params = {
            "q": query.text_up_to(_QUERY_CHARS, _QUERY_WORDS),
            "count": str(size),
            "text_decorations": "false",
            "result_filter": "web",
            **_locale(query.locale),
        }
        headers = {"X-Subscription-Token": self._key.get_secret_value()}

        async def page(number: int) -> list[Hit]:
            answer = await ask(
                Question("GET", self._url, {**params, "offset": str(number)}, headers)
            )
            web: Any = answer.get("web") or {}  # left out when nothing was found
            if not isinstance(web, dict):
                raise EngineError("its answer is not in the documented form")
            return hits_of(web.get("results"), title="title", url="url", snippet="description")

        return await paged(page, query.count, size)


def _locale(locale: SearchLocale) -> dict[str, str]:
    country = locale.country.upper() if locale.country in _COUNTRIES else "ALL"
    language = _OWN_CODES.get(locale.lang, locale.lang)
    if locale.lang == "zh":
        language = "zh-hant" if locale.traditional else "zh-hans"
    elif locale.lang == "pt":
        language = "pt-br" if locale.country == "br" else "pt-pt"
    elif locale.lang == "en" and locale.country == "gb":
        language = "en-gb"
    elif language not in _LANGUAGES and language != "jp":
        return {"country": country}
    return {"country": country, "search_lang": language}
