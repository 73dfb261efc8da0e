"""Checkpoints in a SQLite file of their own, beside the database's."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from langgraph.checkpoint.sqlite import SqliteSaver
from typing_extensions import override

from openmanus_graph.backends.persistence.checkpointer import (
    COPIED_FROM,
    Checkpointer,
    undamaged,
)
from openmanus_graph.backends.persistence.database_thread import (
    DatabaseThread,
    GroupConnection,
    OnEnd,
    Write,
)
from openmanus_graph.backends.persistence.schema import check_sqlite_checkpoints
from openmanus_graph.backends.persistence.sqlite import Connection
from openmanus_graph.config.homes import make_folder
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.state.addresses import DATABASE, DatabaseUrl

CHECKPOINTS = "checkpoints.db"
"""The file in the home folder."""
T = TypeVar("T")
S = TypeVar("S", bound="LeanSqliteSaver")

_LINE = """
    WITH RECURSIVE line(id) AS (
        SELECT :at UNION SELECT parent_checkpoint_id FROM checkpoints, line
        WHERE thread_id = :old AND checkpoint_ns = '' AND checkpoint_id = line.id
        AND parent_checkpoint_id IS NOT NULL
    )
"""
_COPIED_METADATA = (
    f"CAST(json_set(CAST(metadata AS TEXT), '$.{COPIED_FROM}', :old) AS BLOB) AS metadata"
)
_COPIES = (
    f"""
    INSERT INTO checkpoints
    {_LINE}
    SELECT :new, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
    {_COPIED_METADATA}
    FROM checkpoints WHERE thread_id = :old AND checkpoint_ns = '' AND checkpoint_id IN line
    """,
    # Effects after the last point are not copied: they are to be executed again.
    f"""
    INSERT INTO writes
        (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
    {_LINE}
    SELECT :new, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
    FROM writes WHERE thread_id = :old AND checkpoint_ns = '' AND checkpoint_id IN line
    AND checkpoint_id != :at
    """,
)


class LeanSqliteSaver(Checkpointer, SqliteSaver):
    """LangGraph's saver on a connection of ours.

    Args:
        connection: To the file.
        worker: The thread that the database's statements go through, too.
    """

    def __init__(self, connection: Connection, worker: DatabaseThread) -> None:
        with connection.lock:
            super().__init__(connection.get(), serde=StrictSerializer())
        self.lock = connection.lock
        self._connection = connection
        self._worker = worker
        self._group = GroupConnection[sqlite3.Cursor]()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls: type[S], url: DatabaseUrl) -> AsyncGenerator[S]:
        """Open the checkpoints of a database. sqlite3.Error if the file is damaged."""
        saver = await asyncio.to_thread(cls._of_database, url)
        try:
            async with saver.storing_all():
                yield saver
        finally:
            await asyncio.shield(asyncio.to_thread(saver.close))

    @classmethod
    def _of_database(cls: type[S], url: DatabaseUrl) -> S:
        path = checkpoints_file(url)
        make_folder(path.parent)
        connection, worker = Connection(path), DatabaseThread.shared(str(url.file))
        try:
            saver = cls(connection, worker)
            undamaged(saver.setup)
        except BaseException:
            worker.close()
            connection.close()
            raise
        return saver

    def close(self) -> None:
        """Finish what was asked for, and close the file. Blocks."""
        self._worker.close()
        self._connection.close()

    @override
    async def off_loop(self, job: Callable[[], T]) -> T:
        return await self._worker.do(job)

    @override
    def write_of(self, thread: str, job: Callable[[], T]) -> "asyncio.Future[T]":
        return self._worker.write(Write.of(job, self._commit, thread, is_checkpoint=True))

    @override
    def write_later_of(self, thread: str, execute: Callable[[], Any], on_end: OnEnd) -> None:
        self._worker.write_later(Write(execute, self._commit, thread, is_checkpoint=True), on_end)

    def _commit(self, writes: Sequence[Write]) -> list[Any]:
        """Execute writes in one transaction, and return their answers. Blocks."""
        return self._group.commit(writes, self.cursor())

    @override
    def setup(self) -> None:
        with self.lock:
            self.conn = self._connection.get()
            check_sqlite_checkpoints(self.conn)
            super().setup()

    @contextlib.contextmanager
    @override
    def cursor(self, transaction: bool = True) -> Generator[sqlite3.Cursor]:
        """Write all or nothing: LangGraph's commits what was written before a failure."""
        if self._group.current is not None:
            yield self._group.current
            return
        if transaction:
            self._connection.check_place()
        with self.lock:
            self.conn = self._connection.get()  # another one after a fork
            with contextlib.closing(self.conn.cursor()) as cursor:
                try:
                    yield cursor
                except BaseException:
                    self.conn.rollback()
                    raise
                if transaction:
                    self.conn.commit()

    @override
    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the number after the current one, as LangGraph's base class does.

        The saver's own are 50 characters each, and stand in every checkpoint for every channel:
        half of what a long thread stores. Each checkpoint holds its own values, so numbers need
        nothing random.
        """
        return (current or 0) + 1

    @override
    def namespaces(self, thread: str) -> list[str]:
        query = "SELECT DISTINCT checkpoint_ns FROM checkpoints WHERE thread_id = ?"
        with self.cursor(transaction=False) as cursor:
            return [row[0] for row in cursor.execute(query, (thread,)).fetchall()]

    @override
    def copy_line(self, thread: str, checkpoint: str, new: str) -> None:
        with self.cursor() as cursor:
            for statement in _COPIES:
                cursor.execute(statement, {"old": thread, "at": checkpoint, "new": new})

    @override
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        with self.cursor() as cursor:
            for table in ("checkpoints", "writes"):
                columns = [str(row[1]) for row in cursor.execute(f"PRAGMA table_info({table})")]
                changed = {"thread_id": ":new", "metadata": _COPIED_METADATA}
                copied = ", ".join(changed.get(name, name) for name in columns)
                cursor.execute(
                    f"INSERT INTO {table} ({', '.join(columns)})"
                    f" SELECT {copied} FROM {table} WHERE thread_id = :old",
                    {"new": target_thread_id, "old": source_thread_id},
                )

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


def checkpoints_file(url: DatabaseUrl) -> Path:
    """Return the file of a database's checkpoints, which are written by another connection."""
    name = CHECKPOINTS if url.file.name == DATABASE else f"{url.file.stem}.{CHECKPOINTS}"
    return url.file.with_name(name)
