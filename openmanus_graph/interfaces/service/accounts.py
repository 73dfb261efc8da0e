"""Decides what the user of a request may do. All servers, and all their protocols, ask here."""

import asyncio
import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from typing import Literal

from openmanus_graph.backends.persistence.accounts import MACHINE, TOKEN_PREFIX, Accounts, User
from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.settings import SandboxSettings

Action = Literal["read", "write", "administer"]
NOBODY = User("(nobody)", "viewer")
"""The user of a request without a token."""
_served = list[Accounts]()
_user: ContextVar[User] = ContextVar("user", default=MACHINE)


class Refused(Exception):
    """A request is refused, or its run failed. The text tells the user why.

    `param` is the wrong field of the request, and `code` one of OpenAI's codes.
    """

    def __init__(
        self, status: int, sentence: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.param, self.code = status, param, code


def current_user() -> User:
    """Return the user of the request; outside of one, the machine's own."""
    return _user.get()


@contextlib.contextmanager
def acting_as(user: User) -> Generator[None]:
    token = _user.set(user)
    try:
        yield
    finally:
        _user.reset(token)


def accounts() -> Accounts:
    """Return the tables of users: the server's, or those that the settings name. Blocks."""
    return _served[-1] if _served else Accounts(open_database(database_url()))


@contextlib.contextmanager
def serving_accounts(database: Database) -> Generator[None]:
    """Keep to the database of this process's server: its requests do not read the settings."""
    _served.append(Accounts(database))
    try:
        yield
    finally:
        _served.pop()


async def user_of(token: str) -> User | None:
    """Return the named user with a token."""
    if not token.startswith(TOKEN_PREFIX):
        return None
    return await asyncio.to_thread(lambda: accounts().user_of(token))


async def authorize(action: Action, thread: str | None = None) -> None:
    """Check that the current user may do something, on a thread or at all.

    Refused (403): the role does not allow it. Refused (404): the thread is another user's, which is
    answered as if it did not exist. A thread that does not exist is left to the caller.
    """
    user = current_user()
    if action == "administer" and user.role != "admin":
        raise Refused(403, "Only an admin may do this.")
    if thread is not None:
        owner = await asyncio.to_thread(lambda: accounts().owner_of(thread))
        if owner not in (None, user.name):
            raise Refused(404, f"There is no thread {thread}.")
    if action != "read" and user.role == "viewer":
        raise Refused(403, "A viewer can read, but not start, change or delete anything.")


def require_separation(sandbox: SandboxSettings) -> None:
    """Raise ConfigError if programs of the current user could reach other users' files. Blocks.

    The machine's owner can accept that with the sandbox mode `none`.
    """
    from openmanus_graph.backends.sandbox.choose import backend_name  # lists of threads need none

    if current_user().name and sandbox.mode == "auto" and backend_name(sandbox) == "none":
        raise ConfigError(
            "No sandbox works on this server, so programs of its users could read each other's "
            "files. Ask its owner to run `openmanus doctor --fix`, or to accept that by "
            'mode = "none" in [sandbox] of config.toml.'
        )


async def claim(thread: str) -> None:
    """Make the current user the owner of a thread that is about to be created.

    Refused (404): it is another user's. Refused (403): the user is a viewer.
    """
    await authorize("write")
    name = current_user().name
    if not await asyncio.to_thread(lambda: accounts().claim(thread, name)):
        raise Refused(404, f"There is no thread {thread}.")
