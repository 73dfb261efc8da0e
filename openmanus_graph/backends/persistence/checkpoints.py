"""Checkpoints of our own runs: SQLite below the home folder."""

import asyncio
import contextlib
import re
import sqlite3
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from typing_extensions import override

from openmanus_graph.backends.persistence.checkpoint_ids import continue_after
from openmanus_graph.backends.persistence.database import Connection
from openmanus_graph.backends.persistence.worker import Worker
from openmanus_graph.state.reducers import Usage, add_usage, no_usage

CHECKPOINTS = "checkpoints.db"
_CHECKED_KIND = "+crc32"
_CHECKSUM_BYTES = 4
T = TypeVar("T")
Saver = TypeVar("Saver", bound="LeanSqliteSaver")


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


class LeanSqliteSaver(SqliteSaver):
    """LangGraph's saver, with a thread of its own behind the async methods.

    `AsyncSqliteSaver` takes the same care of the event loop, but changes threads three or four
    times for one checkpoint; here it is once.
    """

    def __init__(self, connection: Connection, worker: Worker) -> None:
        with connection.lock:
            super().__init__(connection.get(), serde=CheckedSerializer())
        self.lock = connection.lock
        self._connection, self._worker = connection, worker

    @override
    def setup(self) -> None:
        with self.lock:
            self.conn = self._connection.get()
            super().setup()

    @contextlib.contextmanager
    @override
    def cursor(self, transaction: bool = True) -> Generator[sqlite3.Cursor]:
        """Write all or nothing: LangGraph's commits what was written before a failure."""
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
        half of what a long thread stores. One process holds a thread, so numbers need nothing
        random.
        """
        return (current or 0) + 1

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self._worker.do(_undamaged, partial(self.get_tuple, config))
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

        for checkpoint in await self._worker.do(_undamaged, found):
            yield checkpoint

    async def namespaces(self, thread_id: str) -> list[str]:
        """Return where a thread has checkpoints: its own graph's, and those of graphs within."""

        def found() -> list[str]:
            query = "SELECT DISTINCT checkpoint_ns FROM checkpoints WHERE thread_id = ?"
            with self.cursor(transaction=False) as cursor:
                return [row[0] for row in cursor.execute(query, (thread_id,)).fetchall()]

        return await self._worker.do(_undamaged, found)

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._worker.do(self.put, config, checkpoint, metadata, new_versions)

    @override
    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await self._worker.do(self.put_writes, config, writes, task_id, task_path)

    async def run_together(self, statements: Sequence[str], values: Mapping[str, str]) -> None:
        """Execute statements, all or none of them."""

        def run() -> None:
            with self.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement, dict(values))

        await self._worker.do(run)

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await self._worker.do(self.delete_thread, thread_id)

    @override
    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        read = partial(self.get_delta_channel_history, config=config, channels=channels)
        return await self._worker.do(_undamaged, read)


def _undamaged(read: Callable[[], T]) -> T:
    """Read checkpoints; what cannot be decoded is a damaged file. Raises sqlite3.Error."""
    try:
        return read()
    except sqlite3.Error:
        raise
    except Exception as error:  # damaged bytes may make the decoders raise anything
        raise sqlite3.DatabaseError(f"a checkpoint cannot be read ({error!r})") from error


def open_checkpointer(
    home: Path,
) -> contextlib.AbstractAsyncContextManager[LeanSqliteSaver]:
    """Open the checkpoints of a home folder. sqlite3.Error if the file is damaged."""
    return open_saver(home, LeanSqliteSaver)


@contextlib.asynccontextmanager
async def open_saver(home: Path, kind: type[Saver]) -> AsyncGenerator[Saver]:
    """Open the checkpoints of a home folder with a saver of that kind."""
    worker = Worker(CHECKPOINTS)
    try:
        connection = await worker.do(Connection, home / CHECKPOINTS)
        try:
            saver = kind(connection, worker)
            await worker.do(_undamaged, saver.setup)
            yield saver
        finally:
            await asyncio.shield(worker.do(connection.close))
    finally:
        await asyncio.shield(asyncio.to_thread(worker.close))


@dataclass(frozen=True)
class EmbeddedAgents:
    """What came of the agents inside one run of a graph."""

    usage: Usage
    """Of all of them together."""
    unfinished: Mapping[str, Any] | None
    """The state of the newest agent whose last run failed or was stopped, if there is one."""


async def read_embedded_agents(saver: LeanSqliteSaver, thread: str) -> EmbeddedAgents:
    """Read the agents of a thread's newest run, those that ended and those that did not."""
    # The checkpoint that holds the newest input; a run that goes on has none.
    inputs = saver.alist(_config(thread, ""), filter={"source": "input"}, limit=1)
    began = next(iter([found.checkpoint["id"] async for found in inputs]), "")
    states: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for namespace in sorted(await saver.namespaces(thread), key=len):
        found = await saver.aget_tuple(_config(thread, namespace)) if namespace else None
        if found is None or found.checkpoint["id"] < began:
            continue
        values = found.checkpoint["channel_values"]
        if "usage" in values and not any(_contains(outer, namespace) for outer in states):
            states[namespace] = (found.checkpoint["id"], values)
    by_age = sorted(states.items(), key=lambda item: item[1][0])
    newest = {_place_in_graph(namespace): state for namespace, state in by_age}
    ended = [values for _, values in newest.values() if values.get("status")]
    unfinished = [values for values in ended if values["status"] != "finished"]
    usage = reduce(add_usage, (values["usage"] for _, values in states.values()), no_usage())
    return EmbeddedAgents(usage, unfinished[-1] if unfinished else None)


def _config(thread: str, namespace: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}


def _contains(outer: str, namespace: str) -> bool:
    """Say whether a graph runs inside another one, whose usage counts it; `|1` is beside it."""
    return re.match(rf"{re.escape(outer)}\|(?!\d+(\||$))", namespace) is not None


def _place_in_graph(namespace: str) -> str:
    """Return where in the user's graph an agent stands, whichever of its runs it was."""
    return re.sub(r":[^|]*|\|\d+(?=\||$)", "", namespace)
