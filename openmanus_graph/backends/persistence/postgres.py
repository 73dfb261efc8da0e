"""One database of a PostgreSQL server: the connections of the whole process.

Only `open_database` loads this module: it needs the extra `postgres`. Our tables and LangGraph's
lie in the schema `openmanus`, unless the address names another by its `search_path`.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import TextLoader
from psycopg_pool import ConnectionPool, PoolTimeout

from openmanus_graph.backends.persistence.database_thread import (
    DatabaseThread,
    GroupConnection,
    LeaseLostError,
    OnEnd,
    StorageError,
    UnavailableError,
    Write,
)
from openmanus_graph.backends.persistence.schema import CURRENT, migrate_postgres, postgres_version
from openmanus_graph.errors import RefusedDataError
from openmanus_graph.state.addresses import DatabaseUrl

SCHEMA = "openmanus"
TABLES_WAIT_S = 10.0
"""How long another process that makes tables is waited for."""
_LOCK = 0x6F70656E6D616E
"""Of the server, by which processes make tables one after another."""
_LOCK_POLL_S = 0.05
Connection = psycopg.Connection[tuple[Any, ...]]


def bring_up_to_date(connection: Connection, database: str) -> None:
    """Make the tables that are missing, and change those of an earlier version. Blocks.

    It looks first, without a write: the server may be a replica.

    Raises:
        StorageError: The tables were made by a later version.
        UnavailableError: Another process makes them, for longer than is waited for.
    """
    if postgres_version(connection, database) == CURRENT:
        return
    with alone(connection, database):
        missing = "current_schema() IS NULL AND current_setting('search_path') = %s"
        if connection.execute(f"SELECT {missing}", (SCHEMA,)).fetchone() == (True,):
            connection.execute(f"CREATE SCHEMA {SCHEMA}")
        migrate_postgres(connection, database)


def bring_checkpoints_up_to_date(connection: Connection, database: str) -> None:
    """Do the same with LangGraph's tables, for those who read checkpoints: it loads LangGraph."""
    from langgraph.checkpoint.postgres import PostgresSaver

    newest = len(PostgresSaver.MIGRATIONS) - 1
    found = _checkpoints_version(connection)
    if found is not None and found > newest:
        raise StorageError(
            f"The checkpoints in {database} were written by a later version of "
            "langgraph-checkpoint-postgres. Update it with: pip install --upgrade "
            "langgraph-checkpoint-postgres"
        )
    if found != newest:
        with alone(connection, database):
            PostgresSaver(connection).setup()  # type: ignore[arg-type]  # its cursors make dicts


@contextlib.contextmanager
def alone(connection: Connection, database: str) -> Generator[None]:
    """Hold the lock by which processes make tables one after another.

    It is tried again and again: a statement that waits for it would keep LangGraph's
    `CREATE INDEX CONCURRENTLY` in the other process from ending.
    """
    until = time.monotonic() + TABLES_WAIT_S
    while connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone() != (True,):
        if time.monotonic() > until:
            raise UnavailableError(
                f"Another process makes the tables of {database}. Try again later."
            )
        time.sleep(_LOCK_POLL_S)
    try:
        yield
    finally:
        if not connection.broken:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _checkpoints_version(connection: Connection) -> int | None:
    """Return the version of LangGraph's tables, if there are any."""
    missing = "to_regclass('checkpoint_migrations') IS NULL"
    if connection.execute(f"SELECT {missing}").fetchone() == (True,):
        return None
    ((found,),) = connection.execute("SELECT max(v) FROM checkpoint_migrations").fetchall()
    return int(found) if found is not None else None


MAX_CONNECTIONS = 8
"""Of one process. A statement takes less than a millisecond of one."""
READERS = 3
"""Threads that wait for the server in place of the event loop, beside the one that writes."""
WAIT_S = 10.0
"""How long a server that restarts, or is full of connections, is waited for."""
_TRIES = 4
"""Of a job: a server that ends its connections does so one after another."""
_LEASE_LOST = "OML01"
"""SQLSTATE that `require_lease` raises."""
_CONNECTION_CLASSES = ("08", "57P")
"""SQLSTATEs of connections that the server ends or refuses."""

