"""What each storage backend provides: tables, statements, transactions, and one kind of error.

`sqlite.py` and `postgres.py` are the two backends. All other modules write statements that both
understand, with `?` for each value.
"""

import asyncio
import json
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from openmanus_graph.backends.persistence.database_thread import DatabaseThread, OnEnd, Write
from openmanus_graph.backends.persistence.text_index import TextIndex
from openmanus_graph.errors import StorageError

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

Row = tuple[Any, ...]
Several = tuple[str, Iterable[Sequence[Any]]]
"""A statement, and rows of values for it."""
T = TypeVar("T")


class LeaseLostError(StorageError):
    """This process may no longer be a thread's worker and writes nothing more for it."""

    def __init__(self, thread: str) -> None:
        super().__init__(
            f"Another worker may have taken over thread {thread}, because this one did not respond "
            "for too long: it was paused, or could not reach the database. Nothing more was "
            "written here."
        )


class DamagedRowError(StorageError):
    """One row cannot be read. The text says which, and what to do."""


class Transaction(Protocol):
    """A transaction under way."""

    def execute(self, statement: str, values: Sequence[Any], /) -> Any:
        """Execute a statement with `?` for values."""


class Database(ABC):
    """One database, used from any thread of the process.

    All methods raise `StorageError`, and `LeaseLostError` if `worker_of` names a thread that
    another process has taken over. Without `async` they block.
    """

    errors: tuple[type[Exception], ...]
    """What the driver raises inside of jobs."""

    texts: TextIndex
    """By which threads are found."""

    _holds_checkpoints = False
    """Whether writes are committed after those to other databases, to which they may refer."""

    def __init__(self, writer: DatabaseThread) -> None:
        self._writer = writer
        self._group = threading.local()
        """`transaction` is that in which the current OS thread writes a group, while it does."""
        self.tokens: dict[str, int] = {}
        """The number of each lease that this process holds, even if it was lost, by thread."""

    @abstractmethod
    def run(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[Row]:
        """Execute one statement, which is one transaction, and return its rows."""

    @abstractmethod
    def run_many(self, *several: Several, worker_of: str | None = None) -> None:
        """Execute statements, each with each of its rows of values, all or none."""

    async def arun(
        self, statement: str, values: Sequence[Any] = (), *, worker_of: str | None = None
    ) -> list[Row]:
        """Like `run`, off the event loop. It completes even if the caller is cancelled."""
        rows: list[Row] = await self._writer.write(self._write_of(statement, values, worker_of))
        return rows

    def run_later(
        self, statement: str, values: Sequence[Any], on_end: OnEnd, *, worker_of: str | None = None
    ) -> None:
        """Like `arun`, right before the next write (perhaps a checkpoint) or in some milliseconds.

        `on_end` gets the rows or the error before the caller of the next write continues. It must
        not raise.
        """
        self._writer.write_later(self._write_of(statement, values, worker_of), on_end)

    def write(self, job: Callable[[], T], worker_of: str) -> "asyncio.Future[T]":
        """Run a blocking job that writes, in one transaction with others. It may run twice."""
        write = Write.of(job, self._commit, worker_of, is_checkpoint=self._holds_checkpoints)
        return self._writer.write(write)

    def write_later(self, execute: Callable[[], Any], worker_of: str, on_end: OnEnd) -> None:
        """Like `write`, later. `execute` returns what is called after the commit."""
        write = Write(execute, self._commit, worker_of, self._holds_checkpoints)
        self._writer.write_later(write, on_end)

    @abstractmethod
    def writing(self, worker_of: str | None) -> AbstractContextManager[Transaction]:
        """Begin a transaction, or use the one of the group that this job is written with."""

    @abstractmethod
    def _write_of(self, statement: str, values: Sequence[Any], worker_of: str | None) -> Write: ...

    @abstractmethod
    def _commit(self, writes: Sequence[Write]) -> list[Any]:
        """Execute writes in one transaction and return their answers."""

    def _commit_group(
        self, writes: Sequence[Write], transaction: AbstractContextManager[Any]
    ) -> list[Any]:
        """Execute writes in a transaction, which `writing` gives them, and return their answers."""
        with transaction as self._group.transaction:
            try:
                answers = [write.execute() for write in writes]
            finally:
                self._group.transaction = None
        return [answer() for answer in answers]

    def _group_transaction(self) -> Any:
        return getattr(self._group, "transaction", None)

    @abstractmethod
    async def off_loop(self, job: Callable[[], T]) -> T:
        """Run a blocking job off the event loop. It completes even if the caller is cancelled."""

    @abstractmethod
    def with_store(self, job: "Callable[[BaseStore], T]", *, alone: bool = False) -> T:
        """Run a job on LangGraph's long-term store, whose tables are made on first use.

        The job may run again if a connection was lost. With `alone`, no other thread or process
        runs such a job at the same time.
        """

    @abstractmethod
    def row_bytes(self, table: str) -> str:
        """Return an expression for the bytes of a row of a table. Blocks."""

    @abstractmethod
    def give_back_space(self) -> None:
        """Give the space of deleted rows back to the disk. Blocks."""

    @abstractmethod
    def damaged(self, what: str) -> StorageError:
        """Return the error for stored data that cannot be read."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until all jobs so far are done, those of cancelled callers included."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


def read_json(text: str | bytes) -> Any:
    """Read JSON that `write_json` wrote. StorageError if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise StorageError(f"A row in the database is damaged: it cannot be read ({error}).") from (
            error
        )


def read_object(stored: Any) -> dict[str, Any] | None:
    """Return a JSON object; None if its row is damaged."""
    try:
        found = read_json(stored)
    except StorageError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def write_json(value: Any) -> str:
    """Return JSON that `read_json` reads, even of half characters, which models write."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=str)
    return text


def crc32(*columns: Any) -> int:
    """Return a checksum of columns, given as text or its bytes."""
    parts = (one if isinstance(one, bytes) else str(one or "").encode() for one in columns)
    return zlib.crc32(b"\0".join(parts))


Versions = Sequence[Sequence[str]]
"""For each version of the tables, the statements that make them from the version before.

Backends write some types differently: `{number}`, `{numbered}` (a key that counts up), `{time}`,
`{bytes}`, `{rowid}` and `{by_key}` (rows are stored by their key).
A released version is never changed: a new one is added at the end.
"""
VERSIONS: Versions = (
    (
        """
        CREATE TABLE threads (
            {rowid} id TEXT PRIMARY KEY, agent TEXT NOT NULL, task TEXT NOT NULL,
            options TEXT NOT NULL, status TEXT NOT NULL, created {time}, updated {time}
        )
        """,
        "CREATE TABLE user_messages (thread TEXT PRIMARY KEY, message TEXT NOT NULL)",
        "CREATE TABLE titles (thread TEXT PRIMARY KEY, title TEXT NOT NULL)",
        "CREATE TABLE file_locations (thread TEXT PRIMARY KEY, location TEXT NOT NULL)",
        """
        CREATE TABLE first_sights (
            thread TEXT NOT NULL, branch TEXT NOT NULL, namespace TEXT NOT NULL,
            parent TEXT NOT NULL, tool TEXT NOT NULL, args TEXT NOT NULL,
            position INTEGER NOT NULL, message TEXT NOT NULL, call_id TEXT NOT NULL,
            PRIMARY KEY (thread, branch, namespace, parent, tool, args, position)
        ) {by_key}
        """,
        """
        CREATE TABLE ledger (
            effect TEXT PRIMARY KEY NOT NULL, thread TEXT NOT NULL, branch TEXT NOT NULL,
            tool TEXT NOT NULL, args TEXT NOT NULL, occurrence INTEGER NOT NULL,
            call_id TEXT NOT NULL, attempts INTEGER NOT NULL, stage TEXT NOT NULL, outcome TEXT,
            at {time}, checksum {number} NOT NULL
        )
        """,
        """
        CREATE TABLE questions (
            effect TEXT NOT NULL, name TEXT NOT NULL, thread TEXT NOT NULL,
            position INTEGER NOT NULL, PRIMARY KEY (effect, name)
        ) {by_key}
        """,
        """
        CREATE TABLE steering (
            number {numbered}, id TEXT NOT NULL UNIQUE, thread TEXT NOT NULL, text TEXT NOT NULL,
            read INTEGER NOT NULL DEFAULT 0, at {time}
        )
        """,
        "CREATE INDEX steering_thread ON steering (thread)",
        """
        CREATE TABLE events (
            thread TEXT NOT NULL, seq {number} NOT NULL, event TEXT NOT NULL,
            PRIMARY KEY (thread, seq)
        ) {by_key}
        """,
        """
        CREATE TABLE a2a_tasks (
            id TEXT PRIMARY KEY, context TEXT NOT NULL, state INTEGER NOT NULL,
            task {bytes} NOT NULL
        )
        """,
        """
        CREATE TABLE model_calls (
            number {numbered}, thread TEXT NOT NULL, caller TEXT NOT NULL, base {number},
            shared {number} NOT NULL, parts TEXT NOT NULL, facts TEXT NOT NULL,
            checksum {number} NOT NULL
        )
        """,
        "CREATE INDEX model_calls_thread ON model_calls (thread)",
        """
        CREATE TABLE recorded_facts (
            number {numbered}, thread TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
            checksum {number} NOT NULL
        )
        """,
        "CREATE INDEX recorded_facts_thread ON recorded_facts (thread)",
    ),
    (
        "ALTER TABLE threads ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE threads ADD COLUMN archived INTEGER NOT NULL DEFAULT 0",
        "CREATE TABLE owners (thread TEXT PRIMARY KEY, owner TEXT NOT NULL)",
        "CREATE INDEX owners_owner ON owners (owner)",
        """
        CREATE TABLE users (
            name TEXT PRIMARY KEY, role TEXT NOT NULL, subject TEXT NOT NULL DEFAULT '',
            created {time}
        )
        """,
        "CREATE UNIQUE INDEX users_subject ON users (subject) WHERE subject <> ''",
        """
        CREATE TABLE tokens (
            digest TEXT PRIMARY KEY, owner TEXT NOT NULL, expires {number}, created {time}
        )
        """,
        """
        CREATE TABLE shares (digest TEXT PRIMARY KEY, thread TEXT NOT NULL, created {time})
        """,
        "CREATE INDEX IF NOT EXISTS ledger_thread ON ledger (thread)",  # PostgreSQL has both
        "CREATE INDEX IF NOT EXISTS questions_thread ON questions (thread)",
        "CREATE TABLE chores (name TEXT PRIMARY KEY, at {number} NOT NULL)",
        "ALTER TABLE titles ADD COLUMN words TEXT NOT NULL DEFAULT ''",
        "CREATE TABLE indexed_threads (number {numbered}, thread TEXT NOT NULL UNIQUE)",
        "CREATE TABLE texts (number {number} PRIMARY KEY, text TEXT NOT NULL)",
        """
        CREATE TABLE call_usage (
            owner TEXT NOT NULL, day TEXT NOT NULL, run TEXT NOT NULL, model TEXT NOT NULL,
            thread TEXT NOT NULL, agent TEXT NOT NULL, trigger TEXT NOT NULL,
            calls {number} NOT NULL, input {number} NOT NULL, cached {number} NOT NULL,
            output {number} NOT NULL, dollars DOUBLE PRECISION NOT NULL,
            seconds DOUBLE PRECISION NOT NULL, PRIMARY KEY (owner, day, run, model)
        ) {by_key}
        """,
        """
        CREATE TABLE run_usage (
            id TEXT PRIMARY KEY, owner TEXT NOT NULL, day TEXT NOT NULL, thread TEXT NOT NULL,
            agent TEXT NOT NULL, trigger TEXT NOT NULL, status TEXT NOT NULL,
            began DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION NOT NULL DEFAULT 0
        )
        """,
        "CREATE INDEX run_usage_owner ON run_usage (owner, day)",
        "CREATE INDEX run_usage_running ON run_usage (thread) WHERE status = 'running'",
        """
        CREATE TABLE quotas (
            owner TEXT NOT NULL, kind TEXT NOT NULL, most DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (owner, kind)
        ) {by_key}
        """,
        "CREATE TABLE workspace_sizes (thread TEXT PRIMARY KEY, bytes {number} NOT NULL)",
    ),
    (
        """
        CREATE TABLE deliveries (
            number {numbered}, trigger TEXT NOT NULL, key TEXT NOT NULL, thread TEXT NOT NULL,
            event TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
            next_try DOUBLE PRECISION NOT NULL DEFAULT 0, result TEXT NOT NULL DEFAULT '',
            sending INTEGER NOT NULL DEFAULT 0, asked TEXT NOT NULL DEFAULT '',
            reason TEXT NOT NULL DEFAULT '', received DOUBLE PRECISION NOT NULL,
            UNIQUE (trigger, key)
        )
        """,
        "CREATE INDEX deliveries_thread ON deliveries (thread)",
        """
        CREATE INDEX deliveries_open ON deliveries (trigger, number)
        WHERE state IN ('claimed', 'running', 'done')
        """,
        """
        CREATE TABLE trigger_states (
            name TEXT PRIMARY KEY, paused INTEGER NOT NULL DEFAULT 0, mark TEXT NOT NULL DEFAULT ''
        )
        """,
    ),
)
LIBRARY: Sequence[str] = (
    """
    CREATE TABLE libraries (
        number {numbered}, owner TEXT NOT NULL, name TEXT NOT NULL,
        given {number} NOT NULL DEFAULT 0, UNIQUE (owner, name)
    )
    """,
    """
    CREATE TABLE library_documents (
        number {number} PRIMARY KEY, key TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
        digest TEXT NOT NULL, mine INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE library_passages (
        number {number} PRIMARY KEY, about TEXT NOT NULL, place TEXT NOT NULL, text TEXT NOT NULL
    )
    """,
)
"""The tables of libraries. The number of a document begins with that of its library, and that of a
passage with that of its document. `given` counts the numbers that were given to documents."""


SHARED_VERSIONS: Versions = (
    (
        "CREATE INDEX threads_rowid ON threads (rowid)",
        "CREATE INDEX ledger_thread ON ledger (thread)",
        "CREATE INDEX questions_thread ON questions (thread)",
        "CREATE SEQUENCE lease_tokens",
        """
        CREATE TABLE leases (
            thread TEXT PRIMARY KEY, token BIGINT NOT NULL, holder TEXT NOT NULL,
            expires TIMESTAMPTZ NOT NULL
        )
        """,
        # A worker that takes over the lease waits until the transaction that called this has ended.
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
    (
        "CREATE INDEX threads_listed ON threads (archived, pinned, rowid)",
        "ALTER TABLE texts ADD COLUMN words TSVECTOR NOT NULL",
        "CREATE INDEX texts_words ON texts USING gin (words)",
    ),
    (
        *LIBRARY,
        "ALTER TABLE library_passages ADD COLUMN words TSVECTOR NOT NULL",
        "CREATE INDEX library_passages_words ON library_passages USING gin (words)",
    ),
)
"""The further tables of a database that several machines share."""


def check_version(database: str, found: int, known: int, *, has_tables: bool) -> None:
    """Raise StorageError if a database has tables of a later version, or of none (0)."""
    if not 0 <= found <= known:
        raise StorageError(
            f"{database} was written by a later version of openmanus-graph (its tables have version"
            f" {found}, this one knows {known}). Update it with: pip install --upgrade"
            " openmanus-graph"
        )
    if not found and known and has_tables:
        raise StorageError(
            f"{database} was written by a version of openmanus-graph before the first release, "
            "which this version cannot read. Move it away to start with an empty one."
        )
