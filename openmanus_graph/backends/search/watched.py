"""ddgs that remembers HTTP statuses: by itself it calls a refusal "No results found".

Imported only where a search is made, because ddgs takes a while to load.
"""

from typing import Any

from ddgs.ddgs import DDGS


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
