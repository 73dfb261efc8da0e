"""Tavily: https://docs.tavily.com/documentation/api-reference/endpoint/search."""

from pydantic import SecretStr

from openmanus_graph.backends.search.search_engine import Hit, Question, SearchQuery, ask, hits_of
from openmanus_graph.state.search_engines import COUNTRY_NAMES

URL = "https://api.tavily.com"
_MOST = 20
_QUERY_CHARS = 400
_REFUSALS = {
    432: "the plan's credits are used up (HTTP 432)",
    433: "the pay-as-you-go limit is reached (HTTP 433)",
}


class Tavily:
    """By key; takes countries by their English names, and no language."""

    name = "tavily"
    ignores = ("lang",)

    def __init__(self, key: SecretStr, url: str = URL) -> None:
        self._key = key
        self._url = f"{url}/search"

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Ask for hits; as `SearchEngine.search`."""
        body = {
            "query": query.text_up_to(_QUERY_CHARS),
            "max_results": min(query.count, _MOST),
            "topic": "general",  # the only one that takes a country
            "search_depth": "basic",
        }
        country = COUNTRY_NAMES.get(query.locale.country)
        if country:
            body["country"] = country
        headers = {"Authorization": f"Bearer {self._key.get_secret_value()}"}
        answer = await ask(
            Question("POST", self._url, headers=headers, body=body, refusals=_REFUSALS)
        )
        return hits_of(answer.get("results"), title="title", url="url", snippet="content")
