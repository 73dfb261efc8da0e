"""Serving an ASGI app: binding the address, choosing the token, shutting down on signals."""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.guard import App
from openmanus_graph.state.addresses import is_loopback

SHUTDOWN_GRACE_S = 2
"""Seconds that open streams get to end at shutdown."""


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

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            """Do not handle signals: uvicorn would raise them again after it has ended."""
            yield

    config = uvicorn.Config(
        app,
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

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        await server.serve(sockets=[listening])
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
