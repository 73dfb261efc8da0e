"""LangGraph's blocking checkpoint savers, run off the event loop, with additions of ours."""

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.base import id as uuid6_module
from typing_extensions import override

from openmanus_graph.backends.persistence.backend import Database, Transaction
from openmanus_graph.errors import StorageError
from openmanus_graph.state.addresses import DatabaseUrl

COPIED_FROM = "copied_from"
"""In the metadata of copied checkpoints: the thread that they were copied from."""
_ON_LINE = """
    AND checkpoint_ns = '' AND checkpoint_id IN (
        WITH RECURSIVE line(id) AS (
            SELECT ? UNION SELECT parent_checkpoint_id FROM checkpoints, line
            WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = line.id
            AND parent_checkpoint_id IS NOT NULL
        )
        SELECT id FROM line
    )
"""
"""Selects a checkpoint of a thread, and those before it."""
T = TypeVar("T")


@dataclass(eq=False)
class _TaskWrites:
    """The writes of a task, on their way to the database."""

    put: Callable[[], None]
    """Writes them; twice does no harm."""
    has_caller: bool = False
    """Whether a later call of the thread stores them as well, and raises errors."""
    is_stored: bool = False

    def store_alone(self) -> Callable[[], None]:
        """Write them if no call does, and return what is to be called after the commit."""
        if self.has_caller:
            return _nothing
        self.put()
        return self._note_stored

    def _note_stored(self) -> None:
        self.is_stored = True


