"""Graphs for servers whose workers take over each other's runs, such as aegra."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from functools import cache
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import override

from openmanus_graph.backends.persistence.leases import LEASE_GRACE_S, LEASE_POLL_S
from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url, storage_settings
from openmanus_graph.graphs.catalog import build_agent
from openmanus_graph.interfaces.server.checkpoints import saver
from openmanus_graph.interfaces.service.lock import is_running


class SharedGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """An agent's graph whose runs go on, when a worker has died, where they were.

    A server starts the run of a dead worker again, with the same id and the same input. LangGraph
    goes on by itself where the newest checkpoint is of the same run, but not where the run began at
    an earlier checkpoint: it would go back there once more.

    It keeps its checkpoints and long-term store in our database, whatever the server hands it:
    there they are fenced by the thread's lease, and the page and the command line find them.
    """

    @override
    def copy(self, update: dict[str, Any] | None = None) -> Self:
        given = dict(update or {})
        if "checkpointer" in given:
            given |= {"checkpointer": saver(), "store": _store()}
        return super().copy(given)

    @override
    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Stream a run, as LangGraph does, when no other worker has the thread any more."""
        at: RunnableConfig = config or {}
        await _wait_for_worker(str(at.get("configurable", {})["thread_id"]))
        if "checkpoint_id" in at.get("configurable", {}) and await _has_begun(at):
            at = _at_newest(at)
        streamed = cast("AsyncGenerator[Any]", super().astream(input, at, **options))
        async with contextlib.aclosing(streamed) as parts:
            async for part in parts:
                yield part


def shared_graph(agent: str) -> SharedGraph:
    """Build an agent's graph for such a server. ConfigError: there is none of this name."""
    built: Any = build_agent(agent).with_config(metadata={"graph_id": agent})
    return SharedGraph(**cast("dict[str, Any]", vars(built)))


@cache
def _store() -> DatabaseStore:
    return DatabaseStore(database_url())


async def _wait_for_worker(thread: str) -> None:
    """Wait until no worker has a thread: that of a dead one is free when its lease has ended."""
    home = await asyncio.to_thread(openmanus_home)
    wait_s = storage_settings().lease_s + LEASE_GRACE_S
    with contextlib.suppress(TimeoutError):  # the run then says who has it
        async with asyncio.timeout(wait_s):
            while await asyncio.to_thread(is_running, home, thread):  # noqa: ASYNC110  # see above
                await asyncio.sleep(LEASE_POLL_S)


async def _has_begun(config: RunnableConfig) -> bool:
    """Say whether the newest checkpoint of the thread is of this very run."""
    given = config.get("configurable", {})
    newest = await saver().aget_tuple({"configurable": {"thread_id": given["thread_id"]}})
    return newest is not None and newest.metadata.get("run_id") == given["run_id"]


def _at_newest(config: RunnableConfig) -> RunnableConfig:
    """Leave away the earlier checkpoint that a run began at: it has gone on from there."""
    given = config.get("configurable", {})
    kept = {key: value for key, value in given.items() if not key.startswith("checkpoint_")}
    return {**config, "configurable": kept}
