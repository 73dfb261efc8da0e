"""The face of checkpoints: what LangGraph's savers have, off the event loop, and what we add."""

import asyncio
import contextlib
import sqlite3
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

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

from openmanus_graph.backends.persistence.database_thread import OnEnd
from openmanus_graph.state.addresses import DatabaseUrl


def continue_after(checkpoint_id: str) -> None:
    """Have this process's later ids sort after a checkpoint that another process may have saved.

    Without this they would not if the clock was set back between the two.
    """
    ids = cast("Any", uuid6_module)  # the newest id's time has no public name
    newest = getattr(ids, "_last_v6_timestamp", None) or 0
    ids._last_v6_timestamp = max(newest, uuid6_module.UUID(checkpoint_id).time)


COPIED_FROM = "copied_from"
"""In the metadata of copied checkpoints: the thread that they were copied from."""
T = TypeVar("T")
S = TypeVar("S", bound="Checkpointer")


@dataclass(eq=False)
class _TaskWrites:
    """What a task has written, on its way to the database."""

    put: Callable[[], None]
    """Writes it; twice does no harm."""
    has_caller: bool = False
    """Whether a later call of the thread stores it as well, and raises what fails."""
    is_stored: bool = False

    def store_alone(self) -> Callable[[], None]:
        """Write it if no call does, and return what is to be called once that is committed."""
        if self.has_caller:
            return _nothing
        self.put()
        return self.note_stored

    def note_stored(self) -> None:
        """Note that it is committed."""
        self.is_stored = True


