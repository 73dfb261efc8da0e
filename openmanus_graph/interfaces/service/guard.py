"""ASGI middleware that checks token, Host and Origin of each request before the app runs.

A server on the loopback interface is within reach of every page in the person's browser. A page
cannot forge `Host` or `Origin`, and does not know the token.
"""

import hmac
import json
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from openmanus_graph.state.addresses import LOOPBACK_NAMES, is_loopback, literal_ip

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Collection[tuple[bytes, bytes]]
Refusal = tuple[int, str, dict[str, str]]
"""Status, reason and headers."""
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # recognised, not bound to
_POLICY_VIOLATION = 1008


class RequestGuard:
    """Refuses requests without the token, and those of pages from other origins.

    Answers 421 to a `Host` that is not ours (a foreign name that resolves to this machine), 403
    to an `Origin` that is not ours, 401 to a missing or wrong token. WebSockets are refused
    likewise, before they are accepted.

    Args:
        app: Handles the requests that pass.
        token: What `Authorization: Bearer` or `X-Api-Key` must hold. None: no token is needed.
        bound_to: The addresses that the server listens on, and names that it is reached by.
        origins: Further allowed origins, such as `https://app.example`.
        public: Paths that need no token. Host and Origin are checked there as well.
        max_body_bytes: Answers 413 to a longer body, and 411 to one of unknown length.
    """

    host_refused = "This server does not answer to that Host."
    origin_refused = "Pages of another origin may not use this server."
    token_refused = "Send the server's token: Authorization: Bearer TOKEN."

    def __init__(
        self,
        app: App,
        *,
        token: str | None = None,
        bound_to: Collection[str],
        origins: Collection[str] = (),
        public: Collection[str] = (),
        max_body_bytes: int | None = None,
    ) -> None:
        self.app = app
        self._token = token
        self._bound_to = tuple(bound_to)
        self._origins = frozenset(origins)
        self._public = frozenset(public)
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the app, or refuse it."""
        refused = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refused is None:
            await self.pass_on(scope, receive, send)
        elif scope["type"] == "websocket":
            close = {"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": refused[1]}
            await send(close)
        else:
            status, reason, headers = refused
            await answer_json(send, status, self.refusal_body(scope, status, reason), headers)

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the app answer a request that is not refused."""
        await self.app(scope, receive, send)

    def refusal_body(self, scope: Scope, status: int, reason: str) -> dict[str, Any]:
        """Return the JSON that a refused request is answered with."""
        return {"detail": reason}

    def is_token(self, given: str) -> bool:
        """Compare with the token, in constant time."""
        return self._token is None or equals_secret(given, self._token)

    def is_public(self, scope: Scope) -> bool:
        """Say whether a request needs no token."""
        return self._token is None or scope["path"] in self._public

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = scope["headers"]
        hosts, origins = _values(headers, b"host"), _values(headers, b"origin")
        if len(hosts) != 1 or not self._is_own_host(hosts[0]):
            return 421, self.host_refused, {}
        if not all(self._is_allowed_origin(origin, hosts[0]) for origin in origins):
            return 403, self.origin_refused, {}
        if not self.is_public(scope) and not any(map(self.is_token, tokens_in(headers))):
            wrong = ', error="invalid_token"' if _values(headers, b"authorization") else ""
            return 401, self.token_refused, {"www-authenticate": f'Bearer realm="openmanus"{wrong}'}
        return None if self._max_body_bytes is None else _too_long(headers, self._max_body_bytes)

    def _is_own_host(self, host: str) -> bool:
        return any(is_own_host(host, address) for address in self._bound_to)

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            own, page = urlsplit(f"//{host}"), urlsplit(origin)
            known = page.scheme in ("http", "https") and self._is_own_host(page.netloc)
            return known and own.port == page.port
        except ValueError:
            return False


def is_own_host(host: str, bound_to: str) -> bool:
    """Say whether a `Host` header can mean a server that listens on an address.

    One that listens everywhere is reached by any address, but not by any name: a name may be a
    foreign one that somebody made resolve to this machine.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    if bound_to in WILDCARDS:
        return (
            name in LOOPBACK_NAMES
            or name == socket.gethostname().lower()
            or literal_ip(name) is not None
        )
    if is_loopback(bound_to):
        return name in LOOPBACK_NAMES or name == bound_to
    return name == bound_to.lower()


def tokens_in(headers: Headers) -> Iterator[str]:
    """Find what may be the token: clients made for LangGraph send it as an API key."""
    for given in _values(headers, b"authorization"):
        scheme, _, credentials = given.partition(" ")
        if scheme.lower() == "bearer":
            yield credentials.strip()
    yield from map(str.strip, _values(headers, b"x-api-key"))


def equals_secret(given: str, secret: str) -> bool:
    """Compare in constant time, so that a token cannot be guessed letter by letter."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


def _too_long(headers: Headers, limit: int) -> Refusal | None:
    lengths = _values(headers, b"content-length")
    if _values(headers, b"transfer-encoding"):  # it would count more than the length
        return 411, "Say how long the body is: Content-Length.", {}
    if lengths and lengths[0].isdigit() and int(lengths[0]) > limit:
        return 413, f"The body is longer than {limit:,} bytes.", {}
    return None


async def answer_json(
    send: Send, status: int, content: dict[str, Any], headers: dict[str, str]
) -> None:
    """Answer a request instead of the app."""
    body = json.dumps(content).encode()
    all_headers = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    head = [(name.encode(), value.encode()) for name, value in all_headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
