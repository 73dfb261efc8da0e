"""Who may talk to a server on this machine: token, Host and Origin, before anything else runs.

A server on the loopback interface is within reach of every page in the person's browser. A page
cannot forge `Host` or `Origin`, and does not know the token.
"""

import hmac
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Refusal = tuple[int, str, dict[str, str]]
"""Status, reason and headers."""
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # recognised, not bound to
_POLICY_VIOLATION = 1008


class Guard:
    """ASGI middleware that refuses requests of strangers and of foreign pages.

    Answers 421 to a `Host` that is not ours (a foreign name that resolves to this machine), 403
    to an `Origin` that is not ours, 401 to a missing or wrong bearer token. WebSockets are refused
    likewise, before they are accepted.

    Args:
        app: Who answers the others.
        token: What `Authorization: Bearer` must hold. None lets everybody in.
        bound_to: The address that the server listens on; says which hosts are ours.
        origins: Further origins that may come, `https://app.example` say.
        public: Paths that need no token. Host and Origin are checked there as well.
        max_body_bytes: Answers 413 to a longer body, and 411 to one of unknown length.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str | None,
        bound_to: str,
        origins: Collection[str] = (),
        public: Collection[str] = (),
        max_body_bytes: int | None = None,
    ) -> None:
        self.app = app
        self._token = None if token is None else token.encode()
        self._bound_to = bound_to
        self._origins = frozenset(origins)
        self._public = frozenset(public)
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        refused = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refused is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            await _answer(send, *refused)

    def _refusal(self, scope: Scope) -> Refusal | None:
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        if len(hosts) != 1 or not is_our_host(hosts[0], self._bound_to):
            return 421, "This server does not answer to that Host.", {}
        if origins and not all(self._is_our_origin(origin, hosts[0]) for origin in origins):
            return 403, "Pages of another origin may not use this server.", {}
        if not (self._token is None or scope["path"] in self._public):
            refused = self._stranger(scope)
            if refused is not None:
                return refused
        return None if self._max_body_bytes is None else _too_long(scope, self._max_body_bytes)

    def _stranger(self, scope: Scope) -> Refusal | None:
        given = _values(scope, b"authorization")
        if len(given) == 1 and self._is_token(given[0]):
            return None
        wrong = ', error="invalid_token"' if given else ""
        challenge = {"www-authenticate": f'Bearer realm="openmanus"{wrong}'}
        return 401, "Send the server's token: Authorization: Bearer TOKEN.", challenge

    def _is_token(self, header: str) -> bool:
        scheme, _, given = header.partition(" ")
        # In constant time, so that the token cannot be guessed letter by letter.
        same = hmac.compare_digest(given.strip().encode(), self._token or b"")
        return scheme.lower() == "bearer" and same

    def _is_our_origin(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            own, page = urlsplit(f"//{host}"), urlsplit(origin)
            return is_our_host(page.netloc, self._bound_to) and own.port == page.port
        except ValueError:
            return False


def is_our_host(host: str, bound_to: str) -> bool:
    """Say whether a `Host` header can mean a server that listens on an address.

    One that listens everywhere is reached by any address, but not by any name: a name may be a
    foreign one that somebody made resolve to this machine.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    if bound_to in WILDCARDS:
        return name in LOOPBACK or name == socket.gethostname().lower() or _is_address(name)
    if is_loopback(bound_to):
        return name in LOOPBACK or name == bound_to
    return name == bound_to.lower()


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches a server that listens on an address."""
    return host in LOOPBACK or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _too_long(scope: Scope, limit: int) -> Refusal | None:
    lengths = _values(scope, b"content-length")
    if _values(scope, b"transfer-encoding") and not lengths:
        return 411, "Say how long the body is: Content-Length.", {}
    if lengths and lengths[0].isdigit() and int(lengths[0]) > limit:
        return 413, f"The body is longer than {limit:,} bytes.", {}
    return None


async def _answer(send: Send, status: int, reason: str, headers: dict[str, str]) -> None:
    body = json.dumps({"error": reason}).encode()
    told = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    head = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
