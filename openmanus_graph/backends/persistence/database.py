"""One SQLite file, shared by the threads of a process and by several processes."""

import atexit
import contextlib
import json
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from openmanus_graph.backends.persistence.worker import Worker
from openmanus_graph.runtime.shutdown import register_closer

DATABASE = "openmanus.db"
"""Threads and ledger; checkpoints lie in a file of their own (`checkpoints.py`)."""


MAX_LOG_BYTES = 1_000_000
"""Bytes that a write-ahead log keeps on disk when it is empty."""
CACHE_KB = 512
"""Of pages in memory, for each connection: a run writes, and hardly reads."""
BUSY_TIMEOUT_S = 10.0
"""Seconds to wait while another process writes; ours write for milliseconds."""

IsolationLevel = Literal["DEFERRED"] | None


class DamagedRowError(sqlite3.DatabaseError):
    """One row cannot be read; its words say which, and what to do."""


class Connection:
    """A file opened for several threads, which take turns, and several processes.

    Where its folder cannot be written it is opened for reading only. Text that is not UTF-8 any
    more is read as bytes, so that it costs its row and no other.

    It is closed before the process forks, and opened again where it is used next, in the parent
    or in the child: SQLite's locks do not go along, so that even closing a connection that was
    carried into a child may damage the file.
    """

    def __init__(self, path: Path, isolation_level: IsolationLevel = "DEFERRED") -> None:
        """Open the file. Blocks."""
        self.lock = threading.Lock()
        """Must be held while the connection is used."""
        self._path = path
        self._isolation_level: IsolationLevel = isolation_level
        self._closed = False
        _connections.add(self)
        with self.lock:
            self._db: sqlite3.Connection | None = _connect(path, isolation_level)
        self._inode = path.stat().st_ino

    def get(self) -> sqlite3.Connection:
        """Return SQLite's connection; call this with the lock held. Blocks after a fork."""
        if self._db is None:
            if self._closed:
                raise sqlite3.ProgrammingError(f"{self._path.name} is closed.")
            self.check_place()
            self._db = _connect(self._path, self._isolation_level)
        return self._db

    def check_place(self) -> None:
        """Raise sqlite3.OperationalError when the file is no longer at its place.

        SQLite would go on writing into a file that was removed, where nobody finds it again.
        """
        try:
            found = self._path.stat().st_ino
        except OSError as error:
            raise sqlite3.OperationalError(f"{self._path} is gone: {error.strerror}") from error
        if found != self._inode:
            raise sqlite3.OperationalError(f"{self._path} is another file than before")

    def close(self) -> None:
        """Close the file. Blocks."""
        with self.lock:  # closing under a running statement would crash the interpreter
            self._closed = True
            self.suspend()

    def suspend(self) -> None:
        """Close the file until it is used next; call this with the lock held."""
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _connect(path: Path, isolation_level: IsolationLevel) -> sqlite3.Connection:
    with _connecting:
        # Its own folder, and the one that a link leads to.
        folders = {path.parent, path.resolve().parent}
        if all(os.access(folder, os.W_OK) or not folder.exists() for folder in folders):
            return _opened(path, _configure, isolation_level)
        address = path.resolve().as_uri()
        try:
            return _opened(f"{address}?mode=ro", _check_readable, isolation_level)
        except sqlite3.OperationalError:
            # SQLite wants to write beside the file even to read it, unless a log is there already.
            log = path.resolve().with_name(f"{path.resolve().name}-wal")
            if log.exists() and log.stat().st_size:
                raise
        return _opened(f"{address}?immutable=1", _check_readable, isolation_level)


def _opened(
    place: Path | str,
    prepare: Callable[[sqlite3.Connection, Path | str], None],
    isolation_level: IsolationLevel,
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place,
        uri=isinstance(place, str),
        timeout=BUSY_TIMEOUT_S,
        isolation_level=isolation_level,
        check_same_thread=False,
    )
    connection.text_factory = _text_or_bytes
    connection.create_function("crc32", -1, crc32, deterministic=True)
    try:
        with _schema_errors():
            prepare(connection, place)
    except BaseException:
        connection.close()
        raise
    return connection


def crc32(*columns: Any) -> int:
    """Return a checksum of columns, as text or its bytes; statements have it as well."""
    parts = (one if isinstance(one, bytes) else str(one or "").encode() for one in columns)
    return zlib.crc32(b"\0".join(parts))


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


@contextlib.contextmanager
def _schema_errors() -> Generator[None]:
    """Raise sqlite3.DatabaseError where damaged names keep Python from reading SQLite's answer."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise sqlite3.DatabaseError(f"its schema cannot be read ({error.reason})") from error


def _check_readable(connection: sqlite3.Connection, place: Path | str) -> None:
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()


def _configure(connection: sqlite3.Connection, path: Path | str) -> None:
    # Two connections that switch a new file to WAL at once fail without waiting.
    try:
        with FileLock(Path(path).with_suffix(".lock"), timeout=BUSY_TIMEOUT_S):
            connection.execute("PRAGMA journal_mode=WAL")
    except Timeout as error:
        raise sqlite3.OperationalError("database is locked") from error
    # Safe against a killed process; a full sync of each write would only add power failures.
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA journal_size_limit={MAX_LOG_BYTES}")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KB}")


def read_json(text: str | bytes) -> Any:
    """Read what we wrote. sqlite3.DatabaseError if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise sqlite3.DatabaseError(f"a row cannot be read ({error})") from error


class Database:
    """Statements of any thread, one at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Autocommit: one statement is one transaction, written when the call returns.
        self._connection = Connection(path, isolation_level=None)
        self._worker = Worker(path.name)

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows. Blocks. sqlite3.Error if that fails."""
        self._connection.check_place()
        with (
            self._connection.lock,
            _schema_errors(),
            contextlib.closing(self._connection.get().execute(statement, values)) as cursor,
        ):
            return cursor.fetchall()

    async def arun(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Do as `run`, off the event loop. It is done even if the caller is cancelled."""
        return await self._worker.do(self.run, statement, values)

    def close(self) -> None:
        """Close the file. Blocks."""
        self._worker.close()
        self._connection.close()


_open: dict[Path, Database] = {}
_opening = threading.Lock()


def open_database(home: Path, name: str = DATABASE) -> Database:
    """Return this process's connection to a database of a home folder. Blocks."""
    path = home / name
    with _opening:
        if path not in _open:
            _open[path] = Database(path)
        return _open[path]


@atexit.register
def close_databases() -> None:
    """Close this process's connections, which also folds their logs into the files."""
    with _opening:
        for database in _open.values():
            database.close()
        _open.clear()


register_closer(close_databases, last=True)
_connections = weakref.WeakSet[Connection]()
_connecting = threading.Lock()
_forking = threading.Lock()
_locks_of_fork: list[threading.Lock] = []
"""What a fork under way holds, in the order in which everybody takes these locks."""


def _suspend_all() -> None:
    """Close all files before a fork, when no statement is under way, and let nobody open one."""
    _acquire(_forking)
    _acquire(_opening)
    for connection in list(_connections):
        _acquire(connection.lock)
        with contextlib.suppress(sqlite3.Error):  # the disk may be missing; the next use reports it
            connection.suspend()
    _acquire(_connecting)


def _acquire(lock: threading.Lock) -> None:
    lock.acquire()
    _locks_of_fork.append(lock)


def _release_all() -> None:
    while _locks_of_fork:
        _locks_of_fork.pop().release()


os.register_at_fork(before=_suspend_all, after_in_parent=_release_all, after_in_child=_release_all)
