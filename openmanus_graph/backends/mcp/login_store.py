"""Keeps a server's login in a file that only the person can read.

A login belongs to the server's whole address and the client it was made with: another server,
or another client, never gets its tokens.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import BaseModel

from openmanus_graph.config.home_files import config_home, write_file
from openmanus_graph.config.secret_values import MCP_LOGINS
from openmanus_graph.state.mcp_server import MCPServer

LOCK_POLL_S = 0.05


class Login(BaseModel):
    """What is known of one login."""

    url: str
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None
    revocation_endpoint: str | None = None
    wanted_scope: str | None = None
    """What the server has asked for since, which the next login asks for too."""


class LoginStore:
    """The file of one server's login; the SDK reads and writes it as its token storage."""

    def __init__(self, server: MCPServer) -> None:
        """Name the file; nothing is read yet."""
        self._url = server.url or ""
        key = json.dumps([self._url, server.oauth.client_id, server.oauth.grant])
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        self.path = config_home() / MCP_LOGINS / f"{urlsplit(self._url).hostname}-{digest}.json"

    def read(self) -> Login:
        """Return the login; an empty one if there is none, or the file is broken. Blocks."""
        try:
            return Login.model_validate_json(self.path.read_text("utf-8"))
        except (OSError, ValueError):  # ValidationError and UnicodeDecodeError among them
            return Login(url=self._url)

    def update(self, **changes: Any) -> None:
        """Change fields of the login. Blocks. ConfigError if the file cannot be written."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        changed = self.read().model_copy(update=changes)
        write_file(self.path, changed.model_dump_json(exclude_none=True) + "\n", mode=0o600)

    def forget(self) -> None:
        """Delete the login; the caller holds its lock. Blocks."""
        self.path.unlink(missing_ok=True)
        self._lock_path.unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Keep other processes and threads from changing the login at the same time.

        Authorization servers withdraw a login whose refresh token is used twice.
        """
        await asyncio.to_thread(self.path.parent.mkdir, 0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            descriptor = await asyncio.to_thread(os.open, self._lock_path, flags, 0o600)
            try:
                # A thread that waits could not be cancelled, and other processes set no event.
                while not try_lock(descriptor):  # noqa: ASYNC110  # see above
                    await asyncio.sleep(LOCK_POLL_S)
                if await asyncio.to_thread(self._is_lock, descriptor):
                    yield
                    return
            finally:
                os.close(descriptor)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return (await asyncio.to_thread(self.read)).tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        await asyncio.to_thread(self.update, tokens=tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registered client."""
        return (await asyncio.to_thread(self.read)).client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a registered client."""
        await asyncio.to_thread(self.update, client=client_info)

    def _is_lock(self, descriptor: int) -> bool:
        """Return whether an open file is the lock still: a logout deletes it."""
        try:
            return os.path.samestat(os.fstat(descriptor), self._lock_path.stat())
        except FileNotFoundError:
            return False

    @property
    def _lock_path(self) -> Path:
        return self.path.with_suffix(".lock")


class Uncommitted(LoginStore):
    """The storage of a login that is under way: one that is not completed changes nothing."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep nothing."""

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep nothing."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file; return whether nobody else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
