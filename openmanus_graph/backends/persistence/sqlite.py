"""The backend for one SQLite file, shared by the threads of a process and by several processes."""

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock, Timeout
from typing_extensions import override

from openmanus_graph.backends.persistence import backend
from openmanus_graph.backends.persistence.database_thread import DatabaseThread, Write
from openmanus_graph.backends.persistence.text_index import SqliteTextIndex
from openmanus_graph.backends.persistence.texts import words_of
from openmanus_graph.config.homes import make_folder
from openmanus_graph.errors import StorageError, UnavailableError

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

MAX_LOG_BYTES = 1_000_000
"""Bytes that a write-ahead log keeps on disk when it is empty."""
FREED_AT_ONCE = 500
"""Pages that one statement gives back to the disk: others write in between."""
CACHE_KB = 512
"""Page cache of each connection: a run writes, and hardly reads."""
BUSY_TIMEOUT_S = 10.0
"""Seconds to wait while another process writes; ours write for milliseconds."""
_TYPES = {
    "number": "INTEGER",
    "numbered": "INTEGER PRIMARY KEY",
    "time": "TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "bytes": "BLOB",
    "rowid": "",  # each row has one
    "by_key": "WITHOUT ROWID",
}
_LOCAL_VERSIONS: backend.Versions = (
    (),
    (
        "CREATE INDEX threads_listed ON threads (archived, pinned)",
        # It does not hold the texts again, and needs them to forget their words.
        "CREATE VIRTUAL TABLE text_words"
        " USING fts5(words, content='', columnsize=0, tokenize='ascii')",
        """
        CREATE TRIGGER texts_added AFTER INSERT ON texts BEGIN
            INSERT INTO text_words (rowid, words)
            VALUES (new.number, words_of(CAST(new.text AS BLOB)));
        END
        """,
        """
        CREATE TRIGGER texts_deleted AFTER DELETE ON texts BEGIN
            INSERT INTO text_words (text_words, rowid, words)
            VALUES ('delete', old.number, words_of(CAST(old.text AS BLOB)));
        END
        """,
    ),
    (),
)
"""The further tables of a local file."""
_PASSAGE = "words_of(CAST({0}.about || ' ' || {0}.text AS BLOB))"
LIBRARY_VERSIONS: backend.Versions = (
    (
        *backend.LIBRARY,
        "CREATE VIRTUAL TABLE passage_words USING fts5(words, content='', tokenize='porter ascii')",
        f"""
        CREATE TRIGGER passages_added AFTER INSERT ON library_passages BEGIN
            INSERT INTO passage_words (rowid, words) VALUES (new.number, {_PASSAGE.format("new")});
        END
        """,
        f"""
        CREATE TRIGGER passages_deleted AFTER DELETE ON library_passages BEGIN
            INSERT INTO passage_words (passage_words, rowid, words)
            VALUES ('delete', old.number, {_PASSAGE.format("old")});
        END
        """,
    ),
)
"""The tables of a file of libraries."""
VERSIONS: backend.Versions = [
    (*shared, *local) for shared, local in zip(backend.VERSIONS, _LOCAL_VERSIONS, strict=True)
]
T = TypeVar("T")


