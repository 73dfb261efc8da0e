"""ASGI middleware that lets the server's routes of assistants take an agent's name.

Its routes of runs take a graph's name for the graph's own assistant; those that read an assistant
want the UUID. So `get_schemas("manus")` of the SDK works as its `runs.wait(thread, "manus")` does.
"""

import re
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

_ASSISTANT = re.compile(r"/assistants/(?P<name>[^/]+)(?P<rest>(?:/.*)?)")


class AssistantNames:
    """Puts the UUID of a graph's assistant in the place of the graph's name.

    Args:
        app: Handles the requests.
        assistant_id: Returns the UUID for a graph's name; any other text as it is.
    """

    def __init__(self, app: ASGIApp, assistant_id: Callable[[str], str]) -> None:
        self._app, self._assistant_id = app, assistant_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the UUID in its path."""
        match = _ASSISTANT.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None and scope["method"] == "GET":
            path = f"/assistants/{self._assistant_id(match['name'])}{match['rest']}"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)