_REQUIRE_LEASES = """
    SELECT require_lease(thread, token)
    FROM unnest(%s::text[], %s::bigint[]) AS held(thread, token)
"""
T = TypeVar("T")
Cursor = psycopg.Cursor[tuple[Any, ...]]

# Else Python itself prints psycopg's warnings on stderr where nobody set up logging.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Transaction:
    """A transaction under way, of one writer or of a group."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        """For statements of their own."""
        self._rows: dict[str, list[Sequence[Any]]] = {}

    def execute(self, statement: str, values: Sequence[Any]) -> Cursor:
        """Execute a statement as SQLite writes it; its rows are there when all is over."""
        return self.connection.execute(_translated(statement), _storable(values))

    def insert(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows at the end of the transaction, with all others of that statement.

        Args:
            statement: Takes a list for each column, so that it is executed once.
            rows: Values for the columns.
        """
        if rows:
            self._rows.setdefault(statement, []).extend(rows)

    def insert_all(self) -> None:
        """Insert what is to be inserted."""
        for statement, rows in self._rows.items():
            columns = [list(column) for column in zip(*rows, strict=True)]
            self.connection.execute(statement.encode(), columns)


class PostgresDatabase:
    """Statements of any thread, on as many connections as are needed at once.

    A connection that is lost is replaced, and its statement is executed again: each of ours can
    be, as its second execution writes what the first one did.
    """

    def __init__(self, url: DatabaseUrl) -> None:
        """Connect, and bring the tables up to date. Blocks."""
        self._url = url
        self._writer = DatabaseThread(f"{url} writer")
        self._readers = [DatabaseThread(f"{url} {number}") for number in range(READERS)]
        self._turns = itertools.cycle(self._readers)
        self._group = GroupConnection[Transaction]()
        self._address = url.secret.get_secret_value()
        self._options = _options(self._address)
        self.tokens: dict[str, int] = {}
        """The number of each lease that this process holds, even if it was lost, by thread."""
        self.leave_to_parent()
        _databases.add(self)
        self._prepare(bring_up_to_date)

    def prepare_checkpoints(self) -> None:
        """Bring LangGraph's tables up to date. Blocks."""
        self._prepare(bring_checkpoints_up_to_date)

    def _prepare(self, bring: Callable[[Connection, str], None]) -> None:
        with self._errors_in_words(), psycopg.connect(self._address, **self._options) as connection:
            self._configure(connection)
            bring(connection, str(self._url))

    def run(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows. Blocks. StorageError if that fails."""

        def execute() -> list[tuple[Any, ...]]:
            if worker_of is None:
                with self.connection() as connection:
                    return _rows(Transaction(connection).execute(statement, values))
            with self.writing(worker_of) as transaction:
                cursor = transaction.execute(statement, values)
            return _rows(cursor)

        return self.repeated(execute)

    def run_many(
        self, statement: str, rows: Iterable[Sequence[Any]], *, worker_of: str | None = None
    ) -> None:
        """Execute one statement with each row of values, all or none. Blocks."""
        given = [_storable(row) for row in rows]

        def execute() -> None:
            with self.writing(worker_of) as transaction:
                transaction.connection.cursor().executemany(_translated(statement), given)

        self.repeated(execute)

    async def arun(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Do as `run`, off the event loop. It is done even if the caller is cancelled."""
        rows: list[tuple[Any, ...]] = await self._writer.write(
            self._write_of(statement, values, worker_of)
        )
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
        self._writer.write_later(self._write_of(statement, values, worker_of), on_end)

    def _write_of(self, statement: str, values: Sequence[Any], worker_of: str | None) -> Write:
        def execute() -> Callable[[], list[tuple[Any, ...]]]:
            with self.writing(worker_of) as transaction:
                cursor = transaction.execute(statement, values)
            return partial(_rows, cursor)

        return Write(execute, self._commit, worker_of)

    async def read(self, job: Callable[[], T]) -> T:
        """Run a job that blocks off the event loop, also if the caller is cancelled."""
        return await next(self._turns).do(job)

    def write(self, job: Callable[[], T], worker_of: str) -> "asyncio.Future[T]":
        """Run a job that takes a connection by `writing`, in one transaction with others."""
        return self._writer.write(Write.of(job, self._commit, worker_of))

    def write_later(self, execute: Callable[[], Any], worker_of: str, on_end: OnEnd) -> None:
        """Do as `write` right before what is written next, or in a few milliseconds.

        Args:
            execute: Writes, and returns what is called once that is committed.
            worker_of: The thread that it writes for.
            on_end: Is called in this event loop then, or with the error.
        """
        self._writer.write_later(Write(execute, self._commit, worker_of), on_end)

    def settle(self) -> None:
        """Wait until all jobs so far are done, those of cancelled callers included. Blocks."""
        for thread in (self._writer, *self._readers):
            thread.settle()

    def connection(self) -> contextlib.AbstractContextManager[Connection]:
        """Take a connection for a moment, waiting for a free one; within `repeated` only."""
        return self._connected().connection()

    @contextlib.contextmanager
    def writing(self, worker_of: str | None) -> Generator[Transaction]:
        """Begin a transaction, which is one way to the server and back.

        Rows can be fetched when it is over. Where this process holds the lease of `worker_of`,
        all fails if another worker has it by now. Within a group it is the group's transaction.

        Raises:
            LeaseLostError: Another worker has it.
        """
        if self._group.current is not None:
            yield self._group.current
            return
        with self._transaction([worker_of]) as transaction:
            yield transaction

    @contextlib.contextmanager
    def _transaction(self, workers_of: Sequence[str | None]) -> Generator[Transaction]:
        """Begin a transaction that fails if the lease of one of the threads was lost."""
        held = {one: self.tokens.get(one) for one in workers_of if one is not None}
        threads = sorted(one for one, token in held.items() if token is not None)
        try:
            # PostgreSQL makes a transaction of what comes before the pipeline's one Sync.
            with self.connection() as connection, connection.pipeline():
                if threads:
                    connection.execute(_REQUIRE_LEASES, (threads, [held[one] for one in threads]))
                transaction = Transaction(connection)
                yield transaction
                transaction.insert_all()
        except psycopg.DatabaseError as error:
            if error.sqlstate == _LEASE_LOST:
                raise LeaseLostError(", ".join(threads)) from None
            raise

    def _commit(self, writes: Sequence[Write]) -> list[Any]:
        """Execute writes in one transaction, and return their answers. Blocks."""
        threads = [write.thread for write in writes]
        return self.repeated(lambda: self._group.commit(writes, self._transaction(threads)))

    def repeated(self, job: Callable[[], T]) -> T:
        """Run a job that takes connections, a few times more if one was lost. Blocks.

        Raises:
            StorageError: The server refused, or could not be reached, or a row is damaged.
        """
        with self._errors_in_words():
            for _ in range(_TRIES - 1):
                try:
                    return job()
                except psycopg.OperationalError as error:
                    if isinstance(error, PoolTimeout) or not _is_lost(error):
                        raise
                self._connected().check()  # the server may have ended all of them
            return job()

    def make_tables(self, make: Callable[[Connection], None]) -> None:
        """Have further tables made while no other process makes any. Blocks."""

        def execute() -> None:
            with self.connection() as connection, alone(connection, str(self._url)):
                make(connection)

        self.repeated(execute)

    def close(self) -> None:
        """Close all connections. Blocks."""
        for thread in (self._writer, *self._readers):
            thread.close()
        with self._lock:
            if self._pool is not None:
                self._pool.close()

    def leave_to_parent(self) -> None:
        """Begin without connections, as in a forked child, which cannot share its parent's."""
        self._lock = threading.Lock()
        """Guards the pool's creation."""
        self._pool: ConnectionPool[Connection] | None = None

    def _connected(self) -> "ConnectionPool[Connection]":
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._address,
                    kwargs=self._options,
                    min_size=1,
                    max_size=MAX_CONNECTIONS,
                    num_workers=1,
                    timeout=WAIT_S,
                    reconnect_timeout=WAIT_S,  # then the next statement tries at once
                    configure=self._configure,
                    open=True,
                )
                _pools.append(self._pool)
            return self._pool

    def _configure(self, connection: Connection) -> None:
        _connections.add(connection)
        connection.adapters.register_loader("timestamp", TextLoader)  # as SQLite has times
        connection.execute("SET TIME ZONE 'UTC'")
        if "search_path" not in str(conninfo_to_dict(self._address).get("options", "")):
            connection.execute(f"SET search_path TO {SCHEMA}")

    @contextlib.contextmanager
    def _errors_in_words(self) -> Generator[None]:
        """Raise StorageError for all errors. They hold no password, and no chain to one."""
        try:
            yield
        except (StorageError, RefusedDataError):
            raise
        except sqlite3.Error as error:
            raise StorageError(f"A row in the database {self._url} is damaged: {error}.") from error
        except PoolTimeout:
            raise UnavailableError(self._without_password(self._why_unreachable())) from None
        except psycopg.Error as error:
            kind = UnavailableError if isinstance(error, psycopg.OperationalError) else StorageError
            raise kind(self._without_password(_sentence(self._url, error))) from None

    def _why_unreachable(self) -> str:
        try:
            psycopg.connect(self._address, **self._options).close()
        except psycopg.Error as error:
            return _sentence(self._url, error)
        return f"The database {self._url} has not answered for {WAIT_S:g} s. Try again later."

    def _without_password(self, text: str) -> str:
        known = conninfo_to_dict(self._address)
        for name in ("password", "sslpassword"):
            text = text.replace(str(known.get(name) or "\0"), "***")
        return text


