"""Users of a server, their tokens, the owners of threads, and links that share a thread.

Tokens are random, so a plain SHA-256 of each is stored. All methods block; call them off the event
loop.
"""

import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from typing import Literal, get_args

from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.errors import ConfigError

Role = Literal["admin", "user", "viewer"]
ROLES: tuple[Role, ...] = get_args(Role)
REMOVED: Literal["removed"] = "removed"
"""Role of a removed user: the name stays taken, so that nobody else gets its threads."""
TOKEN_PREFIX = "om_"
MACHINE_IDENTITY = "owner"
"""The machine's own user in LangGraph's server; no user can have this name."""
_NAME = re.compile(rf"(?!{MACHINE_IDENTITY}$)[a-z0-9][a-z0-9._@+-]{{0,63}}")


@dataclass(frozen=True)
class User:
    name: str
    role: Role

    @property
    def identity(self) -> str:
        """The name that servers of LangGraph's API know."""
        return self.name or MACHINE_IDENTITY


MACHINE = User("", "admin")
"""Whoever uses the terminal, or has the server's own token."""


@dataclass(frozen=True)
class Account:
    """A user as `openmanus users list` shows it."""

    name: str
    role: str
    subject: str
    """The user's id at the OIDC issuer; empty for users with tokens only."""
    created: str
    tokens: int
    """How many are valid."""


