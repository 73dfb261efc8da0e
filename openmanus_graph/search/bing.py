"""Bing Web Search v7: https://learn.microsoft.com/bing/search-apis/bing-web-search/reference.

Microsoft shut its own service down on 11 August 2025; services that speak its protocol remain.
"""

from typing import Any

from pydantic import SecretStr

from openmanus_graph.search.api import Question, ask, paged
from openmanus_graph.search.engine import EngineError, Hit, SearchQuery
from openmanus_graph.search.hits import hits_of
from openmanus_graph.search.places import Place

URL = "https://api.bing.microsoft.com"
_PAGE = 50
_QUERY_CHARS = 1000
_RETIRED = (
    "Microsoft retired its own Bing search service in August 2025; give the address of another "
    "that speaks its protocol as [search.urls] bing"
)
_REFUSALS = {
    status: f"the key was refused (HTTP {status}); {_RETIRED}" for status in (401, 403, 404, 410)
}


class Bing:
    """By key."""

    name = "bing"
    ignores = ()

    def __init__(self, key: SecretStr, url: str = URL) -> None:
        self._key = key
        self._url = f"{url}/v7.0/search"

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Ask for hits; as `Engine.search`."""
        size = min(query.count, _PAGE)
        params = {
            "q": query.text_up_to(_QUERY_CHARS),
            "count": str(size),
            "mkt": _market(query.place),
            "setLang": _language(query.place),
            "responseFilter": "Webpages",
            "textDecorations": "false",
        }
        headers = {"Ocp-Apim-Subscription-Key": self._key.get_secret_value()}

        async def page(number: int) -> list[Hit]:
            shown = {**params, "offset": str(number * size)}
            answer = await ask(Question("GET", self._url, shown, headers, refusals=_REFUSALS))
            pages: Any = answer.get("webPages") or {}  # left out when nothing was found
            if not isinstance(pages, dict):
                raise EngineError("its answer is not in the documented form")
            return hits_of(pages.get("value"), title="name", url="url", snippet="snippet")

        return await paged(page, query.count, size)


def _market(place: Place) -> str:
    language = "nb" if place.lang == "no" else place.lang
    return f"{language}-{place.country.upper()}"


def _language(place: Place) -> str:
    if place.lang == "zh":
        return "zh-hant" if place.traditional else "zh-hans"
    return "nb" if place.lang == "no" else place.lang
