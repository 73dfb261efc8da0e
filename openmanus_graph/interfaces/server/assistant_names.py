"""ASGI middleware that lets LangGraph's routes of assistants take an agent's name.

Its routes of runs take a graph's name for the graph's own assistant; those that read an assistant
want the UUID. So `get_schemas("manus")` of the SDK works as its `runs.wait(thread, "manus")` does.
"""

import re

from langgraph_api.graph import get_assistant_id
from starlette.types import ASGIApp, Receive, Scope, Send

_ASSISTANT = re.compile(r"/assistants/(?P<name>[^/]+)(?P<rest>(?:/.*)?)")


class AssistantNames:
    """Puts the UUID of a graph's assistant in the place of the graph's name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the UUID in its path."""
        match = _ASSISTANT.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None and scope["method"] == "GET":
            path = f"/assistants/{get_assistant_id(match['name'])}{match['rest']}"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)
