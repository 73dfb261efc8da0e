"""Explains why a server cannot be used, in a sentence for the user and the model."""

import asyncio
import shlex
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx2
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from openmanus_graph.backends.mcp.oauth import wanted_scope, wants_login
from openmanus_graph.backends.mcp.transports import Client, TooLongError
from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.config.mcp import host_name
from openmanus_graph.state.addresses import without_secrets
from openmanus_graph.state.context import MCPServer
from openmanus_graph.state.validation import validation_problems

_STATUS_HINTS = {
    400: "It did not understand the request; check the url and the type.",
    401: "It wants a valid key: check `headers`.",
    403: "It does not let this key in: check `headers`.",
    404: "There is nothing at that address; check the url.",
    405: "That address takes no messages; check the url and the type.",
    406: "Check the url and the type.",
}
STDERR_LINES, PROBLEMS = 12, 3
_LASTING = frozenset({401, 403, 404, 405})
_NO_SESSION = frozenset({400, 404})
"""Status codes that servers send for an unknown session id."""
ENDED = "ended unexpectedly"
UNSURE = "The call may have taken effect in part or in full: look before you repeat it."
_LOST = ("Connection closed", "SSE stream", "Session terminated")
_PLACEHOLDERS = (*_LOST, "Server returned an error response")
"""Texts of the SDK's errors when the server sent none."""


class ServerError(Exception):
    """A server cannot be used; the text follows the server's name in a sentence."""

    def __init__(self, sentence: str, *, lasting: bool, status: int | None = None) -> None:
        super().__init__(sentence)
        self.lasting = lasting
        """Whether retrying is useless."""
        self.status = status  # of HTTP


