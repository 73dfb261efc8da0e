"""Checkpoints in a SQLite file of their own, next to the database's."""

import contextlib
import sqlite3
from collections.abc import Generator
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


class LeanSqliteSaver(Checkpointer, SqliteSaver):
    """LangGraph's saver on a connection of ours."""

    columns = {
        "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,"
        " metadata",
        "writes": "checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value",
    }
    writes_table = "writes"
    noted = f"CAST(json_set(CAST(metadata AS TEXT), '$.{COPIED_FROM}', thread_id) AS BLOB)"
    run_id = "json_extract(CAST(metadata AS TEXT), '$.run_id')"
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
            # LangGraph's table, whose long keys it would store twice: in an index, too.
            self.conn.execute(
                "CREATE TABLE IF NOT EXISTS writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT"
                " NULL DEFAULT '', checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL, task_path"
                " TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT,"
                " value BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx))"
                " WITHOUT ROWID"
            )
            super().setup()

    @contextlib.contextmanager
    @override
    def cursor(self, transaction: bool = True) -> Generator[sqlite3.Cursor]:
        """Write all or nothing: LangGraph's commits what was written before a failure."""
        taken = self.database.writing(None) if transaction else self.database.connection()
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


def checkpoints_file(url: DatabaseUrl) -> Path:
    """Return the file of a database's checkpoints, which are written by another connection."""
    name = CHECKPOINTS if url.file.name == DATABASE else f"{url.file.stem}.{CHECKPOINTS}"
    return url.file.with_name(name)
