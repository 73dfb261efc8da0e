"""Serving an ASGI app: binding the address, choosing the token, shutting down on signals."""

import contextlib
import os
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.guard import App
from openmanus_graph.state.addresses import is_loopback

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
    """Return the address under which a client on this machine reaches a server."""
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True)
class Token:
    """The bearer token that clients must send."""

    value: str
    generated: bool
    """Made by us, so it is shown to the person; a token of the person's own is not."""


def choose_token(given: str | None, variable: str) -> Token:
    """Return the token: the option's, the environment's, or a new one.

    Args:
        given: The option's value.
        variable: Of the environment.

    Raises:
        ConfigError: The token cannot be sent.
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
    """Raise ConfigError for a server without a token that other machines can reach."""
    if not is_loopback(host):
        raise ConfigError(
            f"--no-token on {host} would let everybody run tools here. Listen on 127.0.0.1, or "
            "leave --no-token out."
        )


def announce(what: str, url: str, token: Token | None) -> None:
    """Print the server's address on stderr, and the token if it is new."""
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

    from openmanus_graph.interfaces.service.request_limits import PROTOCOL

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            """Do not handle signals: uvicorn would raise them again after it has ended."""
            yield

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
    """End the process in a while, if it has not ended by then.

    A thread that reads from a disk which does not answer keeps Python from ending.
    """
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