class Accounts:
    def __init__(self, database: Database) -> None:
        self._run = database.run

    def all(self) -> list[Account]:
        """Return the users by name, removed ones included."""
        rows = self._run(
            "SELECT name, role, subject, created, (SELECT count(*) FROM tokens"
            " WHERE owner = name AND (expires IS NULL OR expires > ?)) FROM users ORDER BY name",
            (int(time.time()),),
        )
        return [Account(row[0], row[1], row[2], str(row[3]), int(row[4])) for row in rows]

    def add(self, name: str, role: Role, subject: str = "") -> User:
        """Add a user, or one who was removed again. ConfigError: the name is taken or invalid."""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name[:64]!r} cannot be a user's name. Use up to 64 lowercase letters, digits and"
                f" ._@+-, beginning with a letter or digit, but not {MACHINE_IDENTITY!r}."
            )
        others = "SELECT 1 FROM users WHERE subject = ? AND subject <> '' AND name <> ?"
        added = not self._run(others, (subject, name)) and self._run(
            "INSERT INTO users (name, role, subject) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
            " SET role = excluded.role WHERE users.role = ? AND users.subject = excluded.subject"
            " RETURNING name",
            (name, role, subject, REMOVED),
        )
        if not added:
            taken = f"There is a user {name} already, or one with this subject."
            raise ConfigError(f"{taken} See: openmanus users list")
        return User(name, role)

    def change_role(self, name: str, role: Role | Literal["removed"]) -> None:
        """Give a user another role. ConfigError if there is no such user."""
        changed = self._run(
            "UPDATE users SET role = ? WHERE name = ? AND role <> ? RETURNING name",
            (role, name, REMOVED),
        )
        if not changed:
            raise _unknown(name)

    def remove(self, name: str) -> None:
        """Make all tokens of a user invalid. The threads stay. ConfigError if there is none."""
        self.change_role(name, REMOVED)
        self._run("DELETE FROM tokens WHERE owner = ?", (name,))

    def new_token(self, name: str, *, valid_s: int | None = None, alone: bool = False) -> str:
        """Return a new token of a user, which is stored as a digest only.

        `valid_s` are the seconds until it expires; None: never. `alone` makes the user's earlier
        tokens invalid. ConfigError if there is no such user.
        """
        if self.find(name) is None:
            raise _unknown(name)
        now = int(time.time())
        if alone:
            self._run("DELETE FROM tokens WHERE owner = ?", (name,))
        self._run("DELETE FROM tokens WHERE expires <= ?", (now,))
        token = f"{TOKEN_PREFIX}{secrets.token_urlsafe(32)}"
        self._run(
            "INSERT INTO tokens (digest, owner, expires) VALUES (?, ?, ?)",
            (_digest(token), name, None if valid_s is None else now + valid_s),
        )
        return token

    def forget_token(self, token: str) -> None:
        """Make a token invalid if it expires; others are of programs, and stay."""
        forget = "DELETE FROM tokens WHERE digest = ? AND expires IS NOT NULL"
        self._run(forget, (_digest(token),))

    def user_of(self, token: str) -> User | None:
        """Return the user of a valid token."""
        rows = self._run(
            "SELECT name, role FROM tokens JOIN users ON name = owner"
            " WHERE digest = ? AND (expires IS NULL OR expires > ?)",
            (_digest(token), int(time.time())),
        )
        return _user(*rows[0]) if rows else None

    def find(self, name: str) -> User | None:
        rows = self._run("SELECT name, role FROM users WHERE name = ?", (name,))
        return _user(*rows[0]) if rows else None

    def of_subject(self, subject: str, wanted: str, role: Role | None) -> User | None:
        """Return the user with this id at the issuer. A new one is added if a role is given.

        The new name is like `wanted`, and never another user's. None: the user was removed, or may
        not be added.
        """
        fit = re.sub(r"[^a-z0-9._@+-]+", "-", wanted.lower()).lstrip("._@+-")[:50]
        name = fit if _NAME.fullmatch(fit) else "user"
        for new in ("", name, f"{name}-{_digest(subject)[:8]}"):
            if new and role:
                insert = "INSERT INTO users (name, role, subject) VALUES (?, ?, ?)"
                self._run(f"{insert} ON CONFLICT DO NOTHING", (new, role, subject))
            rows = self._run("SELECT name, role FROM users WHERE subject = ?", (subject,))
            if rows:
                return _user(*rows[0])
        return None

    def is_removed(self, name: str) -> bool:
        return bool(self._run("SELECT 1 FROM users WHERE name = ? AND role = ?", (name, REMOVED)))

    def is_of_removed(self, thread: str) -> bool:
        return self.is_removed(self.owner_of(thread) or "")

    def any(self) -> bool:
        return bool(self._run("SELECT 1 FROM users LIMIT 1"))

    def owner_of(self, thread: str) -> str | None:
        """Return the name of a thread's owner, "" for the machine's; None: there is no thread."""
        rows = self._run(
            "SELECT owner, 0 FROM owners WHERE thread = ? UNION SELECT '', 1 FROM threads"
            " WHERE id = ? UNION SELECT '', 1 FROM file_locations WHERE thread = ?"
            " ORDER BY 2 LIMIT 1",
            (thread,) * 3,
        )
        return str(rows[0][0]) if rows else None

    def owners(self) -> dict[str, str]:
        """Return the owners by thread; the others are the machine's."""
        return dict(self._run("SELECT thread, owner FROM owners"))

    def claim(self, thread: str, name: str) -> bool:
        """Make a user the owner of a new thread. False: somebody else owns it."""
        if self.owner_of(thread) is None:
            self._run(
                "INSERT INTO owners (thread, owner) VALUES (?, ?) ON CONFLICT (thread) DO NOTHING",
                (thread, name),
            )
        return self.owner_of(thread) == name

    def share(self, thread: str) -> str:
        """Return a new secret by which anyone can read the thread until it is unshared."""
        secret = secrets.token_urlsafe(24)
        insert = "INSERT INTO shares (digest, thread) VALUES (?, ?)"
        self._run(insert, (_digest(secret), thread))
        return secret

    def unshare(self, thread: str) -> int:
        """Make all links to a thread invalid. Returns how many there were."""
        return len(self._run("DELETE FROM shares WHERE thread = ? RETURNING digest", (thread,)))

    def shares(self, thread: str) -> int:
        return int(self._run("SELECT count(*) FROM shares WHERE thread = ?", (thread,))[0][0])

    def shared_thread(self, secret: str) -> str | None:
        """Return the thread of a link, unless the thread's owner was removed."""
        rows = self._run("SELECT thread FROM shares WHERE digest = ?", (_digest(secret),))
        return str(rows[0][0]) if rows and not self.is_of_removed(rows[0][0]) else None


def _user(name: str, role: str) -> User | None:
    return User(name, role) if role in ROLES else None  # not of a removed one


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"There is no user {name!r}. See: openmanus users list")