@dataclass(eq=False)
class Diagnostics:
    """Collects what explains a failure of one connection."""

    server: MCPServer
    stderr_lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=STDERR_LINES))
    """The newest."""
    client: Client | None = None
    noise: str = ""
    """The first output of the server that is not a valid message."""

    def to_server_error(self, error: BaseException) -> ServerError:
        for cause in _causes(error):
            if isinstance(cause, ServerError):
                return cause
        command = self.server.command
        for cause in _causes(error):
            network = isinstance(cause, TimeoutError | ConnectionError)
            if command is not None and isinstance(cause, OSError) and not network:
                return _start_error(command, self.server.cwd, cause)
        if command is not None:
            return ServerError(redact_secrets(self._process_problem(error)), lasting=False)
        return self._address_error(error)

    def refusal(self, error: MCPError) -> tuple[str, str] | None:
        """Return the HTTP error behind the SDK's error of a call; None if there was none.

        The first text follows the server's name in a sentence. The second is why a new connection
        is needed, or empty.
        """
        fault = None if self.client is None else self.client.last_failure
        if not isinstance(fault, httpx2.Response):
            return None
        status, words = fault.status_code, str(error).rstrip(".")
        message = "" if words.startswith(_PLACEHOLDERS) else f" ({redact_secrets(words)})"
        text = f"answered {status} {fault.reason_phrase}{message}."
        if status >= 500:
            return f"{text} {UNSURE}", ""
        if status in _NO_SESSION:
            again = "Nothing was done. A new session is begun: call again."
            return f"{text} {again}", "has forgotten the session"
        hint = self._hint(fault) or "Try again later."
        narrow = wanted_scope(fault) is not None  # other tools may need less
        over = "does not accept its key any more" if status in _LASTING and not narrow else ""
        return f"{text} Nothing was done. {hint}", over

    def _hint(self, response: httpx2.Response) -> str:
        """Return what to do about an HTTP error; empty if unknown."""
        by_url = self.server.name == host_name(self.server.url or "")
        name = self.server.url if by_url else self.server.name
        command = f"run `openmanus mcp login {shlex.quote(name or '')}`"
        problem = "" if self.client is None else self.client.login_problem
        if problem and self.server.oauth.grant == "client_credentials":
            return f"Its login failed: {problem}. Check `oauth`."
        if problem:
            again = "Try again later" if response.status_code >= 500 else command.capitalize()
            return f"Its login failed: {problem}. {again}."
        if wants_login(response) and not self.server.headers:
            return f"It wants a login: {command}."
        scope = wanted_scope(response)
        if scope is not None:
            return f"The login needs another scope{f' ({scope})' if scope else ''}: {command}."
        return _STATUS_HINTS.get(response.status_code, "")

    def hints(self) -> str:
        """Return the server's invalid output and the last lines of its stderr."""
        noise = f" It wrote an invalid message ({self.noise})." if self.noise else ""
        message = " | ".join(list(self.stderr_lines)[-4:])
        return f"{noise} It said: {message}" if message else noise

    def _process_problem(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            limit = self.server.start_timeout_s
            return f"did not answer within {limit:g} s (start_timeout_s).{self.hints()}"
        ended = (EOFError, BrokenPipeError, ConnectionResetError)
        if not any(is_loss(cause) or isinstance(cause, ended) for cause in _causes(error)):
            return f"failed: {_first_line(error)}.{self.hints()}"
        return f"ended at once.{self.hints() or ' It said nothing; run its command to see why.'}"

    def _address_error(self, error: BaseException) -> ServerError:
        fault = None if self.client is None else self.client.last_failure
        where = without_secrets(self.server.url or "")
        if isinstance(fault, httpx2.Response):
            status = fault.status_code
            hint = self._hint(fault)
            text = f"at {where} answered {status} {fault.reason_phrase}. {hint}".rstrip()
            return ServerError(text, lasting=status in _LASTING, status=status)
        if isinstance(fault, TooLongError):
            return ServerError(f"at {where} {fault}, which is too long.", lasting=True)
        if isinstance(fault, httpx2.TransportError):
            text = f"at {where} cannot be reached: {_first_line(fault)}. {_network_hint(fault)}"
            return ServerError(redact_secrets(text), lasting="SSL" in str(fault))
        if isinstance(error, TimeoutError):
            limit = self.server.start_timeout_s
            text = f"at {where} did not answer within {limit:g} s (start_timeout_s)"
            return ServerError(text, lasting=False)
        return ServerError(
            redact_secrets(f"at {where} failed: {_first_line(error)}"), lasting=False
        )


def _network_hint(fault: httpx2.TransportError) -> str:
    if "CERTIFICATE" in str(fault):
        return "Its certificate is not trusted here; SSL_CERT_FILE may name one that is."
    if "SSL" in str(fault):
        return "Perhaps it speaks http, not https."
    return "Check the url, and that the server runs."


def is_loss(error: BaseException) -> bool:
    """Return True if this is the SDK's error for a lost connection, by its text.

    Servers use the same error code for their own errors.
    """
    return isinstance(error, MCPError) and str(error).startswith(_LOST)


def _start_error(command: str, cwd: str | None, error: BaseException) -> ServerError:
    if isinstance(error, FileNotFoundError):
        wrong = "The folder in `cwd` or the command" if cwd else "The command"
        text = f"cannot be started. {wrong} does not exist: {command}. Install or correct it."
    else:
        text = f"cannot be started: {command}: {getattr(error, 'strerror', None) or error}."
    return ServerError(text, lasting=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the errors that it groups, and their causes."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions  # pyright: ignore[reportUnknownArgumentType]  # of any kind
        waiting += [one.__cause__, one.__context__]


def _first_line(error: BaseException) -> str:
    plain = next(
        (
            cause
            for cause in _causes(error)
            if not isinstance(cause, BaseExceptionGroup | asyncio.CancelledError)
        ),
        error,
    )
    if isinstance(plain, ValidationError):
        wrong = "; ".join(validation_problems(plain)[:PROBLEMS])
        return f"its answer does not follow the protocol ({wrong})"
    return (str(plain).strip().partition("\n")[0] or type(plain).__name__).rstrip(".")
