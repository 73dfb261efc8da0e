"""Checkpoints in PostgreSQL, in LangGraph's own tables."""

import contextlib
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg import Cursor
from psycopg.rows import DictRow, dict_row
from typing_extensions import override

from openmanus_graph.backends.persistence import postgres
from openmanus_graph.backends.persistence.checkpointer import COPIED_FROM, Checkpointer, thread_of
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.errors import StorageError
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.state.addresses import DatabaseUrl

_TYPES = {"idx": "int", "blob": "bytea", "checkpoint": "jsonb", "metadata": "jsonb"}
"""Of the columns of LangGraph's tables that hold no text."""


def _of_lists(statement: str) -> str:
    """Return LangGraph's statement that inserts a row, for many: with a list for each column."""
    columns = statement.partition("(")[2].partition(")")[0].split(", ")
    row = ", ".join("%s" for _ in columns)
    lists = ", ".join(f"%b::{_TYPES.get(column, 'text')}[]" for column in columns)
    return statement.replace(f"VALUES ({row})", f"SELECT * FROM unnest({lists})")


_OF_COPY = """
    AND checkpoint_ns = '' AND (channel, version) IN (
        SELECT key, value FROM checkpoints AS copies,
        jsonb_each_text(copies.checkpoint -> 'channel_versions')
        WHERE copies.thread_id = ? AND copies.checkpoint_ns = ''
    )
"""


def _migrate_checkpoints(connection: postgres.Connection, database: str) -> None:
    newest, found = len(PostgresSaver.MIGRATIONS) - 1, None
    if not postgres.finds(connection, "to_regclass('checkpoint_migrations') IS NULL"):
        ((found,),) = connection.execute("SELECT max(v) FROM checkpoint_migrations").fetchall()
    if found is not None and found > newest:
        raise StorageError(
            f"The checkpoints in {database} were written by a later version of "
            "langgraph-checkpoint-postgres. Update it with: pip install --upgrade "
            "langgraph-checkpoint-postgres"
        )
    if found != newest:
        with postgres.making_tables(connection, database):
            PostgresSaver(connection).setup()  # type: ignore[arg-type]  # its cursors make dicts


class LeanPostgresSaver(Checkpointer, PostgresSaver):
    """LangGraph's saver on the connections of our database, several at once."""

    columns = {
        "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,"
        " metadata",
        "checkpoint_blobs": "checkpoint_ns, channel, version, type, blob",
        "checkpoint_writes": "checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type,"
        " blob",
    }
    writes_table = "checkpoint_writes"
    noted = f"metadata || jsonb_build_object('{COPIED_FROM}', thread_id)"
    run_id = "metadata ->> 'run_id'"
    database: postgres.PostgresDatabase
    UPSERT_CHECKPOINT_BLOBS_SQL = _of_lists(PostgresSaver.UPSERT_CHECKPOINT_BLOBS_SQL)
    UPSERT_CHECKPOINTS_SQL = _of_lists(PostgresSaver.UPSERT_CHECKPOINTS_SQL)
    UPSERT_CHECKPOINT_WRITES_SQL = _of_lists(PostgresSaver.UPSERT_CHECKPOINT_WRITES_SQL)
    INSERT_CHECKPOINT_WRITES_SQL = _of_lists(PostgresSaver.INSERT_CHECKPOINT_WRITES_SQL)

    def __init__(self, database: postgres.PostgresDatabase) -> None:
        # LangGraph's own way to a connection is not used.
        super().__init__(database, cast("Any", database), serde=StrictSerializer())
        self._writer = threading.local()
        """`thread` is the one whose checkpoint this OS thread writes."""

    @classmethod
    @override
    def of_database(cls, url: DatabaseUrl) -> Self:
        database = cast("postgres.PostgresDatabase", open_database(url))  # by the address
        database.prepare(_migrate_checkpoints)
        return cls(database)

    @contextlib.contextmanager
    @override
    def _cursor(self, *, pipeline: bool = False) -> Generator[Cursor[DictRow]]:
        with contextlib.ExitStack() as stack:
            if not pipeline:
                connection = stack.enter_context(self.database.connection())
            else:  # it writes: all or nothing
                thread = getattr(self._writer, "thread", None)
                transaction = stack.enter_context(self.database.writing(thread))
                if thread is not None:
                    yield cast("Any", _Inserts(transaction))
                    return
                connection = transaction.connection
            yield stack.enter_context(connection.cursor(binary=True, row_factory=dict_row))

    @override
    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        values = {name: _storable(one) for name, one in checkpoint["channel_values"].items()}
        stored = cast("Checkpoint", {**checkpoint, "channel_values": values})
        with self._worker_of(config):
            return super().put(config, stored, metadata, new_versions)

    @override
    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        if all(channel in WRITES_IDX_MAP for channel, _ in writes):
            writes = [*dict(writes).items()]  # they have one row a channel, which changes once
        with self._worker_of(config):
            super().put_writes(config, writes, task_id, task_path)

    @contextlib.contextmanager
    def _worker_of(self, config: RunnableConfig) -> Generator[None]:
        """Fence what is written for a run's thread: LangGraph's methods hand on no thread."""
        self._writer.thread = thread_of(config)
        try:
            yield
        finally:
            self._writer.thread = None

    @override
    def _copy_values(self, transaction: Any, thread: str, new: str) -> None:
        self._copy(transaction, "checkpoint_blobs", _OF_COPY, (new,), thread=thread, new=new)


@dataclass(frozen=True)
class _Inserts:
    """What LangGraph's `put` and `put_writes` have as a cursor: rows are inserted together."""

    _transaction: postgres.Transaction

    def execute(self, statement: str, row: Sequence[Any]) -> None:
        self.executemany(statement, [row])

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._transaction.insert(statement, rows)


def _storable(value: Any) -> Any:
    """Return a value as PostgreSQL takes it: LangGraph keeps texts as its JSON."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
