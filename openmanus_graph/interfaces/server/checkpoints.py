"""Checkpointer and long-term store of LangGraph's server, on the command line's database."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from typing_extensions import override

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import checkpointer_class
from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.backends.persistence.sqlite_checkpointer import LeanSqliteSaver
from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.interfaces.service.own_process import prepare_home
from openmanus_graph.interfaces.service.threads import forget_thread
from openmanus_graph.runtime.session_registry import close_session

VERSION_DIGITS = 32


class ServerSaver(Checkpointer):
    """Our saver for the server, which deletes and copies whole threads with it.

    Used as the first base of a class, before a saver's.
    """

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await super().adelete_thread(thread_id)
        await self.database.off_loop(partial(forget_thread, thread_id))
        await asyncio.to_thread(close_session, thread_id)

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await super().acopy_thread(source_thread_id, target_thread_id)
        # The copy can go back to the files of the original.
        snapshots = SnapshotStore(await asyncio.to_thread(openmanus_home))
        await asyncio.to_thread(snapshots.share, str(source_thread_id), str(target_thread_id))


class SqliteServerSaver(ServerSaver, LeanSqliteSaver):
    """The saver of SQLite for the server.

    The server uses long strings as channel versions, our own runs use numbers. The file has
    numbers, so that both can resume a thread.
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


_savers: list[ServerSaver] = []


@contextlib.asynccontextmanager
async def open_server_saver() -> AsyncGenerator[ServerSaver]:
    """Open the saver while the server runs; langgraph.json names this function."""
    home, url = await asyncio.to_thread(openmanus_home), await asyncio.to_thread(database_url)
    await asyncio.to_thread(prepare_home, home)
    kind: type[ServerSaver] = SqliteServerSaver
    if not url.is_local:
        kind = type("PostgresServerSaver", (ServerSaver, checkpointer_class(url)), {})
    async with kind.opened(url) as saver:
        _savers.append(saver)
        try:
            yield saver
        finally:
            _savers.remove(saver)


@contextlib.asynccontextmanager
async def open_server_store() -> AsyncGenerator[DatabaseStore]:
    """Open the long-term store while the server runs; langgraph.json names this function."""
    yield DatabaseStore(await asyncio.to_thread(database_url))


def saver() -> ServerSaver:
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
