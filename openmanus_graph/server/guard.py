"""Which requests the server hears at all: right Host, right Origin, right token.

It stands before the whole API, LangGraph's own routes included. There are no cookies, so that a
page in the person's browser has nothing to send along unless it knows the token; Host and Origin
are checked all the same: a name that was pointed at this machine (DNS rebinding) gets nothing.
"""

import os

from starlette.types import ASGIApp
from typing_extensions import override

from openmanus_graph.server.token import is_token
from openmanus_graph.serving.guard import Guard, Receive, Scope, Send

STUDIO_ORIGINS = ("https://smith.langchain.com", "https://eu.smith.langchain.com")
HOSTS_VARIABLE = "OPENMANUS_ALLOWED_HOSTS"
ORIGINS_VARIABLE = "OPENMANUS_ALLOWED_ORIGINS"
PUBLIC = ("/app", "/app/static/", "/app/t/", "/app/files/")
"""Paths without a token: the page, which holds no data, and files, which have signed links."""
LIVENESS = "/ok"
INSIDE = "/noauth"
"""Root path of requests that the server makes to itself; none from outside can have one."""


class ServerGuard(Guard):
    """The guard of LangGraph's server; see the module."""

    strange_host = f"This server is not called that; names of more: {HOSTS_VARIABLE}."
    strange_origin = f"Pages of other sites may not call this server ({ORIGINS_VARIABLE})."
    no_token = (
        "This server wants its token as `Authorization: Bearer TOKEN` or `X-Api-Key: TOKEN`. "
        "`openmanus serve` prints it; it is kept in OPENMANUS_HOME."
    )

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            app,
            bound_to=("127.0.0.1", *_listed(HOSTS_VARIABLE)),
            origins=(*STUDIO_ORIGINS, *_listed(ORIGINS_VARIABLE)),
        )

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _from_inside(scope):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    @override
    def is_token(self, given: str) -> bool:
        return is_token(given)

    @override
    def is_public(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            return True  # a browser asks beforehand, without credentials; no route does anything
        if path == LIVENESS:
            return not scope.get("query_string")
        return any(path == one or (one.endswith("/") and path.startswith(one)) for one in PUBLIC)


def _from_inside(scope: Scope) -> bool:
    root: str = scope.get("root_path", "")
    return root == INSIDE or root.startswith(f"{INSIDE}/")


def _listed(variable: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in os.environ.get(variable, "").split(",") if part.strip())
