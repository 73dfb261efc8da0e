"""One SQLite file, shared by the threads of a process and by several processes."""

import atexit
import contextlib
import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from openmanus_graph.persistence.worker import Worker

DATABASE = "openmanus.db"
"""Threads and ledger; checkpoints lie in a file of their own (`checkpoints.py`)."""


LARGEST_LOG = 1_000_000
"""Bytes that a write-ahead log keeps on disk when it is empty."""
CACHE_KB = 512
"""Of pages in memory, for each connection: a run writes, and hardly reads."""
PATIENCE_S = 10.0
"""Seconds to wait while another process writes; ours write for milliseconds."""


def connect(
    path: Path, isolation_level: Literal["DEFERRED"] | None = "DEFERRED"
) -> sqlite3.Connection:
    """Open a file for several threads, which take turns, and several processes. Blocks."""
    connection = sqlite3.connect(
        path, timeout=PATIENCE_S, isolation_level=isolation_level, check_same_thread=False
    )
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    # Two connections that switch a new file to WAL at once fail without waiting.
    try:
        with FileLock(path.with_suffix(".lock"), timeout=PATIENCE_S):
            connection.execute("PRAGMA journal_mode=WAL")
    except Timeout as error:
        raise sqlite3.OperationalError("database is locked") from error
    # Safe against a killed process; a full sync of each write would only add power failures.
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA journal_size_limit={LARGEST_LOG}")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KB}")


def check_place(path: Path, inode: int) -> None:
    """Raise sqlite3.OperationalError when the file is no longer at its place.

    SQLite would go on writing into a file that was removed, where nobody finds it again.
    """
    try:
        found = path.stat().st_ino
    except OSError as error:
        raise sqlite3.OperationalError(f"{path} is gone: {error.strerror}") from error
    if found != inode:
        raise sqlite3.OperationalError(f"{path} is another file than before")


def read_json(text: str) -> Any:
    """Read what we wrote. sqlite3.DatabaseError if it is damaged."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise sqlite3.DatabaseError(f"a row cannot be read ({error})") from error


class Database:
    """Statements of any thread, one at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        # Autocommit: one statement is one transaction, written when the call returns.
        self._db = connect(path, isolation_level=None)
        self._path, self._inode = path, path.stat().st_ino
        self._worker = Worker(path.name)

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows. Blocks. sqlite3.Error if that fails."""
        check_place(self._path, self._inode)
        with self._lock, contextlib.closing(self._db.execute(statement, values)) as cursor:
            return cursor.fetchall()

    async def arun(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Do as `run`, off the event loop. It is done even if the caller is cancelled."""
        return await self._worker.do(self.run, statement, values)

    def close(self) -> None:
        """Close the file. Blocks."""
        self._worker.close()
        with self._lock:  # closing under a running statement would crash the interpreter
            self._db.close()


_open: dict[Path, Database] = {}
_opening = threading.Lock()


def open_database(home: Path) -> Database:
    """Return this process's connection to the database of a home folder. Blocks."""
    with _opening:
        if home not in _open:
            _open[home] = Database(home / DATABASE)
        return _open[home]


@atexit.register
def close_databases() -> None:
    """Close this process's connections, which also folds their logs into the files."""
    with _opening:
        for database in _open.values():
            database.close()
        _open.clear()
