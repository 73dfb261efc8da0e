"""ASGI middleware that refuses requests with a wrong Host, Origin or token.

It wraps the whole API, LangGraph's own routes included. There are no cookies, so that a
page in the person's browser can send no credentials unless it knows the token; Host and Origin
are checked all the same, against names that were pointed at this machine (DNS rebinding).
"""

import os
from typing import Any

from starlette.types import ASGIApp
from typing_extensions import override

from openmanus_graph.interfaces.server.body_limits import limited, refusal_of
from openmanus_graph.interfaces.server.token import is_token
from openmanus_graph.interfaces.service.http import Receive, RequestGuard, Scope, Send

STUDIO_ORIGINS = ("https://smith.langchain.com", "https://eu.smith.langchain.com")
HOSTS_VARIABLE = "OPENMANUS_ALLOWED_HOSTS"
ORIGINS_VARIABLE = "OPENMANUS_ALLOWED_ORIGINS"
PUBLIC = ("/app", "/app/static/", "/app/t/", "/app/files/")
"""Paths without a token: the page, which holds no data, and files, which have signed links."""
LIVENESS = ("/ok", "/health")
INTERNAL = "/noauth"
"""Root path of requests that the server makes to itself; external requests cannot have one."""


class ServerGuard(RequestGuard):
    """The guard of LangGraph's server; see the module."""

    host_refused = f"This server is not called that; names of more: {HOSTS_VARIABLE}."
    origin_refused = f"Pages of other sites may not call this server ({ORIGINS_VARIABLE})."
    token_refused = (
        "This server wants its token as `Authorization: Bearer TOKEN` or `X-Api-Key: TOKEN`. "
        "`openmanus serve` prints it; it is kept in OPENMANUS_HOME."
    )

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            app,
            bound_to=("127.0.0.1", *_list_variable(HOSTS_VARIABLE)),
            origins=(*STUDIO_ORIGINS, *_list_variable(ORIGINS_VARIABLE)),
        )

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root: str = scope.get("root_path", "")
        if root == INTERNAL or root.startswith(f"{INTERNAL}/"):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    @override
    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await limited(self.app, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    @override
    def refusal_body(self, scope: Scope, status: int, reason: str) -> dict[str, Any]:
        return refusal_of(scope, status, reason)

    @override
    def is_token(self, given: str) -> bool:
        return is_token(given)

    @override
    def is_public(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            return True  # a browser asks beforehand, without credentials; no route does anything
        if path in LIVENESS:
            return not scope.get("query_string")
        return any(path == one or (one.endswith("/") and path.startswith(one)) for one in PUBLIC)


def _list_variable(variable: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in os.environ.get(variable, "").split(",") if part.strip())