class Checkpointer(BaseCheckpointSaver[str]):
    """A saver of LangGraph's whose blocking methods run in threads of ours.

    LangGraph's own asynchronous savers take the same care of the event loop, but change threads
    three or four times for one checkpoint; here it is once. A subclass is one of LangGraph's
    blocking savers as well.

    What a task has written is stored together with the checkpoint that follows it, in one
    transaction, or by itself within milliseconds while other tasks still run. Nobody waits for it
    until then, so if it cannot be stored the next call for its thread raises the error, or the end
    of `opened` does. What no checkpoint follows, as questions to a person, is stored at once.
    """

    database_errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    """What the driver raises; anything else means that what was read is damaged."""

    @classmethod
    def opened(cls: "type[S]", url: DatabaseUrl) -> "contextlib.AbstractAsyncContextManager[S]":
        """Open the checkpoints of a database. sqlite3.Error if it cannot be used."""
        raise NotImplementedError

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._task_writes: dict[str, list[_TaskWrites]] = {}
        """By thread, those that are not surely stored yet, oldest first."""
        self._paused: dict[str, set[str]] = {}
        """By thread, the checkpoints after which a task has failed, or waits for a person."""

    async def off_loop(self, job: Callable[[], T]) -> T:
        """Run a blocking job in a thread of the database."""
        raise NotImplementedError

    def write_of(self, thread: str, job: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a blocking job that writes for a thread, in one transaction with others.

        Args:
            thread: Its id.
            job: It may run more than once.
        """
        raise NotImplementedError

    def write_later_of(self, thread: str, execute: Callable[[], Any], on_end: OnEnd) -> None:
        """Do as `write_of` right before what is written next, or in a few milliseconds.

        Args:
            thread: Its id.
            execute: Writes, and returns what is called once that is committed.
            on_end: Is called in this event loop then, or with the error.
        """
        raise NotImplementedError

    def namespaces(self, thread: str) -> list[str]:
        """Return where a thread has checkpoints. Blocks."""
        raise NotImplementedError

    def copy_line(self, thread: str, checkpoint: str, new: str) -> None:
        """Copy a checkpoint of a thread, and those before it, to a new thread. Blocks."""
        raise NotImplementedError

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self._read(partial(self.get_tuple, config), config)
        if found is not None:
            continue_after(found.checkpoint["id"])
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
        """Return where a thread has checkpoints: its own graph's, and those of graphs within."""
        return await self._read(
            partial(self.namespaces, thread), {"configurable": {"thread_id": thread}}
        )

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, place = thread_of(config), config.get("configurable", {})
        if not place["checkpoint_ns"]:
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

        self.write_later_of(thread, written.store_alone, note)

    def _checkpoint_follows(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_path: str
    ) -> bool:
        """Say whether a checkpoint holds what comes of these writes, unless the run is cut off.

        Not where a task of the same superstep waits for a person or has failed, nor for what was
        written outside of tasks.
        """
        thread, after = thread_of(config), config.get("configurable", {})["checkpoint_id"]
        if any(channel in WRITES_IDX_MAP for channel, _ in writes):
            self._paused.setdefault(thread, set()).add(after)
            return False
        return bool(task_path) and after not in self._paused.get(thread, ())

    async def _write(self, thread: str, job: Callable[[], T]) -> T:
        """Run a job that writes, and store what the thread's tasks have written, or neither."""
        before = [*self._task_writes.get(thread, ())]
        try:
            return await self._store(thread, job)
        except Exception:  # of the job perhaps, which then must not keep these from being stored
            self._note_stored(thread, before)  # whoever waits for the job knows of it
            for written in before:
                self.write_later_of(thread, _TaskWrites(written.put).store_alone, _ignore)
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

        answer = await self.write_of(thread, execute)
        self._note_stored(thread, before)
        return answer

    async def _store_writes_of(self, threads: Iterable[str]) -> None:
        """Store what tasks of these threads have written. Raises what fails."""
        for thread in threads:
            if thread in self._task_writes:
                await self._store(thread, _nothing)

    def _note_stored(self, thread: str, stored: Iterable[_TaskWrites]) -> None:
        left = [one for one in self._task_writes.get(thread, ()) if one not in stored]
        if left:
            self._task_writes[thread] = left
        else:
            self._task_writes.pop(thread, None)

    @contextlib.asynccontextmanager
    async def storing_all(self) -> "AsyncGenerator[None]":
        """Store at the end what tasks have written and nothing has followed. Raises what fails."""
        try:
            yield
        finally:
            await asyncio.shield(asyncio.ensure_future(self._store_writes_of([*self._task_writes])))

    async def acopy_line(self, thread: str, checkpoint: str, new: str) -> None:
        """Copy a checkpoint of a thread, and those before it, to a new thread; all or nothing."""
        await self._store_writes_of([thread])
        await self.off_loop(partial(self.copy_line, thread, checkpoint, new))

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._store_writes_of([str(source_thread_id)])
        await self.off_loop(partial(self.copy_thread, str(source_thread_id), str(target_thread_id)))

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await self._store_writes_of([thread_id])  # else they would come after it
        await self.off_loop(partial(self.delete_thread, thread_id))

    @override
    async def adelete_for_runs(self, run_ids: Iterable[str]) -> None:
        await self.off_loop(partial(self.delete_for_runs, [str(run) for run in run_ids]))

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

    @override
    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self._read(
            partial(self.get_delta_channel_history, config=config, channels=channels), config
        )

    async def _read(self, read: Callable[[], T], config: RunnableConfig | None) -> T:
        """Read what was written so far of a thread, or of all what is stored."""
        await self._store_writes_of(() if config is None else [thread_of(config)])
        return await self.off_loop(partial(undamaged, read, self.database_errors))


def _nothing() -> None:
    """Write nothing but what is to be stored anyway."""


def _ignore(_: None, __: BaseException | None) -> None:
    """Say nothing more of what failed before."""


def thread_of(config: RunnableConfig) -> str:
    """Return the thread that is written for."""
    return str(config.get("configurable", {})["thread_id"])


def undamaged(
    read: Callable[[], T], database_errors: tuple[type[Exception], ...] = (sqlite3.Error,)
) -> T:
    """Read checkpoints; what cannot be decoded is a damaged database. Raises sqlite3.Error."""
    try:
        return read()
    except database_errors:
        raise
    except Exception as error:  # damaged bytes may make the decoders raise anything
        raise sqlite3.DatabaseError(f"a checkpoint cannot be read ({error!r})") from error
