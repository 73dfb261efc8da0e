"""Google's Custom Search JSON API: https://developers.google.com/custom-search/v1/cse/list.

Closed to new customers; existing keys work until 1 January 2027.
"""

from pydantic import SecretStr

from openmanus_graph.backends.search.search_engine import (
    Hit,
    Question,
    SearchQuery,
    ask,
    hits_of,
    paged,
)
from openmanus_graph.state.search_engines import SearchLocale, codes

URL = "https://customsearch.googleapis.com"
_PAGE = 10
_QUERY_CHARS = 1500
_OWN_CODES = {"he": "iw", "nb": "no", "nn": "no"}
_RESTRICTABLE = codes(
    "ar bg ca cs da de el en es et fi fr hr hu id is it iw ja ko lt lv nl no pl pt ro ru sk sl sr "
    "sv tr"
)
_REFUSALS = {403: "the key may not use the Custom Search API, or its quota is used up (HTTP 403)"}


class Google:
    """By key and search engine id (cx)."""

    name = "google"
    ignores = ()

    def __init__(self, key: SecretStr, cx: str, url: str = URL) -> None:
        self._key = key
        self._cx = cx
        self._url = f"{url}/customsearch/v1"

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Ask for hits; as `SearchEngine.search`."""
        size = min(query.count, _PAGE)
        params = {
            "q": query.text_up_to(_QUERY_CHARS),
            "cx": self._cx,
            "num": str(size),
            **_locale(query.locale),
        }
        headers = {"X-Goog-Api-Key": self._key.get_secret_value()}

        async def page(number: int) -> list[Hit]:
            shown = {**params, "start": str(number * size + 1)}
            answer = await ask(Question("GET", self._url, shown, headers, refusals=_REFUSALS))
            return hits_of(answer.get("items"), title="title", url="link", snippet="snippet")

        return await paged(page, query.count, size)


def _locale(locale: SearchLocale) -> dict[str, str]:
    """Tell where the person is (gl), in which language to speak (hl) and to search (lr)."""
    country = "uk" if locale.country == "gb" else locale.country
    language = _OWN_CODES.get(locale.lang, locale.lang)
    if locale.lang == "zh":
        language = "zh-TW" if locale.traditional else "zh-CN"
    elif language not in _RESTRICTABLE:
        return {"gl": country, "hl": language}
    return {"gl": country, "hl": language, "lr": f"lang_{language}"}
