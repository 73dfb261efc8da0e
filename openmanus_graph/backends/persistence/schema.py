"""The tables of both databases, by version, and the way from each version to the next.

A version that was released is never changed: a new one is added at the end. SQLite keeps the
number of a file in its header (`user_version`), PostgreSQL in the table `openmanus_schema`. Files
of before there were versions have number 0 and some of the tables of version 1.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openmanus_graph.backends.persistence.database_thread import StorageError

if TYPE_CHECKING:
    from psycopg import Connection

_NEWER = (
    "{database} was written by a later version of openmanus-graph (its tables have version "
    "{found}, this one knows {known}). Update it with: pip install --upgrade openmanus-graph"
)


@dataclass(frozen=True)
class _Version:
    """What makes one version's tables of those of the version before."""

    sqlite: tuple[str | Callable[[sqlite3.Connection], None], ...]
    postgres: tuple[str, ...]


def _add_checksum(db: sqlite3.Connection) -> None:
    """Add what ledgers of 0.1 did not have."""
    columns = db.execute("SELECT name FROM pragma_table_info('ledger')").fetchall()
    if ("checksum",) not in columns:
        db.execute("ALTER TABLE ledger ADD COLUMN checksum INTEGER")


_FIRST_SIGHTS = """
    thread TEXT NOT NULL, branch TEXT NOT NULL, namespace TEXT NOT NULL, parent TEXT NOT NULL,
    tool TEXT NOT NULL, args TEXT NOT NULL, position INTEGER NOT NULL,
    message TEXT NOT NULL, call_id TEXT NOT NULL,
    PRIMARY KEY (thread, branch, namespace, parent, tool, args, position)
"""
_FIRST = _Version(
    sqlite=(
        """
        CREATE TABLE IF NOT EXISTS threads (
            id TEXT PRIMARY KEY, agent TEXT NOT NULL, task TEXT NOT NULL, options TEXT NOT NULL,
            status TEXT NOT NULL, created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
            updated TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
        )
        """,
        """
        CREATE TABLE IF NOT EXISTS user_messages (thread TEXT PRIMARY KEY, message TEXT NOT NULL)
        """,
        "CREATE TABLE IF NOT EXISTS titles (thread TEXT PRIMARY KEY, title TEXT NOT NULL)",
        f"CREATE TABLE IF NOT EXISTS first_sights ({_FIRST_SIGHTS}) WITHOUT ROWID",
        """
        CREATE TABLE IF NOT EXISTS ledger (
            effect TEXT NOT NULL, thread TEXT NOT NULL, branch TEXT NOT NULL, tool TEXT NOT NULL,
            args TEXT NOT NULL, occurrence INTEGER NOT NULL, call_id TEXT NOT NULL,
            attempts INTEGER NOT NULL, stage TEXT NOT NULL, outcome TEXT,
            at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, checksum INTEGER
        )
        """,
        _add_checksum,
        "CREATE UNIQUE INDEX IF NOT EXISTS ledger_effect ON ledger (effect)",
        """
        CREATE TABLE IF NOT EXISTS questions (
            effect TEXT NOT NULL, name TEXT NOT NULL, thread TEXT NOT NULL,
            position INTEGER NOT NULL, PRIMARY KEY (effect, name)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE IF NOT EXISTS remarks (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, thread TEXT NOT NULL,
            text TEXT NOT NULL, read INTEGER NOT NULL DEFAULT 0,
            at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
        )
        """,
        "CREATE INDEX IF NOT EXISTS remarks_thread ON remarks (thread)",
        """
        CREATE TABLE IF NOT EXISTS events (
            thread TEXT NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL,
            PRIMARY KEY (thread, seq)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE IF NOT EXISTS a2a_tasks (
            id TEXT PRIMARY KEY, context TEXT NOT NULL, state INTEGER NOT NULL, task BLOB NOT NULL
        )
        """,
    ),
    postgres=(
        "CREATE SEQUENCE thread_numbers",
        # SQLite's rows have a `rowid` by themselves.
        """
        CREATE TABLE threads (
            rowid BIGINT NOT NULL DEFAULT nextval('thread_numbers'),
            id TEXT PRIMARY KEY, agent TEXT NOT NULL, task TEXT NOT NULL, options TEXT NOT NULL,
            status TEXT NOT NULL, created TIMESTAMP(0) NOT NULL DEFAULT CURRENT_TIMESTAMP,
            updated TIMESTAMP(0) NOT NULL DEFAULT CURRENT_TIMESTAMP
        )
        """,
        "CREATE INDEX threads_rowid ON threads (rowid)",
        "CREATE TABLE user_messages (thread TEXT PRIMARY KEY, message TEXT NOT NULL)",
        "CREATE TABLE titles (thread TEXT PRIMARY KEY, title TEXT NOT NULL)",
        f"CREATE TABLE first_sights ({_FIRST_SIGHTS})",
        """
        CREATE TABLE ledger (
            effect TEXT PRIMARY KEY, thread TEXT NOT NULL, branch TEXT NOT NULL,
            tool TEXT NOT NULL, args TEXT NOT NULL, occurrence INTEGER NOT NULL,
            call_id TEXT NOT NULL, attempts INTEGER NOT NULL, stage TEXT NOT NULL, outcome TEXT,
            at TIMESTAMP(0) NOT NULL DEFAULT CURRENT_TIMESTAMP, checksum BIGINT
        )
        """,
        "CREATE INDEX ledger_thread ON ledger (thread)",
        """
        CREATE TABLE questions (
            effect TEXT NOT NULL, name TEXT NOT NULL, thread TEXT NOT NULL,
            position INTEGER NOT NULL, PRIMARY KEY (effect, name)
        )
        """,
        "CREATE INDEX questions_thread ON questions (thread)",
        """
        CREATE TABLE remarks (
            number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id TEXT NOT NULL UNIQUE,
            thread TEXT NOT NULL, text TEXT NOT NULL, read INTEGER NOT NULL DEFAULT 0,
            at TIMESTAMP(0) NOT NULL DEFAULT CURRENT_TIMESTAMP
        )
        """,
        "CREATE INDEX remarks_thread ON remarks (thread)",
        """
        CREATE TABLE events (
            thread TEXT NOT NULL, seq BIGINT NOT NULL, event TEXT NOT NULL,
            PRIMARY KEY (thread, seq)
        )
        """,
        """
        CREATE TABLE a2a_tasks (
            id TEXT PRIMARY KEY, context TEXT NOT NULL, state INTEGER NOT NULL, task BYTEA NOT NULL
        )
        """,
    ),
)
_LEASES = _Version(
    sqlite=(),  # the kernel's file locks are as good there
    postgres=(
        "CREATE SEQUENCE lease_tokens",
        """
        CREATE TABLE leases (
            thread TEXT PRIMARY KEY, token BIGINT NOT NULL, holder TEXT NOT NULL,
            expires TIMESTAMPTZ NOT NULL
        )
        """,
        # Whoever takes the lease over waits until the transaction that called this has ended.
        """
        CREATE FUNCTION require_lease(wanted_thread TEXT, wanted_token BIGINT) RETURNS void
        LANGUAGE plpgsql AS $$ BEGIN
            PERFORM FROM leases
            WHERE leases.thread = wanted_thread AND leases.token = wanted_token FOR SHARE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'the lease of the thread was lost' USING ERRCODE = 'OML01';
            END IF;
        END $$
        """,
    ),
)
_PLACES = "(thread TEXT PRIMARY KEY, place TEXT NOT NULL)"
_THREAD_PLACES = _Version(
    sqlite=(f"CREATE TABLE IF NOT EXISTS places {_PLACES}",),
    postgres=(f"CREATE TABLE places {_PLACES}",),
)
_MODEL_CALLS = """
    thread TEXT NOT NULL, lane TEXT NOT NULL, base {number}, shared {number} NOT NULL,
    parts TEXT NOT NULL, facts TEXT NOT NULL, checksum {number} NOT NULL
"""
_FACTS = "thread TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, checksum {number} NOT NULL"
_FLIGHT_RECORD = _Version(
    sqlite=(
        "CREATE TABLE IF NOT EXISTS model_calls (number INTEGER PRIMARY KEY,"
        f" {_MODEL_CALLS.format(number='INTEGER')})",
        "CREATE INDEX IF NOT EXISTS model_calls_thread ON model_calls (thread)",
        "CREATE TABLE IF NOT EXISTS recorded_facts (number INTEGER PRIMARY KEY,"
        f" {_FACTS.format(number='INTEGER')})",
        "CREATE INDEX IF NOT EXISTS recorded_facts_thread ON recorded_facts (thread)",
    ),
    postgres=(
        "CREATE TABLE model_calls (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        f" {_MODEL_CALLS.format(number='BIGINT')})",
        "CREATE INDEX model_calls_thread ON model_calls (thread)",
        "CREATE TABLE recorded_facts (number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        f" {_FACTS.format(number='BIGINT')})",
        "CREATE INDEX recorded_facts_thread ON recorded_facts (thread)",
    ),
)
_COMPRESSED_CHECKPOINTS = _Version(sqlite=(), postgres=())
"""The tables are the same, but earlier versions cannot read what stands in those of LangGraph."""
_VERSIONS = (_FIRST, _LEASES, _THREAD_PLACES, _FLIGHT_RECORD, _COMPRESSED_CHECKPOINTS)
CURRENT = len(_VERSIONS)
"""The version of the tables that this code reads and writes."""


