"""Checkpoints in a SQLite file of their own, next to the database's."""

import contextlib
import json
import sqlite3
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Self

from langgraph.checkpoint.sqlite import SqliteSaver
from typing_extensions import override

from openmanus_graph.backends.persistence.checkpointer import COPIED_FROM, Checkpointer
from openmanus_graph.backends.persistence.sqlite import SqliteDatabase
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.state.addresses import DATABASE, DatabaseUrl

CHECKPOINTS = "checkpoints.db"
"""The file in the home folder."""
_COLUMNS = {
    "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
    "writes": "checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value",
}
"""LangGraph's tables, and their columns in addition to `thread_id`."""
_LINE = """
    WITH RECURSIVE line(id) AS (
        SELECT :at UNION SELECT parent_checkpoint_id FROM checkpoints, line
        WHERE thread_id = :old AND checkpoint_ns = '' AND checkpoint_id = line.id
        AND parent_checkpoint_id IS NOT NULL
    )
"""
_ON_LINE = "AND checkpoint_ns = '' AND checkpoint_id IN line"


class LeanSqliteSaver(Checkpointer, SqliteSaver):
    """LangGraph's saver on a connection of ours."""

    database: SqliteDatabase
    conn: sqlite3.Connection

    def __init__(self, database: SqliteDatabase) -> None:
        with database.connection() as connection:
            super().__init__(database, connection, serde=StrictSerializer())

    @classmethod
    @override
    def of_database(cls, url: DatabaseUrl) -> Self:
        database = SqliteDatabase(checkpoints_file(url), (), checkpoints_of=url.file)
        try:
            saver = cls(database)
            saver.setup()
        except BaseException:
            database.close()
            raise
        return saver

    @override
    def close(self) -> None:
        self.database.close()

    @override
    def setup(self) -> None:
        with self.database.connection() as self.conn:
            super().setup()

    @contextlib.contextmanager
    @override
    def cursor(self, transaction: bool = True) -> Generator[sqlite3.Cursor]:
        """Write all or nothing: LangGraph's commits what was written before a failure."""
        taken = self.database.writing() if transaction else self.database.connection()
        with taken as connection, contextlib.closing(connection.cursor()) as cursor:
            self.conn = connection  # another one after a fork
            yield cursor

    @override
    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the number after the current one, as LangGraph's base class does.

        The versions of LangGraph's SQLite saver are 50 characters each, and every checkpoint has
        one for every channel: half of what a long thread stores. Each checkpoint holds its own
        values, so that numbers need nothing random.
        """
        return (current or 0) + 1

    @override
    def namespaces(self, thread: str) -> list[str]:
        query = "SELECT DISTINCT checkpoint_ns FROM checkpoints WHERE thread_id = ?"
        with self.cursor(transaction=False) as cursor:
            return [row[0] for row in cursor.execute(query, (thread,)).fetchall()]

    @override
    def copy_line(self, thread: str, checkpoint: str, new: str) -> None:
        values = {"old": thread, "at": checkpoint, "new": new}
        with self.cursor() as cursor:
            cursor.execute(_copy("checkpoints", _LINE, _ON_LINE), values)
            # Effects after the last point are not copied: they are to be executed again.
            cursor.execute(_copy("writes", _LINE, f"{_ON_LINE} AND checkpoint_id != :at"), values)

    @override
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        with self.cursor() as cursor:
            for table in _COLUMNS:
                cursor.execute(_copy(table), {"old": source_thread_id, "new": target_thread_id})

    @override
    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        which = (
            "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE"
            " json_extract(CAST(metadata AS TEXT), '$.run_id') IN (SELECT value FROM json_each(?))"
        )
        with self.cursor() as cursor:
            for table in ("writes", "checkpoints"):
                cursor.execute(
                    f"DELETE FROM {table} WHERE (thread_id, checkpoint_ns, checkpoint_id)"
                    f" IN ({which})",
                    (json.dumps(list(run_ids)),),
                )


def _copy(table: str, given: str = "", which: str = "") -> str:
    """Return the statement that copies rows of a table to a new thread."""
    columns = _COLUMNS[table]
    noted = f"CAST(json_set(CAST(metadata AS TEXT), '$.{COPIED_FROM}', :old) AS BLOB)"
    return (
        f"INSERT INTO {table} (thread_id, {columns}) {given}"
        f" SELECT :new, {columns.replace('metadata', noted)} FROM {table}"
        f" WHERE thread_id = :old {which}"
    )


def checkpoints_file(url: DatabaseUrl) -> Path:
    """Return the file of a database's checkpoints, which are written by another connection."""
    name = CHECKPOINTS if url.file.name == DATABASE else f"{url.file.stem}.{CHECKPOINTS}"
    return url.file.with_name(name)