class Checkpointer(BaseCheckpointSaver[str]):
    """A saver of LangGraph whose blocking methods run in threads of ours.

    LangGraph's own asynchronous savers also keep off the event loop, but change threads three or
    four times for one checkpoint; here it is once. A subclass is one of LangGraph's blocking
    savers as well.

    The writes of a task are stored together with the checkpoint that follows them, in one
    transaction, or alone within milliseconds while other tasks still run. No caller waits for them
    until then, so if they cannot be stored the next call for their thread raises the error, or the
    end of `opened` does. Writes that no checkpoint follows, such as questions to a person, are
    stored at once.
    """

    columns: ClassVar[Mapping[str, str]]
    """LangGraph's tables, and their columns in addition to `thread_id`."""
    writes_table: ClassVar[str]
    noted: ClassVar[str]
    """The metadata of a copied checkpoint, with `COPIED_FROM`, as an expression."""
    run_id: ClassVar[str]
    """The id of the run in the metadata, as an expression."""

    def __init__(self, database: Database, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.database = database
        self._task_writes: dict[str, list[_TaskWrites]] = {}
        """By thread, those that may not be stored yet, oldest first."""
        self._paused: dict[str, set[str]] = {}
        """By thread, the checkpoints after which a task has failed, or waits for a person."""

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, url: DatabaseUrl) -> AsyncGenerator[Self]:
        """Open the checkpoints of a database. StorageError if it cannot be used."""
        saver = await asyncio.to_thread(cls.of_database, url)
        try:
            try:
                yield saver
            finally:
                storing = saver._store_writes_of([*saver._task_writes])
                await asyncio.shield(asyncio.ensure_future(storing))
        finally:
            await asyncio.shield(asyncio.to_thread(saver.close))

    @classmethod
    @abstractmethod
    def of_database(cls, url: DatabaseUrl) -> Self:
        """Open the checkpoints of a database. Blocks."""

    def close(self) -> None:
        """Close what only the saver has opened. Blocks."""

    def copy_line(self, thread: str, checkpoint: str, new: str) -> None:
        """Copy a checkpoint and those before it to a new thread, all or nothing. Blocks."""
        line = (checkpoint, thread)
        with self.database.writing(None) as transaction:
            copy = partial(self._copy, transaction, thread=thread, new=new)
            copy("checkpoints", _ON_LINE, line)
            # Effects after the last point are not copied: they are to be executed again.
            copy(self.writes_table, f"{_ON_LINE} AND checkpoint_id != ?", (*line, checkpoint))
            self._copy_values(transaction, thread, new)

    def _copy_values(self, transaction: Transaction, thread: str, new: str) -> None:
        """Copy values of copied checkpoints that are in a table of their own."""

    @override
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        with self.database.writing(None) as transaction:
            for table in self.columns:
                self._copy(transaction, table, thread=source_thread_id, new=target_thread_id)

    def _copy(
        self,
        transaction: Transaction,
        table: str,
        which: str = "",
        values: Sequence[str] = (),
        *,
        thread: str,
        new: str,
    ) -> None:
        """Copy rows of a table to a new thread, if they are not there."""
        columns = self.columns[table]
        transaction.execute(
            f"INSERT INTO {table} (thread_id, {columns})"
            f" SELECT ?, {columns.replace('metadata', self.noted)} FROM {table}"
            f" WHERE thread_id = ? {which} ON CONFLICT DO NOTHING",
            (new, thread, *values),
        )

    @override
    def delete_thread(self, thread_id: str) -> None:
        with self.database.writing(thread_id) as transaction:
            for table in self.columns:
                transaction.execute(f"DELETE FROM {table} WHERE thread_id = ?", (str(thread_id),))

    @override
    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        marks = ", ".join("?" * len(run_ids)) or "NULL"
        which = (
            "(thread_id, checkpoint_ns, checkpoint_id) IN (SELECT thread_id, checkpoint_ns,"
            f" checkpoint_id FROM checkpoints WHERE {self.run_id} IN ({marks}))"
        )
        with self.database.writing(None) as transaction:
            for table in (self.writes_table, "checkpoints"):
                transaction.execute(f"DELETE FROM {table} WHERE {which}", run_ids)

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self._read(partial(self.get_tuple, config), config)
        if found is not None:
            _continue_after(found.checkpoint["id"])
        return found

    @override
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        def found() -> list[CheckpointTuple]:
            return list(self.list(config, filter=filter, before=before, limit=limit))

        for checkpoint in await self._read(found, config):
            yield checkpoint

    async def anamespaces(self, thread: str) -> list[str]:
        """Return the namespaces of a thread's checkpoints: of its graph, and of graphs inside."""
        query = "SELECT DISTINCT checkpoint_ns FROM checkpoints WHERE thread_id = ?"
        rows = await self._read(
            partial(self.database.run, query, (thread,)), {"configurable": {"thread_id": thread}}
        )
        return [row[0] for row in rows]

    @override
    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self._read(
            partial(self.get_delta_channel_history, config=config, channels=channels), config
        )

    async def _read(self, read: Callable[[], T], config: RunnableConfig | None) -> T:
        """Read what was written so far of a thread, or everything that is stored."""

        def undamaged() -> T:
            try:
                return read()
            except Exception as error:  # damaged bytes may make the decoders raise anything
                if isinstance(error, (StorageError, *self.database.errors)):
                    raise
                what = f"a checkpoint cannot be read ({error!r})"
                raise self.database.damaged(what) from error

        await self._store_writes_of(() if config is None else [thread_of(config)])
        return await self.database.off_loop(undamaged)

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread = thread_of(config)
        if not config.get("configurable", {})["checkpoint_ns"]:
            self._paused.pop(thread, None)
        put = partial(self.put, config, checkpoint, metadata, new_versions)
        return await self._write(thread, put)

    @override
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        thread = thread_of(config)
        put = partial(self.put_writes, config, writes, task_id, task_path)
        if not self._checkpoint_follows(config, writes, task_path):
            await self._write(thread, put)
            return
        written = _TaskWrites(put)
        self._task_writes.setdefault(thread, []).append(written)

        def note(_: None, __: BaseException | None) -> None:
            if written.is_stored:
                self._note_stored(thread, [written])

        self.database.write_later(written.store_alone, thread, note)

    def _checkpoint_follows(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_path: str
    ) -> bool:
        """Return True if a checkpoint will hold the result of these writes.

        Not if a task of the same superstep waits for a person or has failed, nor for writes
        outside of tasks.
        """
        thread, after = thread_of(config), config.get("configurable", {})["checkpoint_id"]
        if any(channel in WRITES_IDX_MAP for channel, _ in writes):
            self._paused.setdefault(thread, set()).add(after)
            return False
        return bool(task_path) and after not in self._paused.get(thread, ())

    async def _write(self, thread: str, job: Callable[[], T]) -> T:
        """Run a job that writes, and store the writes of the thread's tasks, or neither."""
        before = [*self._task_writes.get(thread, ())]
        try:
            return await self._store(thread, job)
        except Exception:  # of the job perhaps, which then must not keep these from being stored
            self._note_stored(thread, before)  # the caller of the job gets the error
            for written in before:
                alone = _TaskWrites(written.put)
                # Its error was raised already.
                self.database.write_later(alone.store_alone, thread, lambda _, __: None)
            raise

    async def _store(self, thread: str, job: Callable[[], T]) -> T:
        before = [*self._task_writes.get(thread, ())]
        for written in before:
            written.has_caller = True

        def execute() -> T:
            for written in before:
                if not written.is_stored:
                    written.put()
            return job()

        answer = await self.database.write(execute, thread)
        self._note_stored(thread, before)
        return answer

    async def _store_writes_of(self, threads: Iterable[str]) -> None:
        """Store what tasks of these threads have written."""
        for thread in threads:
            if thread in self._task_writes:
                await self._store(thread, _nothing)

    def _note_stored(self, thread: str, stored: Iterable[_TaskWrites]) -> None:
        left = [one for one in self._task_writes.get(thread, ()) if one not in stored]
        if left:
            self._task_writes[thread] = left
        else:
            self._task_writes.pop(thread, None)

    async def acopy_line(self, thread: str, checkpoint: str, new: str) -> None:
        await self._store_writes_of([thread])
        await self.database.off_loop(partial(self.copy_line, thread, checkpoint, new))

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source, target = str(source_thread_id), str(target_thread_id)
        await self._store_writes_of([source])
        await self.database.off_loop(partial(self.copy_thread, source, target))

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await self._store_writes_of([thread_id])  # so that they do not come after it
        await self.database.off_loop(partial(self.delete_thread, thread_id))

    @override
    async def adelete_for_runs(self, run_ids: Iterable[str]) -> None:
        runs = [str(run) for run in run_ids]
        await self.database.off_loop(partial(self.delete_for_runs, runs))

    @override
    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy == "keep_latest":
            # A checkpoint holds only the messages that are new in it: it needs those before it.
            raise NotImplementedError(
                f"The history of a thread is kept whole, not pruned by {strategy!r}: messages are "
                "stored once, where they were new, and people go back in it. Delete the thread."
            )
        for thread in thread_ids:
            await self.adelete_thread(str(thread))


def _continue_after(checkpoint_id: str) -> None:
    """Make this process's later ids sort after a checkpoint that another process may have saved.

    Without this they would not if the clock was set back between the two.
    """
    ids = cast("Any", uuid6_module)  # the newest id's time has no public name
    newest = getattr(ids, "_last_v6_timestamp", None) or 0
    ids._last_v6_timestamp = max(newest, uuid6_module.UUID(checkpoint_id).time)


def _nothing() -> None:
    """Write nothing else."""


def thread_of(config: RunnableConfig) -> str:
    """Return the id of the thread that is written for."""
    return str(config.get("configurable", {})["thread_id"])
