"""The tables of a PostgreSQL database, ours and those of LangGraph's checkpoints."""

import contextlib
import time
from collections.abc import Generator
from typing import Any

import psycopg

from openmanus_graph.backends.persistence.rows import StorageError, UnavailableError
from openmanus_graph.backends.persistence.schema import CURRENT, migrate_postgres, postgres_version

SCHEMA = "openmanus"
WAIT_S = 10.0
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
    until = time.monotonic() + WAIT_S
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
