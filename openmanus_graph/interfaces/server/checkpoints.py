"""The checkpointer of LangGraph's server, on the same database as the command line."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from typing_extensions import override

from openmanus_graph.backends.persistence.checkpoints import LeanSqliteSaver, open_saver
from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.config.resolve import openmanus_home
from openmanus_graph.interfaces.service.failures import prepare_home
from openmanus_graph.interfaces.service.threads import forget_thread
from openmanus_graph.runtime.session_registry import close_session

VERSION_DIGITS = 32


class ServerSaver(LeanSqliteSaver):
    """The saver with the operations that the server's API needs in addition.

    The server uses long strings as channel versions, our own runs use numbers; the file holds
    numbers, so that a thread can be resumed by either.
    """

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await super().aget_tuple(config)
        return None if found is None else _with_versions(found, _as_text)

    @override
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in super().alist(config, filter=filter, before=before, limit=limit):
            yield _with_versions(found, _as_text)

    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await super().aput(
            config, _convert_versions(checkpoint, _as_number), metadata, new_versions
        )

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await super().adelete_thread(thread_id)
        await self._worker.do(forget_thread, thread_id)
        await asyncio.to_thread(close_session, thread_id)

    @override
    async def adelete_for_runs(self, run_ids: Iterable[str]) -> None:
        await self._worker.do(self._delete_for_runs, [str(run) for run in run_ids])

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._worker.do(self._copy_thread, str(source_thread_id), str(target_thread_id))

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

    def _delete_for_runs(self, runs: list[str]) -> None:
        which = (
            "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE"
            " json_extract(CAST(metadata AS TEXT), '$.run_id') IN (SELECT value FROM json_each(?))"
        )
        with self.cursor() as cursor:
            for table in ("writes", "checkpoints"):
                cursor.execute(
                    f"DELETE FROM {table} WHERE (thread_id, checkpoint_ns, checkpoint_id)"
                    f" IN ({which})",
                    (json.dumps(runs),),
                )

    def _copy_thread(self, source: str, target: str) -> None:
        with self.cursor() as cursor:
            for table in ("checkpoints", "writes"):
                columns = [row[1] for row in cursor.execute(f"PRAGMA table_info({table})")]
                copied = ", ".join("?" if name == "thread_id" else name for name in columns)
                cursor.execute(
                    f"INSERT INTO {table} ({', '.join(columns)})"
                    f" SELECT {copied} FROM {table} WHERE thread_id = ?",
                    (target, source),
                )
        SnapshotStore(openmanus_home()).share(source, target)


_savers: list[ServerSaver] = []


@contextlib.asynccontextmanager
async def open_server_saver() -> AsyncGenerator[ServerSaver]:
    """Open the saver for as long as the server runs; langgraph.json names this function."""
    home = await asyncio.to_thread(openmanus_home)
    await asyncio.to_thread(prepare_home, home)
    async with open_saver(home, ServerSaver) as saver:
        _savers.append(saver)
        try:
            yield saver
        finally:
            _savers.remove(saver)


def saver() -> ServerSaver:
    """Return the server's saver."""
    return _savers[-1]


def _with_versions(found: CheckpointTuple, convert: Callable[[Any], Any]) -> CheckpointTuple:
    return found._replace(checkpoint=_convert_versions(found.checkpoint, convert))


def _convert_versions(checkpoint: Checkpoint, convert: Callable[[Any], Any]) -> Checkpoint:
    versions = {name: convert(version) for name, version in checkpoint["channel_versions"].items()}
    seen = {
        node: {name: convert(version) for name, version in known.items()}
        for node, known in checkpoint["versions_seen"].items()
    }
    return cast("Checkpoint", {**checkpoint, "channel_versions": versions, "versions_seen": seen})


def _as_number(version: str | int | float) -> int:
    return int(str(version).partition(".")[0])


def _as_text(version: str | int | float) -> str:
    return f"{_as_number(version):0{VERSION_DIGITS}}.0"