def _options(address: str) -> dict[str, Any]:
    """Return the options of all connections; what the address says of them counts more."""
    try:
        known = conninfo_to_dict(address)
    except psycopg.ProgrammingError:  # whose words may hold the password
        raise StorageError(
            "[storage] database_url has an option that PostgreSQL does not know. Leave out what "
            "stands behind the ?, or look it up under `libpq` in PostgreSQL's manual."
        ) from None
    usual = {
        "application_name": "openmanus",
        "connect_timeout": int(WAIT_S),
        "tcp_user_timeout": int(WAIT_S * 1000),  # milliseconds until a cut connection is noticed
    }
    wanted = {name: value for name, value in usual.items() if name not in known}
    return {"autocommit": True, "prepare_threshold": 0, **wanted}


@cache
def _translated(statement: str) -> bytes:
    """Return a statement with psycopg's placeholders; its types take no text put together."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _rows(cursor: Cursor) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description else []


def _storable(values: Sequence[Any]) -> list[Any]:
    """Return values as PostgreSQL takes them: its texts hold no NUL."""
    return [one.replace("\0", "\ufffd") if isinstance(one, str) else one for one in values]


def _is_lost(error: psycopg.OperationalError) -> bool:
    """Say whether the connection is the reason: there is no SQLSTATE, or one of these."""
    return error.sqlstate is None or error.sqlstate.startswith(_CONNECTION_CLASSES)


def _sentence(url: DatabaseUrl, error: psycopg.Error) -> str:
    """Say what is wrong with a database, and what to do."""
    reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    match error:
        case psycopg.errors.DiskFull():
            return f"The disk of the database {url} is full: {reason}. Make room there."
        case psycopg.errors.ReadOnlySqlTransaction() | psycopg.errors.InsufficientPrivilege():
            return (
                f"The database {url} cannot be written: {reason}. Give the user of the address the "
                "right to, or use a server that is no replica."
            )
        case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn():
            return f"The tables in the database {url} are damaged: {reason}."
        case psycopg.OperationalError() if _is_lost(error):
            return (
                f"The database {url} cannot be reached: {reason}. Check that its server runs, and "
                "the address."
            )
        case _:
            return f"The database {url} cannot be used: {reason}."


_databases = weakref.WeakSet[PostgresDatabase]()
_connections = weakref.WeakSet[Connection]()
_pools: list[ConnectionPool[Connection]] = []
"""All of them, for ever: in a forked child the end of its parent's would use its connections."""


def _leave_all_to_parent() -> None:
    """Cut a forked child off its parent's connections: closing one there would end the parent's."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_connections):
        with contextlib.suppress(psycopg.Error):  # it is closed already
            os.dup2(nowhere, connection.fileno())
    os.close(nowhere)
    for database in list(_databases):
        database.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
