"""The face of checkpoints: what LangGraph's savers have, off the event loop, and what we add."""

import contextlib
import sqlite3
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from typing_extensions import override

from openmanus_graph.backends.persistence.checkpoint_ids import continue_after
from openmanus_graph.state.storage_urls import DatabaseUrl

COPIED_FROM = "copied_from"
"""In the metadata of copied checkpoints: the thread that they were copied from."""
_CHECKED_KIND = "+crc32"
_CHECKSUM_BYTES = 4
T = TypeVar("T")
S = TypeVar("S", bound="Checkpointer")


class CheckedSerializer(JsonPlusSerializer):
    """LangGraph's serializer; a value that is not as it was written raises sqlite3.Error."""

    @override
    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, content = super().dumps_typed(obj)
        return kind + _CHECKED_KIND, content + _checksum(content)

    @override
    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, content = data
        if not kind.endswith(_CHECKED_KIND):
            return super().loads_typed(data)  # written by another saver
        content, known = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
        if _checksum(content) != known:
            raise sqlite3.DatabaseError("a checkpoint is not as it was written")
        return super().loads_typed((kind.removesuffix(_CHECKED_KIND), content))


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


class Checkpointer(BaseCheckpointSaver[str]):
    """A saver of LangGraph's whose blocking methods run in threads of ours.

    LangGraph's own asynchronous savers take the same care of the event loop, but change threads
    three or four times for one checkpoint; here it is once. A subclass is one of LangGraph's
    blocking savers as well.
    """

    database_errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    """What the driver raises; anything else means that what was read is damaged."""

    @classmethod
    def opened(cls: "type[S]", url: DatabaseUrl) -> "contextlib.AbstractAsyncContextManager[S]":
        """Open the checkpoints of a database. sqlite3.Error if it cannot be used."""
        raise NotImplementedError

    async def off_loop(self, job: Callable[[], T]) -> T:
        """Run a blocking job in a thread of the database."""
        raise NotImplementedError

    async def write_of(self, thread: str, job: Callable[[], T]) -> T:
        """Run a blocking job that writes for a thread, in one transaction with others.

        Args:
            thread: Its id.
            job: It may run more than once.
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
        found = await self._read(partial(self.get_tuple, config))
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

        for checkpoint in await self._read(found):
            yield checkpoint

    async def anamespaces(self, thread: str) -> list[str]:
        """Return where a thread has checkpoints: its own graph's, and those of graphs within."""
        return await self._read(partial(self.namespaces, thread))

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        put = partial(self.put, config, checkpoint, metadata, new_versions)
        return await self.write_of(thread_of(config), put)

    @override
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        put = partial(self.put_writes, config, writes, task_id, task_path)
        await self.write_of(thread_of(config), put)

    async def acopy_line(self, thread: str, checkpoint: str, new: str) -> None:
        """Copy a checkpoint of a thread, and those before it, to a new thread; all or nothing."""
        await self.off_loop(partial(self.copy_line, thread, checkpoint, new))

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.off_loop(partial(self.copy_thread, str(source_thread_id), str(target_thread_id)))

    @override
    async def adelete_thread(self, thread_id: str) -> None:
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
            partial(self.get_delta_channel_history, config=config, channels=channels)
        )

    async def _read(self, read: Callable[[], T]) -> T:
        return await self.off_loop(partial(undamaged, read, self.database_errors))


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
