"""LangGraph's long-term store, in the same database as the threads."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from langgraph.store.base import BaseStore, Op, Result
from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.sqlite import SqliteDatabase
from openmanus_graph.state.database_url import DatabaseUrl


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

    def _in_sqlite(self, database: SqliteDatabase, ops: list[Op]) -> list[Result]:
        from langgraph.store.sqlite import SqliteStore  # loads an extension's package

        with database.connection() as connection:
            return SqliteStore(connection).batch(ops)

    def _in_postgres(self, database: Any, ops: list[Op]) -> list[Result]:
        from langgraph.store.postgres import PostgresStore  # needs an extra

        if not self._has_tables:
            database.make_tables(_make_tables)
            self._has_tables = True

        def execute() -> list[Result]:
            with database.connection() as connection:
                return PostgresStore(connection).batch(ops)

        return cast("list[Result]", database.repeated(execute))


def _make_tables(connection: Any) -> None:
    from langgraph.store.postgres import PostgresStore

    PostgresStore(connection).setup()
