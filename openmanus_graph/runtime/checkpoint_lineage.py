"""Reads a run's own position in its thread's checkpoints: its namespace, and the fork it is on."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.database_url import DatabaseUrl

CHECKPOINTER_KEY = "__pregel_checkpointer"
"""Where LangGraph keeps a run's checkpointer; it has no public names for this and the next."""
MAP_KEY = "checkpoint_map"
"""The ids of the checkpoints that a node, and the graphs around it, run at."""
REPLAY_KEY = "__pregel_replay_state"
"""Set where the caller named the checkpoint to begin at."""
DURABILITY_KEY = "__pregel_durability"
NETWORK_SAVERS = (
    "postgres", "redis", "mongo", "mysql", "dynamo", "aws", "cosmos", "firestore", "couchbase",
    "snowflake", "cassandra", "oracle",
)  # fmt: skip
"""In the names of savers whose checkpoints several machines share."""
SAVE_TIMEOUT_S, POLL_S = 5.0, 0.01


def checkpointed_thread(config: RunnableConfig) -> str | None:
    """Return the id of the thread that a checkpointer keeps, if there is one."""
    configurable = config.get("configurable", {})
    # LangGraph fills in the thread's id whether or not anything is saved.
    if configurable.get(CHECKPOINTER_KEY) is None:
        return None
    return str(configurable["thread_id"])


def require_shared_ledger(config: RunnableConfig, database: DatabaseUrl) -> None:
    """Raise ConfigError where several machines share the checkpoints, but not the ledger.

    A run that goes on elsewhere would repeat effects there: that ledger does not know of them.
    """
    saver = config.get("configurable", {}).get(CHECKPOINTER_KEY)
    kinds = [f"{kind.__module__}.{kind.__qualname__}".lower() for kind in type(saver).__mro__]
    if database.is_local and any(word in kind for kind in kinds for word in NETWORK_SAVERS):
        raise ConfigError(
            f"The checkpoints are kept by {type(saver).__name__}, which other machines share, and "
            f"the ledger of effects in the local file {database}: a run that goes on elsewhere "
            "would repeat effects. Set [storage] database_url, or OPENMANUS_DATABASE_URL, to a "
            "postgresql:// address that they share, too."
        )


def outer_namespace(config: RunnableConfig) -> str:
    """Return the namespace of a node's own graph, in which that graph's checkpoints are."""
    return str(config.get("configurable", {})["checkpoint_ns"]).rpartition("|")[0]


async def fork_id_of(config: RunnableConfig) -> str:
    """Return the id of the fork that a run is on, empty if the thread was never forked before it.

    Starting from an earlier checkpoint, with or without a new message, and editing a checkpoint
    make forks. The id is the same each time the run is resumed.
    """
    thread = checkpointed_thread(config)
    if thread is None:
        return ""
    configurable = config.get("configurable", {})
    history = _History(configurable[CHECKPOINTER_KEY], thread)
    # The outermost graph's checkpoint: its forks are those of all graphs inside.
    place = configurable.get(MAP_KEY, {}).get("", "")
    from_checkpoint = configurable.get(REPLAY_KEY) is not None
    saved_each_step = configurable.get(DURABILITY_KEY) != "exit"
    current = await history.at(
        place, wait_s=SAVE_TIMEOUT_S if from_checkpoint and saved_each_step else 0.0
    )
    if current is None:
        return f"@{place}" if from_checkpoint else ""
    newest = await history.at()
    if newest is not None and _id(newest) > place:
        return f"@{place}:{_id(newest)}"  # an earlier question is answered again
    start = (
        current if current.metadata.get("source") != "loop" else await history.start_before(place)
    )
    return f"@{_id(start)}" if start is not None and await history.is_fork(start) else ""


class _History:
    """The checkpoints of a thread's outermost graph."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str) -> None:
        self._saver, self._thread = saver, thread

    async def at(self, place: str = "", *, wait_s: float = 0.0) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest.

        Args:
            place: Its id.
            wait_s: How long to wait for it: LangGraph may save it while the run continues.
        """
        config = self._config({"checkpoint_id": place} if place else {})
        found = await self._saver.aget_tuple(config)
        until = time.monotonic() + wait_s
        while found is None and time.monotonic() < until:
            await asyncio.sleep(POLL_S)
            found = await self._saver.aget_tuple(config)
        return found

    async def start_before(self, place: str) -> CheckpointTuple | None:
        """Return the newest checkpoint before this one at which a run started."""
        found = [await self._before(place, source) for source in ("fork", "update", "input")]
        return max((one for one in found if one is not None), key=_id, default=None)

    async def is_fork(self, start: CheckpointTuple) -> bool:
        """Say whether a run started at another checkpoint than the newest one."""
        if start.metadata.get("source") != "input":
            return True
        before, parent = await self._before(_id(start)), start.parent_config
        known = parent.get("configurable", {})["checkpoint_id"] if parent else ""
        return before is not None and _id(before) > known

    async def _before(self, place: str, source: str = "") -> CheckpointTuple | None:
        before = self._config({"checkpoint_id": place})
        wanted = {"source": source} if source else None
        listed = self._saver.alist(self._config({}), filter=wanted, before=before, limit=1)
        return next(iter([one async for one in listed]), None)

    def _config(self, more: Mapping[str, str]) -> RunnableConfig:
        return {"configurable": {"thread_id": self._thread, "checkpoint_ns": "", **more}}


def _id(checkpoint: CheckpointTuple) -> str:
    return str(checkpoint.config.get("configurable", {})["checkpoint_id"])
