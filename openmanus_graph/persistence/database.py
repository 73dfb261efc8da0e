"""One SQLite file, shared by the threads of a process and by several processes."""

import atexit
import contextlib
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

DATABASE = "openmanus.db"
"""Threads and ledger; checkpoints lie in a file of their own (`checkpoints.py`)."""


LARGEST_LOG = 1_000_000
"""Bytes that a write-ahead log keeps on disk when it is empty."""


class Database:
    """All methods block; call them off the event loop."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        # Autocommit: one statement is one transaction, written when the call returns.
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        # Two connections that switch a new file to WAL at once fail without waiting.
        with FileLock(path.with_suffix(".lock")):
            self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(f"PRAGMA journal_size_limit={LARGEST_LOG}")

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows. sqlite3.Error if that fails."""
        with self._lock, contextlib.closing(self._db.execute(statement, values)) as cursor:
            return cursor.fetchall()

    def close(self) -> None:
        """Close the file."""
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
