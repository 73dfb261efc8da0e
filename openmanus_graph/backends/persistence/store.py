"""LangGraph's long-term store, in the same database as the threads."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock, Timeout
from langgraph.store.base import BaseStore, Op, Result
from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.sqlite import BUSY_TIMEOUT_S, SqliteDatabase
from openmanus_graph.state.storage_urls import DatabaseUrl

T = TypeVar("T")
Batch = Callable[[Iterable[Op]], list[Result]]
"""Executes operations, all or none."""
_LOCK = 0x6F6D73746F7265
"""Of PostgreSQL's server, by which exclusive jobs follow one another."""


class DatabaseStore(BaseStore):
    """A store whose tables are made when it is first used: most runs never do.

    Its methods raise `sqlite3.Error` where the database cannot be used.
    """

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._has_tables = False

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        database: Any = open_database(self._url)  # by the address, one of these two
        if isinstance(database, SqliteDatabase):
            return self._in_sqlite(database, list(ops))
        return self._in_postgres(database, list(ops))

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def exclusively(self, job: Callable[[Batch], T]) -> T:
        """Run a job while no other thread or process runs one here. Blocks.

        What it reads by the function that it is given still holds when it writes. PostgreSQL does
        it once more where a connection was lost.
        """
        database: Any = open_database(self._url)
        if isinstance(database, SqliteDatabase):
            with _locked(self._url.file):
                return job(lambda ops: self._in_sqlite(database, list(ops)))
        return self._in_transaction(database, job)

    def _in_sqlite(self, database: SqliteDatabase, ops: list[Op]) -> list[Result]:
        from langgraph.store.sqlite import SqliteStore  # loads an extension's package

        with database.connection() as connection:
            return SqliteStore(connection).batch(ops)

    def _in_postgres(self, database: Any, ops: list[Op]) -> list[Result]:
        from langgraph.store.postgres import PostgresStore  # needs an extra

        def execute() -> list[Result]:
            with database.connection() as connection:
                return PostgresStore(connection).batch(ops)

        self._require_tables(database)
        return cast("list[Result]", database.repeated(execute))

    def _in_transaction(self, database: Any, job: Callable[[Batch], T]) -> T:
        from langgraph.store.postgres import PostgresStore

        def execute() -> T:
            with database.connection() as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                return job(PostgresStore(connection).batch)

        self._require_tables(database)
        return cast("T", database.repeated(execute))

    def _require_tables(self, database: Any) -> None:
        if not self._has_tables:
            database.make_tables(_make_tables)
            self._has_tables = True


@contextlib.contextmanager
def _locked(file: Path) -> Generator[None]:
    """Hold the lock beside a SQLite file: LangGraph's store begins transactions of its own."""
    try:
        with FileLock(file.with_name(f"{file.name}.store.lock"), timeout=BUSY_TIMEOUT_S):
            yield
    except Timeout as error:
        raise sqlite3.OperationalError("database is locked") from error


def _make_tables(connection: Any) -> None:
    from langgraph.store.postgres import PostgresStore

    PostgresStore(connection).setup()
