"""The server's token, which every request needs, and tickets, which allow one file for a time."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from openmanus_graph.config.homes import make_folder, openmanus_home
from openmanus_graph.config.secret_values import SERVER_TOKEN_FILE
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.http import equals_secret

TOKEN_VARIABLE = "OPENMANUS_TOKEN"
MIN_CHARS = 16
VALID_S = 12 * 3600
"""Seconds for which a ticket is valid."""
_SIGNATURE_BYTES = 32


@lru_cache(maxsize=1)
def server_token() -> str:
    """Return the token of the environment, of the home folder, or a new one. Blocks.

    ConfigError if it is too short to be secret, or its file cannot be written.
    """
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return _checked(given, TOKEN_VARIABLE)
    path = token_file()
    try:
        make_folder(path.parent)
        _write_new(path)
        path.chmod(0o600)  # a copied home may have lost it
        return _checked(path.read_text("ascii").strip(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The server's token cannot be kept in {path}: {error}. "
            f"Set OPENMANUS_HOME to another folder, or {TOKEN_VARIABLE}."
        ) from error


def token_file() -> Path:
    return openmanus_home() / SERVER_TOKEN_FILE


def token_source() -> str:
    in_environment = os.environ.get(TOKEN_VARIABLE, "").strip()
    return TOKEN_VARIABLE if in_environment else str(token_file())


def is_token(given: str) -> bool:
    return equals_secret(given, server_token())


def _write_new(path: Path) -> None:
    """Write a new token unless there is one. Another server may do the same at this moment."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        try:
            os.link(draft, path)
        except FileExistsError:
            return  # the other server's token is used
        except OSError:
            draft.replace(path)  # a file system without hard links
    finally:
        draft.unlink(missing_ok=True)


def _checked(token: str, source: str) -> str:
    if len(token) < MIN_CHARS or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"The token in {source} is not a secret: use {MIN_CHARS} printable characters or more."
        )
    return token


class Ticket(NamedTuple):
    """The thread of a ticket's file, and the file's digest if the user allowed its scripts."""

    thread: str
    scripts: str | None


def write_ticket(
    thread: str, path: str, scripts: str | None = None, *, now: float | None = None
) -> str:
    """Return a ticket for one file of one thread. `scripts` as in `Ticket`."""
    until = int((time.time() if now is None else now) + VALID_S)
    claim = json.dumps([thread, until, scripts]).encode()
    return base64.urlsafe_b64encode(_signature(claim, path) + claim).decode().rstrip("=")


def read_ticket(ticket: str, path: str, *, now: float | None = None) -> Ticket | None:
    """Return what a ticket allows; None if it is not valid for this path or time."""
    try:
        raw = base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4))
        signature, claim = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
    except ValueError:
        return None
    if not hmac.compare_digest(signature, _signature(claim, path)):
        return None
    thread, until, scripts = json.loads(claim)
    return Ticket(thread, scripts) if until > (time.time() if now is None else now) else None


def _signature(claim: bytes, path: str) -> bytes:
    given = claim + b"\0" + path.encode("utf-8", "surrogatepass")
    key = hashlib.sha256(f"ticket {server_token()}".encode()).digest()  # changes with the token
    return hmac.new(key, given, hashlib.sha256).digest()
