"""A PostgreSQL server of the tests' own: on a socket in a temporary folder, by no root user."""

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

from openmanus_graph.interfaces.cli.doctor import install_commands
from tests.support.limits import BACKSTOP_S

_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
_USER = "postgres"
"""Whom Debian's package makes."""
_ALWAYS = (
    "listen_addresses=", "max_connections=200", "shared_buffers=32MB", "autovacuum=off",
    "log_min_messages=fatal", "max_wal_size=256MB",
)  # fmt: skip


@dataclass
class Postgres:
    """A server and its databases."""

    folder: Path
    settings: Sequence[str]
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @classmethod
    @contextlib.contextmanager
    def running(cls, *settings: str) -> "Generator[Postgres]":
        """Run a server; with settings of its own it keeps what it writes over a crash, too."""
        folder = Path(tempfile.mkdtemp(prefix="pg"))  # a socket's path may not be long
        server = cls(folder, [*_ALWAYS, *(settings or _FAST)])
        try:
            if os.geteuid() == 0:
                user = pwd.getpwnam(_USER)
                os.chown(folder, user.pw_uid, user.pw_gid)
            server._call("initdb", "--username=postgres", "--auth=trust", "--no-sync")
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        socket = f"unix_socket_directories={self.folder}"
        options = " ".join(f"-c {setting}" for setting in (*self.settings, socket))
        log = str(self.folder / "log")
        self._call("pg_ctl", "start", "--wait", "--silent", f"--options={options}", f"--log={log}")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server, by default as a crash does."""
        with contextlib.suppress(subprocess.CalledProcessError):  # it does not run
            self._call("pg_ctl", "stop", "--wait", "--silent", f"--mode={mode}")

    def url(self, database: str = "postgres", user: str = "postgres", options: str = "") -> str:
        """Return the address of a database."""
        rest = f"&{options}" if options else ""
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder), safe='')}{rest}"

    def database(self) -> str:
        """Return the address of a new place for tables: a schema costs less than a database."""
        name = f"place{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {name}")
        return self.url(options=f"options=-csearch_path%3D{name}")

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Execute statements as the server's owner."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def cut_connections(self) -> None:
        """End all connections but the one that does it, and wait for that."""
        self.execute(
            f"SELECT pg_terminate_backend(pid, {BACKSTOP_S * 1000:.0f}) FROM pg_stat_activity"
            " WHERE pid != pg_backend_pid() AND backend_type = 'client backend'"
        )

    def _call(self, program: str, *arguments: str) -> None:
        command = [_program(program), f"--pgdata={self.folder / 'data'}", *arguments]
        if os.geteuid() == 0:  # which a server refuses to run as
            user = (f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups")
            command = ["setpriv", *user, *command]
        subprocess.run(
            command, check=True, timeout=BACKSTOP_S, cwd=self.folder,
            stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def rows_of(url: str) -> str:
    """Return all rows of all tables but that of leases."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            " AND tablename != 'leases' ORDER BY 1"
        ).fetchall()
        tables = {name: f"SELECT * FROM {name}".encode() for (name,) in found}
        return repr({
            name: sorted(map(repr, connection.execute(all_rows).fetchall()))
            for name, all_rows in tables.items()
        })  # fmt: skip


def lease_is_over(url: str) -> bool:
    """Say whether the time of the one lease is over."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT expires < clock_timestamp() FROM leases").fetchone()
    return found == (True,)


def install_postgres() -> None:
    """Install the server by the system's package tools, if it is not there."""
    for command in install_commands("postgresql") if _found("initdb") is None else ():
        subprocess.run(command, shell=True, check=False, stdin=subprocess.DEVNULL)


def _found(name: str) -> str | None:
    """Return a program of the server; Debian does not put them on the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name)


def _program(name: str) -> str:
    found = _found(name)
    assert found, "install PostgreSQL: apt-get install -y postgresql"
    return found