class SqliteDatabase(backend.Database):
    """A file opened for several threads, which take turns, and several processes.

    If its folder cannot be written it is opened for reading only. Text that is not valid UTF-8
    any more is read as bytes, so that the damage costs its row and no other.

    The file is closed before the process forks, and opened again at the next use in the parent or
    the child: SQLite's locks are not inherited, so that even closing an inherited connection may
    damage the file.
    """

    errors = (sqlite3.Error,)

    def __init__(
        self,
        path: Path,
        versions: backend.Versions = VERSIONS,
        *,
        checkpoints_of: Path | None = None,
    ) -> None:
        """Open the file and bring its tables up to date. Blocks.

        Args:
            versions: Of its tables; empty if LangGraph makes them.
            checkpoints_of: Another file to whose rows this one refers: both share a thread.
        """
        super().__init__(DatabaseThread.shared(str(checkpoints_of or path)))
        make_folder(path.parent)
        self._path, self._db = path, None
        self.texts = SqliteTextIndex(self.run)
        self._holds_checkpoints = checkpoints_of is not None
        self._closed = False
        self.lock = threading.Lock()
        """Must be held while the connection is used."""
        _databases.add(self)
        try:
            with self.lock, self._errors_in_words():
                self._db = _connect(path)
                _migrate(self._db, path, versions)
            self._inode = path.stat().st_ino
        except BaseException:
            self.close()
            raise

    @override
    def run(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[backend.Row]:
        del worker_of  # the thread's file lock cannot be lost
        with (
            self.connection() as connection,
            contextlib.closing(connection.execute(statement, values)) as cursor,
        ):
            return cursor.fetchall()

    @override
    def run_many(self, *several: backend.Several, worker_of: str | None = None) -> None:
        del worker_of
        with self._transaction("BEGIN IMMEDIATE") as connection:
            for statement, rows in several:
                connection.executemany(statement, rows)

    @override
    def _write_of(self, statement: str, values: Sequence[Any], worker_of: str | None) -> Write:
        return Write.of(partial(self.run, statement, values), self._commit, worker_of)

    @override
    def _commit(self, writes: Sequence[Write]) -> list[Any]:
        if len(writes) == 1 and not self._holds_checkpoints:  # one statement, which may only read
            return [writes[0].execute()()]
        # Not "IMMEDIATE": some may only read, in a file that cannot be written.
        return self._commit_group(writes, self._transaction("BEGIN"))

    @contextlib.contextmanager
    @override
    def writing(self, worker_of: str | None) -> Generator[sqlite3.Connection]:
        del worker_of
        if (shared := self._group_transaction()) is not None:
            yield shared
            return
        with self._transaction("BEGIN") as connection:
            yield connection

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
        """Take the connection, after other threads' statements; or use the group's."""
        if (shared := self._group_transaction()) is not None:
            yield shared
            return
        with self._errors_in_words():
            self._check_place()
            with self.lock:
                if self._db is None:  # after a fork
                    if self._closed:
                        raise StorageError(f"{self._path.name} is closed.")
                    self._db = _connect(self._path)
                yield self._db

    def _check_place(self) -> None:
        """Raise sqlite3.OperationalError if the file is no longer at its place.

        SQLite would continue to write into a file that was removed, which is then lost.
        """
        try:
            found = self._path.stat().st_ino
        except OSError as error:
            raise sqlite3.OperationalError(f"{self._path} is gone: {error.strerror}") from error
        if found != self._inode:
            raise sqlite3.OperationalError(f"{self._path} is not the same file as before")

    @override
    async def off_loop(self, job: Callable[[], T]) -> T:
        return await self._writer.do(job)

    @override
    def with_store(self, job: "Callable[[BaseStore], T]", *, alone: bool = False) -> T:
        from langgraph.store.sqlite import SqliteStore  # loads an extension's package

        with contextlib.ExitStack() as stack:
            if alone:  # LangGraph's store begins transactions itself: another lock is needed
                file = self._path.with_name(f"{self._path.name}.store.lock")
                stack.enter_context(self._errors_in_words())
                stack.enter_context(_locked(file))
            return job(SqliteStore(stack.enter_context(self.connection())))

    @override
    def settle(self) -> None:
        self._writer.settle()

    @override
    def close(self) -> None:
        self._writer.close()
        with self.lock:  # closing under a running statement would crash the interpreter
            self._closed = True
            self.suspend()

    def suspend(self) -> None:
        """Close the file until its next use. Call this with the lock held."""
        db, self._db = self._db, None
        if db is not None:
            db.close()

    @contextlib.contextmanager
    def _errors_in_words(self) -> Generator[None]:
        try:
            yield
        except UnicodeDecodeError as error:  # damaged names: Python cannot read SQLite's answer
            raise self.damaged(f"its schema cannot be read ({error.reason})") from error
        except sqlite3.Error as error:
            raise self._in_words(error) from error

    def _in_words(self, error: sqlite3.Error) -> StorageError:
        folder, name = self._path.parent, getattr(error, "sqlite_errorname", "") or ""
        if name.startswith("SQLITE_FULL"):
            return UnavailableError(
                f"The disk of {folder} is full. Make room there, or bring the disk back."
            )
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "is locked" in str(error):
            return UnavailableError(
                f"Another program holds the database in {folder}. Let it finish, or stop it "
                f"(`fuser {folder}/*.db` names it)."
            )
        # A statement that cannot be understood is right, as all of ours are: the schema is not.
        if isinstance(error, sqlite3.OperationalError) and name != "SQLITE_ERROR":
            return UnavailableError(
                f"The database in {folder} cannot be used: {error}. Check that its disk is there, "
                "can be written, and is not full."
            )
        return self.damaged(str(error))

    @override
    def row_bytes(self, table: str) -> str:
        columns = self.run("SELECT name FROM pragma_table_info(?)", (table,))
        return " + ".join(f"coalesce(length(CAST({one} AS BLOB)), 0)" for (one,) in columns)

    @override
    def give_back_space(self) -> None:
        for _ in range(0, self.run("PRAGMA freelist_count")[0][0], FREED_AT_ONCE):
            with self.connection() as connection:  # `execute` would free one page only
                connection.executescript(f"PRAGMA incremental_vacuum({FREED_AT_ONCE})")

    @override
    def damaged(self, what: str) -> StorageError:
        folder = self._path.parent
        return StorageError(
            f"The database in {folder} is damaged: {what}. Move {folder} away to start with an "
            "empty one; `sqlite3 FILE .recover` may save its threads."
        )


def copy_databases(files: Mapping[str, tuple[Path, backend.Versions]], folder: Path) -> None:
    """Copy files in use by SQLite's online backup, under new names in a folder. Blocks.

    All are copied as they are at one moment. A file whose rows refer to another one's comes first.
    """
    with contextlib.ExitStack() as opened:
        sources: dict[str, sqlite3.Connection] = {}
        for name, (path, versions) in files.items():
            database = opened.enter_context(contextlib.closing(SqliteDatabase(path, versions)))
            sources[name] = opened.enter_context(database.writing(None))
            has_tables(sources[name])  # the transaction's first reading decides what it sees
        for name, source in sources.items():
            with contextlib.closing(sqlite3.connect(folder / name)) as copy:
                source.backup(copy)


def _connect(path: Path) -> sqlite3.Connection:
    with _connecting:
        # Its own folder, and the one that a link leads to.
        folders = {path.parent, path.resolve().parent}
        if all(os.access(folder, os.W_OK) or not folder.exists() for folder in folders):
            return _opened(path, _configure)
        address = path.resolve().as_uri()
        try:
            return _opened(f"{address}?mode=ro", _check_readable)
        except sqlite3.OperationalError:
            # SQLite writes a log even to read the file, unless there is one already.
            log = path.resolve().with_name(f"{path.resolve().name}-wal")
            if log.exists() and log.stat().st_size:
                raise
        return _opened(f"{address}?immutable=1", _check_readable)


def _opened(
    file: Path | str, prepare: Callable[[sqlite3.Connection, Path | str], None]
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file,
        uri=isinstance(file, str),
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,  # autocommit: a statement is a transaction
        check_same_thread=False,
    )
    connection.text_factory = _text_or_bytes
    try:
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


def _check_readable(connection: sqlite3.Connection, file: Path | str) -> None:
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()


def _configure(connection: sqlite3.Connection, path: Path | str) -> None:
    # Two connections that switch a new file to WAL at once fail without waiting.
    with _locked(Path(path).with_suffix(".lock")):
        if connection.execute("PRAGMA page_count").fetchone() == (0,):  # later it has no effect
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
    # Safe against a killed process; a full sync of each write would only add power failures.
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA journal_size_limit={MAX_LOG_BYTES}")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KB}")
    connection.execute("PRAGMA trusted_schema=ON")  # so that triggers may call our function
    connection.create_function("words_of", 1, words_of, deterministic=True)