def migrate_sqlite(db: sqlite3.Connection, database: str) -> None:
    """Bring the tables of a file up to date; a file that can only be read is left as it is.

    Raises:
        StorageError: They are of a later version.
        sqlite3.Error: The file is damaged, full or locked.
    """
    if sqlite_version(db, database) == CURRENT:
        return
    db.execute("BEGIN IMMEDIATE")  # another process may be at it
    try:
        for version in _VERSIONS[sqlite_version(db, database) :]:
            for step in version.sqlite:
                if isinstance(step, str):
                    db.execute(step)
                else:
                    step(db)
        db.execute(f"PRAGMA user_version = {CURRENT}")
        db.execute("COMMIT")
    except BaseException as error:
        with contextlib.suppress(sqlite3.Error):  # a full disk may have ended it already
            db.execute("ROLLBACK")
        if getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY":
            raise


def sqlite_version(db: sqlite3.Connection, database: str, known: int = CURRENT) -> int:
    """Return the version of a file's tables. StorageError: it is later than the known one."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if not 0 <= found <= known:
        raise StorageError(_NEWER.format(database=database, found=found, known=known))
    return int(found)


def check_sqlite_checkpoints(db: sqlite3.Connection) -> None:
    """Raise StorageError if a file's checkpoints are of a later version; LangGraph makes them."""
    sqlite_version(db, "The file of checkpoints")


def migrate_postgres(db: "Connection[Any]", database: str) -> None:
    """Bring our tables of a database up to date; call it while no other process does.

    Raises:
        StorageError: They are of a later version.
        psycopg.Error: The server refuses.
    """
    known = postgres_version(db, database)
    with db.transaction():
        if known is None:
            db.execute("CREATE TABLE openmanus_schema (version INTEGER NOT NULL)")
            db.execute("INSERT INTO openmanus_schema VALUES (0)")
        for version in _VERSIONS[known or 0 :]:
            for statement in version.postgres:
                db.execute(statement.encode())
        db.execute("UPDATE openmanus_schema SET version = %s", (CURRENT,))


def postgres_version(db: "Connection[Any]", database: str) -> int | None:
    """Return the version of our tables, None where there are none. StorageError: it is a later."""
    if db.execute("SELECT to_regclass('openmanus_schema') IS NULL").fetchone() == (True,):
        return None
    ((found,),) = db.execute("SELECT version FROM openmanus_schema").fetchall()
    if found > CURRENT:
        raise StorageError(_NEWER.format(database=database, found=found, known=CURRENT))
    return int(found)
