"""Serving an ASGI app: binding the address, choosing the token, shutting down on signals."""

import asyncio
import contextlib
import hmac
import json
import os
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from openmanus_graph.backends.persistence.accounts import MACHINE, User
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service import accounts, oidc
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
    """Refuses requests without a token, and those of pages from other origins.

    The token is the server's own or a named user's; `accounts.current_user` then says whose.

    Answers 421 to a `Host` that is not ours (another name that resolves to this machine), 403 to an
    `Origin` that is not ours, 401 to a missing or wrong token, before WebSockets are accepted, too.

    Args:
        token: As `Authorization: Bearer` or `X-Api-Key`. None: no token is needed.
        bound_to: The addresses that the server listens on, and its names.
        origins: Further allowed origins, such as `https://app.example`.
        public: Paths that need no token. Host and Origin are checked there, too.
        max_body_bytes: Answers 413 to a longer body, and 411 to one of unknown length.
    """

    host_refused = "This server does not answer to that Host."
    origin_refused = "Pages of another origin may not use this server."
    token_refused = "Send the server's token: Authorization: Bearer TOKEN."

    recheck_s = 15.0
    """Seconds after which the token of a request that is still served is checked again."""

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
        self._token, self._bound_to = token, tuple(bound_to)
        self.needs_token = token is not None
        self._origins, self._public = frozenset(origins), frozenset(public)
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        user: User | None = None
        try:
            user = await self._user(scope["headers"])
            refused: Refusal | None = self._refusal(scope, user)
            if refused is None:
                with accounts.acting_as(user or accounts.NOBODY):
                    await self.authorize(scope)
        except accounts.Refused as refusal:
            refused = refusal.status, str(refusal), dict[str, str]()
        if refused is None:
            with accounts.acting_as(user or accounts.NOBODY):
                await self._serve(user, scope, receive, send)
            return
        if scope["type"] == "websocket":
            close = {"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": refused[1]}
            await send(close)
        else:
            status, reason, headers = refused
            await answer_json(send, status, self.refusal_body(scope, status, reason), headers)

    async def authorize(self, scope: Scope) -> None:
        """Raise Refused if the current user may not send this request."""

    async def _serve(self, user: User | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. A named user's ends when the token does: streams last for hours."""
        if user is None or user == MACHINE:
            await self.pass_on(scope, receive, send)
            return
        passing, ended = asyncio.ensure_future(self.pass_on(scope, receive, send)), False
        try:
            while not passing.done() and not ended:
                await asyncio.wait({passing}, timeout=self.recheck_s)
                ended = not passing.done() and await self._user(scope["headers"]) != user
        finally:
            passing.cancel()  # unless it is done
        with contextlib.suppress(*[asyncio.CancelledError] * ended):
            await passing

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    def refusal_body(self, scope: Scope, status: int, reason: str) -> dict[str, Any]:
        return {"detail": reason}

    def is_token(self, given: str) -> bool:
        return self._token is not None and equals_secret(given, self._token)

    def is_public(self, scope: Scope) -> bool:
        return scope["path"] in self._public

    async def _user(self, headers: Headers) -> User | None:
        """Return whose token a request has: the server's own, or a named user's."""
        given = list(tokens_in(headers))
        if not self.needs_token or any(map(self.is_token, given)):
            return MACHINE
        users = [await oidc.user_of(one) for one in given]
        return next(filter(None, users), None)

    def _refusal(self, scope: Scope, user: User | None) -> Refusal | None:
        headers = scope["headers"]
        hosts, origins = _values(headers, b"host"), _values(headers, b"origin")
        if len(hosts) != 1 or not self._is_own_host(hosts[0]):
            return 421, self.host_refused, {}
        if not all(self._is_allowed_origin(one, hosts[0]) for one in origins):
            return 403, self.origin_refused, {}
        if user is None and not self.is_public(scope):
            wrong = ', error="invalid_token"' if _values(headers, b"authorization") else ""
            return 401, self.token_refused, {"www-authenticate": f'Bearer realm="openmanus"{wrong}'}
        if (limit := self._max_body_bytes) is None:
            return None
        lengths = _values(headers, b"content-length")
        if _values(headers, b"transfer-encoding"):  # it would take priority over the length
            return 411, "Send the length of the body: Content-Length.", {}
        if lengths and lengths[0].isdigit() and int(lengths[0]) > limit:
            return 413, f"The body is longer than {limit:,} bytes.", {}
        return None

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
    """Return True if a `Host` header can mean a server that listens on an address.

    A server that listens everywhere is reached by any address, but not by any name: an attacker may
    have made the name resolve to this machine.
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
    """Yield what may be the token: clients made for LangGraph send it as an API key."""
    for given in _values(headers, b"authorization"):
        scheme, _, credentials = given.partition(" ")
        if scheme.lower() == "bearer":
            yield credentials.strip()
    yield from map(str.strip, _values(headers, b"x-api-key"))


def equals_secret(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


async def answer_json(
    send: Send, status: int, content: dict[str, Any], headers: dict[str, str]
) -> None:
    body = json.dumps(content).encode()
    all_headers = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    head = [(name.encode(), value.encode()) for name, value in all_headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


SHUTDOWN_GRACE_S = 2
"""Seconds that open streams get to end at shutdown."""
END_S = 30.0
"""Seconds after a signal in which a server's process ends, whatever hangs in it."""


def bind(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 takes a free one. ConfigError if that is not possible."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"Cannot listen on {host}:{port}: {why}. Choose another --host or --port."
        ) from error


def url_of(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True)
class Token:
    value: str
    generated: bool
    """We made it, so it is shown to the user."""


def choose_token(given: str | None, variable: str) -> Token:
    """Return the token of the option, of the environment, or a new one.

    ConfigError if a header cannot carry it.
    """
    value = given if given is not None else os.environ.get(variable)
    if value is None:
        return Token(secrets.token_urlsafe(24), generated=True)
    if not re.fullmatch(r"[!-~]+", value):
        raise ConfigError(
            "The token is empty or holds blanks or other characters that a header cannot carry."
        )
    return Token(value, generated=False)


def require_token_off_loopback(host: str) -> None:
    """Raise ConfigError if other machines can reach a server without a token."""
    if not is_loopback(host):
        raise ConfigError(
            f"--no-token on {host} would let everybody run tools here. Listen on 127.0.0.1, or "
            "leave --no-token out."
        )


def announce(what: str, url: str, token: Token | None) -> None:
    lines = [f"{what}: {url}"]
    if token is None:
        lines.append("Every program of this machine may use it: there is no token.")
    elif token.generated:
        lines.append(f"Token: {token.value}")
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


async def serve(app: App, listening: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; a second signal ends it without waiting."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            yield  # without handling them: uvicorn would raise them again after its end

    config = uvicorn.Config(
        app,
        http=PROTOCOL,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        server_header=False,
    )
    server = Server(config)

    def end(*_: Any) -> None:
        server.force_exit = server.should_exit
        server.should_exit = True
        end_in_time()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        await server.serve(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_in_time(seconds: float = END_S) -> None:
    """End the process after a time, if it has not ended by then.

    A thread that reads from a disk which does not answer prevents Python from ending.
    """
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


PROTOCOL = f"{__name__}:TimedProtocol"
"""As uvicorn's option `--http` takes it."""
Phase = Literal["head", "body", "complete"]


class TimedProtocol(H11Protocol):
    """One connection. A request that stops halfway is answered with 408, and closed."""

    head_s = 15.0
    """Seconds in which the line and the headers of a request must arrive."""
    window_s = 10.0
    """Seconds over which the rate of a body is measured."""
    least_rate = 500
    """Bytes of a body that must arrive per second while we are ready to read them."""
    stalled_s = 60.0
    """Seconds after which we drop a client that reads nothing of an answer."""

    _phase: Phase = "complete"
    _came = 0
    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._begin("complete")
        self._cancel_unread()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        super().data_received(data)
        self._watch()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_unread_later()

    @override
    def resume_writing(self) -> None:
        self._cancel_unread()
        super().resume_writing()

    def _watch(self) -> None:
        """Note which part of a request comes next, and start its timer."""
        state = self.conn.their_state
        phase: Phase = "complete"
        if not self.transport.is_closing() and self.transport.get_protocol() is self:
            if state is h11.IDLE:
                phase = "head"
            elif state is h11.SEND_BODY:
                phase = "body"
        if phase != self._phase:
            self._begin(phase)

    def _begin(self, phase: Phase) -> None:
        self._phase, self._came = phase, 0
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if phase != "complete":
            seconds = self.head_s if phase == "head" else self.window_s
            self._waiting = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        fast = self.flow.read_paused or self._came >= self.least_rate * self.window_s
        if self._phase == "body" and fast and not self.cycle.response_complete:
            self._begin("body")
        else:
            self._refuse()

    def _refuse(self) -> None:
        answerable = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        if self._phase == "body":
            self.cycle.disconnected = True  # drops what the app answers now
            self.cycle.message_event.set()
        if answerable and (self._came or self._phase == "body"):
            text = f"The {self._phase} of this request came too slowly, or not to its end."
            headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
            answer = [
                h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
                h11.Data(data=text.encode()),
                h11.EndOfMessage(),
            ]
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in answer))
        self._begin("complete")
        self.transport.close()

    def _check_unread_later(self) -> None:
        before = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() < before:
                self._check_unread_later()
            else:
                self.transport.abort()

        self._unread = self.loop.call_later(self.stalled_s, check)

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