@contextlib.contextmanager
def _locked(file: Path) -> Generator[None]:
    try:
        with FileLock(file, timeout=BUSY_TIMEOUT_S):
            yield
    except Timeout as error:
        raise sqlite3.OperationalError("database is locked") from error


def _migrate(db: sqlite3.Connection, path: Path, versions: backend.Versions) -> None:
    """Bring the tables up to date. A file that can only be read stays as it is."""
    if _version(db, path, versions) == len(versions):
        return
    try:
        db.execute("BEGIN IMMEDIATE")  # another process may migrate, too
        for statements in versions[_version(db, path, versions) :]:
            for statement in statements:
                db.execute(statement.format(**_TYPES))
        db.execute(f"PRAGMA user_version = {len(versions)}")
        db.execute("COMMIT")
    except BaseException as error:
        with contextlib.suppress(sqlite3.Error):  # a full disk may have ended it already
            db.execute("ROLLBACK")
        if getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY":
            raise


def _version(db: sqlite3.Connection, path: Path, versions: backend.Versions) -> int:
    """Return the version in the file's header. StorageError: it is of another one."""
    filled = has_tables(db)  # first: another process may commit tables and version by now
    (found,) = db.execute("PRAGMA user_version").fetchone()
    backend.check_version(str(path), found, len(versions), has_tables=filled)
    return int(found)


def has_tables(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None


_databases = weakref.WeakSet[SqliteDatabase]()
_connecting = threading.Lock()
_forking = threading.Lock()
_locks_of_fork: list[threading.Lock] = []
"""The locks that a fork under way holds, in the order in which all code takes them."""


def _suspend_all() -> None:
    """Close all files before a fork, between statements, and keep new ones from being opened."""
    _acquire(_forking)
    for database in list(_databases):
        _acquire(database.lock)
        with contextlib.suppress(sqlite3.Error):  # the disk may be missing; the next use reports it
            database.suspend()
    _acquire(_connecting)


def _acquire(lock: threading.Lock) -> None:
    lock.acquire()
    _locks_of_fork.append(lock)


def _release_all() -> None:
    while _locks_of_fork:
        _locks_of_fork.pop().release()


os.register_at_fork(before=_suspend_all, after_in_parent=_release_all, after_in_child=_release_all)
