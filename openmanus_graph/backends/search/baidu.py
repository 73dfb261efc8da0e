"""Baidu Search of the Qianfan platform: https://ai.baidu.com/ai-doc/AppBuilder/pmaxd1hvy."""

from pydantic import SecretStr

from openmanus_graph.backends.search.search_engine import (
    EngineError,
    Hit,
    Question,
    SearchQuery,
    ask,
    hits_of,
    plain,
)

URL = "https://qianfan.baidubce.com"
_MOST = 50
_QUERY_CHARS = 72
_MAX_WORDS_CHARS = 160


class Baidu:
    """By key; takes neither language nor country."""

    name = "baidu"
    ignores = ("lang", "country")

    def __init__(self, key: SecretStr, url: str = URL) -> None:
        self._key = key
        self._url = f"{url}/v2/ai_search/web_search"

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Ask for hits; as `SearchEngine.search`."""
        body = {
            "messages": [{"role": "user", "content": query.text_up_to(_QUERY_CHARS)}],
            "search_source": "baidu_search_v2",
            "resource_type_filter": [{"type": "web", "top_k": min(query.count, _MOST)}],
        }
        headers = {"Authorization": f"Bearer {self._key.get_secret_value()}"}
        answer = await ask(Question("POST", self._url, headers=headers, body=body))
        if answer.get("code") and "references" not in answer:
            said = plain(answer.get("message"), _MAX_WORDS_CHARS)
            said = said.replace(self._key.get_secret_value(), "***")
            raise EngineError(f"error {answer['code']}: {said}", quotes=True)
        return hits_of(answer.get("references"), title="title", url="url", snippet="content")
