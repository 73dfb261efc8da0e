"""One SQLite file, shared by the threads of a process and by several processes."""

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from openmanus_graph.backends.persistence.database_thread import (
    DatabaseThread,
    GroupConnection,
    OnEnd,
    Write,
)
from openmanus_graph.backends.persistence.schema import migrate_sqlite
from openmanus_graph.config.homes import make_folder

MAX_LOG_BYTES = 1_000_000
"""Bytes that a write-ahead log keeps on disk when it is empty."""
CACHE_KB = 512
"""Of pages in memory, for each connection: a run writes, and hardly reads."""
BUSY_TIMEOUT_S = 10.0
"""Seconds to wait while another process writes; ours write for milliseconds."""

IsolationLevel = Literal["DEFERRED"] | None
Migration = Callable[[sqlite3.Connection, str], None]
"""Brings the tables of a file up to date; the text is its path, for messages."""


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
    file: Path | str,
    prepare: Callable[[sqlite3.Connection, Path | str], None],
    isolation_level: IsolationLevel,
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file,
        uri=isinstance(file, str),
        timeout=BUSY_TIMEOUT_S,
        isolation_level=isolation_level,
        check_same_thread=False,
    )
    connection.text_factory = _text_or_bytes
    try:
        with _schema_errors():
            prepare(connection, file)
    except BaseException:
        connection.close()
        raise
    return connection


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


def _check_readable(connection: sqlite3.Connection, file: Path | str) -> None:
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


class SqliteDatabase:
    """Statements of any thread, one at a time."""

    def __init__(self, path: Path, migrate: Migration = migrate_sqlite) -> None:
        """Open the file and bring its tables up to date. Blocks."""
        make_folder(path.parent)
        # Autocommit: one statement is one transaction, written when the call returns.
        self._connection = Connection(path, isolation_level=None)
        self._worker = DatabaseThread.shared(str(path))
        self._group = GroupConnection[sqlite3.Connection]()
        try:
            with self._connection.lock, _schema_errors():
                migrate(self._connection.get(), str(path))
        except BaseException:
            self.close()
            raise

    def run(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows. Blocks. sqlite3.Error if that fails."""
        del worker_of  # the thread's file lock cannot be lost
        with (
            self.connection() as connection,
            contextlib.closing(connection.execute(statement, values)) as cursor,
        ):
            return cursor.fetchall()

    def run_many(
        self, statement: str, rows: Iterable[Sequence[Any]], *, worker_of: str | None = None
    ) -> None:
        """Execute one statement with each row of values, all or none. Blocks."""
        del worker_of
        with self._transaction("BEGIN IMMEDIATE") as connection:
            connection.executemany(statement, rows)

    async def arun(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Do as `run`, off the event loop. It is done even if the caller is cancelled."""
        del worker_of
        rows: list[tuple[Any, ...]] = await self._worker.write(self._write_of(statement, values))
        return rows

    def run_later(
        self,
        statement: str,
        values: Sequence[Any],
        on_end: OnEnd,
        *,
        worker_of: str | None = None,
    ) -> None:
        """Do as `arun` right before what is written next, or in a few milliseconds."""
        del worker_of
        self._worker.write_later(self._write_of(statement, values), on_end)

    def _write_of(self, statement: str, values: Sequence[Any]) -> Write:
        return Write.of(partial(self.run, statement, values), self._commit)

    def _commit(self, writes: Sequence[Write]) -> list[Any]:
        """Execute writes in one transaction, and return their answers. Blocks."""
        if len(writes) == 1:  # one statement, which may only read
            return [writes[0].execute()()]
        # Not "IMMEDIATE": some may only read, in a file that nobody may write.
        return self._group.commit(writes, self._transaction("BEGIN"))

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Generator[sqlite3.Connection]:
        with self.connection() as connection:
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk may have ended it already
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """Take the connection, which waits for other threads' statements; or the group's."""
        if self._group.current is not None:
            yield self._group.current
            return
        self._connection.check_place()
        with self._connection.lock, _schema_errors():
            yield self._connection.get()

    def close(self) -> None:
        """Close the file. Blocks."""
        self._worker.close()
        self._connection.close()


_connections = weakref.WeakSet[Connection]()
_connecting = threading.Lock()
_forking = threading.Lock()
_locks_of_fork: list[threading.Lock] = []
"""What a fork under way holds, in the order in which everybody takes these locks."""


def _suspend_all() -> None:
    """Close all files before a fork, when no statement is under way, and let nobody open one."""
    _acquire(_forking)
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
