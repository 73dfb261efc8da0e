"""SearXNG, a search server of one's own: https://docs.searxng.org/dev/search_api.html."""

import base64
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

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

_PAGE = 10
"""Pages differ in length; a shorter one is the last."""
_REFUSALS = {
    403: "it does not give out JSON (HTTP 403); add json to search.formats in its settings.yml",
    429: "its limiter refuses programs (HTTP 429); set server.limiter to false in its settings.yml",
}
_MAX_NAMED = 4


class Searxng:
    """By address."""

    name = "searxng"
    ignores = ()

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        login, _, place = parts.netloc.rpartition("@")
        # In a header, because addresses are logged.
        encoded = base64.b64encode(unquote(login).encode()).decode()
        self._login = SecretStr(f"Basic {encoded}" if login else "")
        path = parts.path.rstrip("/").removesuffix("/search")
        self._url = f"{parts.scheme}://{place}{path}/search"

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Ask for hits; as `SearchEngine.search`."""
        params = {
            "q": query.text,
            "format": "json",
            "categories": "general",
            "language": query.locale.tag,
        }

        async def page(number: int) -> list[Hit]:
            shown = {**params, "pageno": str(number + 1)}
            login = self._login.get_secret_value()
            headers = {"Authorization": login} if login else {}
            answer = await ask(Question("GET", self._url, shown, headers, refusals=_REFUSALS))
            hits = hits_of(answer.get("results"), title="title", url="url", snippet="content")
            failed = _failed_engines(answer)
            if not hits and failed:
                raise EngineError(
                    f"its own engines did not answer: {failed}", passing=True, quotes=True
                )
            return hits

        return await paged(page, query.count, _PAGE)


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
