"""Which requests the server hears at all: right Host, right Origin, right token.

It stands before the whole API, LangGraph's own routes included. There are no cookies, so that a
page in the person's browser has nothing to send along unless it knows the token; Host and Origin
are checked all the same: a name that was pointed at this machine (DNS rebinding) gets nothing.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from openmanus_graph.server.token import is_token

STUDIO_ORIGINS = ("https://smith.langchain.com", "https://eu.smith.langchain.com")
HOSTS_VARIABLE = "OPENMANUS_ALLOWED_HOSTS"
ORIGINS_VARIABLE = "OPENMANUS_ALLOWED_ORIGINS"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PUBLIC = ("/app", "/app/static/", "/app/t/", "/app/files/")
"""Paths without a token: the page, which holds no data, and files, which have signed links."""
LIVENESS = "/ok"
INSIDE = "/noauth"
"""Root path of requests that the server makes to itself; none from outside can have one."""


@dataclass(frozen=True)
class Refusal:
    """Why a request is not heard."""

    status: int
    detail: str


class Guard:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or _from_inside(scope):
            await self.app(scope, receive, send)
            return
        refusal = judge(scope)
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.detail})
        else:
            challenge = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
            answer = JSONResponse({"detail": refusal.detail}, refusal.status, challenge)
            await answer(scope, receive, send)


def judge(scope: Scope) -> Refusal | None:
    """Decide about a request from outside; None lets it pass."""
    headers = Headers(scope=scope)
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or not is_known_host(hosts[0]):
        return Refusal(421, f"This server is not called that; names of more: {HOSTS_VARIABLE}.")
    if len(origins) > 1 or (origins and not is_known_origin(origins[0], hosts[0])):
        return Refusal(403, f"Pages of other sites may not call this server ({ORIGINS_VARIABLE}).")
    if _needs_no_token(scope) or any(map(is_token, tokens_in(headers))):
        return None
    return Refusal(
        401,
        "This server wants its token as `Authorization: Bearer TOKEN` or `X-Api-Key: TOKEN`. "
        "`openmanus serve` prints it; it is kept in OPENMANUS_HOME.",
    )


def is_known_host(host: str) -> bool:
    """Say whether a Host header means this server; the port does not matter."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.lower() in (*LOOPBACK, *_listed(HOSTS_VARIABLE))


def is_known_origin(origin: str, host: str) -> bool:
    """Say whether a page of this origin may call: our own, Studio's, and those that were named."""
    if origin in (*STUDIO_ORIGINS, *_listed(ORIGINS_VARIABLE)):
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def tokens_in(headers: Headers) -> Iterable[str]:
    """Find what may be the token: clients made for LangGraph send it as an API key."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield credentials.strip()
    if "x-api-key" in headers:
        yield headers["x-api-key"].strip()


def _needs_no_token(scope: Scope) -> bool:
    path: str = scope["path"]
    if scope["type"] == "http" and scope["method"] == "OPTIONS":
        return True  # a browser asks beforehand, without credentials; no route does anything then
    if path == LIVENESS:
        return not scope.get("query_string")
    return any(path == one or (one.endswith("/") and path.startswith(one)) for one in PUBLIC)


def _from_inside(scope: Scope) -> bool:
    root: str = scope.get("root_path", "")
    return root == INSIDE or root.startswith(f"{INSIDE}/")


@lru_cache
def _listed(variable: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in os.environ.get(variable, "").split(",") if part.strip())
