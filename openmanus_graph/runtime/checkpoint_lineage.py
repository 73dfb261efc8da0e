"""Finds a run's position in its thread's checkpoints.

The position is its namespace, the fork it is on, and the snapshot of the files there.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.constants import START

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import DatabaseUrl

CHECKPOINTER_KEY = "__pregel_checkpointer"
"""Where LangGraph keeps a run's checkpointer; it has no public names for these keys."""
MAP_KEY = "checkpoint_map"
"""The ids of the checkpoints that a node, and the graphs around it, run at."""
REPLAY_KEY = "__pregel_replay_state"
"""Set if the caller named the checkpoint to begin at."""
DURABILITY_KEY = "__pregel_durability"
SNAPSHOT_KEY, GAP_KEY = "workspace_snapshot", "snapshot_gap"
"""Keys of the state."""
STARTS = ("fork", "update", "input")
"""Sources of checkpoints that are not made by a node."""
SCRATCHPAD_KEY = "__pregel_scratchpad"
NETWORK_SAVERS = (
    "postgres", "redis", "mongo", "mysql", "dynamo", "aws", "cosmos", "firestore", "couchbase",
    "snowflake", "cassandra", "oracle",
)  # fmt: skip
"""Parts of the names of savers whose checkpoints several machines share."""
SAVE_TIMEOUT_S, POLL_S = 5.0, 0.01


def checkpointed_thread(config: RunnableConfig) -> str | None:
    """Return the id of the thread that a checkpointer saves, if there is one."""
    configurable = config.get("configurable", {})
    # LangGraph fills in the thread's id whether or not anything is saved.
    if configurable.get(CHECKPOINTER_KEY) is None:
        return None
    return str(configurable["thread_id"])


def id_of(config: RunnableConfig | None) -> str:
    """Return the id of the checkpoint that a config names; empty if there is none."""
    return str((config or {}).get("configurable", {}).get("checkpoint_id") or "")


def has_answers(config: RunnableConfig) -> bool:
    """Return True if an `interrupt()` of a node's task may return instead of pausing the run."""
    pad: Any = config.get("configurable", {}).get(SCRATCHPAD_KEY)
    return pad is None or bool(pad.resume) or pad.get_null_resume() is not None


def require_shared_ledger(config: RunnableConfig, database: DatabaseUrl) -> None:
    """Raise ConfigError if several machines share the checkpoints but not the ledger.

    A run that continues on another machine would repeat effects that its ledger does not contain.
    """
    saver = config.get("configurable", {}).get(CHECKPOINTER_KEY)
    kinds = [f"{kind.__module__}.{kind.__qualname__}".lower() for kind in type(saver).__mro__]
    if database.is_local and any(word in kind for kind in kinds for word in NETWORK_SAVERS):
        raise ConfigError(
            f"The checkpoints are kept by {type(saver).__name__}, which other machines share, and "
            f"the ledger of effects in the local file {database}: a run that continues on "
            "another machine would repeat effects. Set [storage] database_url, or "
            "OPENMANUS_DATABASE_URL, to a postgresql:// address that they share, too."
        )


def outer_namespace(config: RunnableConfig) -> str:
    """Return the namespace of the checkpoints of a node's own graph."""
    return str(config.get("configurable", {})["checkpoint_ns"]).rpartition("|")[0]


def outermost_checkpoint(config: RunnableConfig) -> str:
    """Return the id of the outermost graph's checkpoint that a node runs at.

    Its forks are the forks of all inner graphs.
    """
    return str(config.get("configurable", {}).get(MAP_KEY, {}).get("", ""))


def own_checkpoint(config: RunnableConfig) -> str:
    """Return the id of the checkpoint of a node's own graph that the node runs at."""
    return str(config.get("configurable", {}).get(MAP_KEY, {}).get(outer_namespace(config), ""))


@dataclass(frozen=True)
class Lineage:
    """Where in its thread's history a run begins."""

    fork_id: str = ""
    """Id of the fork that the run is on; empty if the thread was not forked before."""
    came_back: str = ""
    """Id of the return to an earlier checkpoint with which this lineage began; empty if the run
    continues from the newest checkpoint. Editing the newest one is a fork but not a return."""
    snapshot: str = ""
    """Of the workspace at that point; empty if none was taken before."""
    gap: str = ""
    """Why the snapshot lacks the newest steps before; empty if it does not."""


async def lineage_of(config: RunnableConfig) -> Lineage:
    """Return where the run of a node begins; the same each time the run is resumed.

    Starting from an earlier checkpoint, with or without a new message, and editing a checkpoint
    create forks.
    """
    history = _history_of(config)
    if history is None:
        return Lineage()
    lineage, saved = await _begin(config, history)
    snapshot, gap = await history.snapshot_at(saved, or_later=bool(lineage.came_back))
    return replace(lineage, snapshot=snapshot, gap=gap)


async def fork_id_of(config: RunnableConfig) -> str:
    """Return the `fork_id` of a run's lineage; this reads less than the whole lineage."""
    history = _history_of(config)
    return "" if history is None else (await _begin(config, history))[0].fork_id


def _history_of(config: RunnableConfig) -> "_History | None":
    thread = checkpointed_thread(config)
    if thread is None:
        return None
    return _History(config.get("configurable", {})[CHECKPOINTER_KEY], thread)


async def _begin(
    config: RunnableConfig, history: "_History"
) -> tuple[Lineage, CheckpointTuple | None]:
    """Return a run's lineage without snapshot, and the checkpoint whose files it begins with."""
    configurable = config.get("configurable", {})
    checkpoint_id = outermost_checkpoint(config)
    addressed = getattr(configurable.get(REPLAY_KEY), "checkpoint_id", None)
    saved_each_step = configurable.get(DURABILITY_KEY) != "exit"
    newest = await history.at()
    current = await history.at(
        checkpoint_id, wait_s=SAVE_TIMEOUT_S if addressed and saved_each_step else 0
    )
    if current is None and addressed:  # it is saved when the run has ended
        return Lineage(f"@{checkpoint_id}", f"@{checkpoint_id}"), await history.at(addressed)
    if current is None:  # it is saved soon: a message on what was newest
        return Lineage(came_back=await history.going_back_to(newest)), newest
    if newest is not None and _id(newest) > checkpoint_id:  # an earlier question is answered again
        fork_id = came_back = f"@{checkpoint_id}:{_id(newest)}"
    else:
        start: CheckpointTuple | None = current
        if current.metadata.get("source") == "loop":  # made by a node: its run started before
            found = [await history.before(checkpoint_id, source) for source in STARTS]
            start = max((one for one in found if one is not None), key=_id, default=None)
        came_back = await history.going_back_to(start)
        fork_id = ""
        if start is not None and (
            start.metadata.get("source") != "input" or await history.leaves_newest(start)
        ):
            fork_id = f"@{_id(start)}"
    return Lineage(fork_id, came_back), current


async def snapshot_at(
    saver: BaseCheckpointSaver[Any], thread: str, checkpoint: str
) -> tuple[str, str]:
    """Return `snapshot` and `gap`, as in a `Lineage`, of a thread's files at a checkpoint."""
    history = _History(saver, thread)
    return await history.snapshot_at(await history.at(checkpoint))


def known_snapshot(saved: CheckpointTuple) -> str:
    """Return the snapshot that a checkpoint itself names; `snapshot_at` also looks in others."""
    before = saved.checkpoint["channel_values"].get(SNAPSHOT_KEY)
    return snapshot_written_after(saved).get(SNAPSHOT_KEY) or before or ""


class _History:
    """The checkpoints of a thread's outermost graph."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str) -> None:
        self._saver, self._thread = saver, thread

    async def at(self, checkpoint_id: str = "", *, wait_s: float = 0.0) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest; wait for one that LangGraph saves soon."""
        config = self._config({"checkpoint_id": checkpoint_id} if checkpoint_id else {})
        found = await self._read(config)
        until = time.monotonic() + wait_s
        while found is None and time.monotonic() < until:
            await asyncio.sleep(POLL_S)
            found = await self._read(config)
        return found

    async def going_back_to(self, start: CheckpointTuple | None) -> str:
        """Return the id of the return that led to a start, also through edits; else empty."""
        while start is not None and start.metadata.get("source") in STARTS:
            if await self.leaves_newest(start):
                return f"@{_id(start)}"
            start = await self._origin(start)
        return ""

    async def snapshot_at(
        self, saved: CheckpointTuple | None, *, or_later: bool = True
    ) -> tuple[str, str]:
        """Return the snapshot of the files at a checkpoint, and why it lacks newer steps.

        With `or_later`, a later snapshot is used if there is no earlier one, which reads all
        checkpoints.
        """
        while saved is not None:
            # The node after a checkpoint takes the snapshot of the files at that checkpoint.
            written = snapshot_written_after(saved)
            origin = None if written else await self._origin(saved)
            # At a start no node ran: LangGraph added a message, or a person edited the state.
            is_start = saved.metadata.get("source") in STARTS
            if origin is None or not (is_start or START in origin.checkpoint["channel_values"]):
                values = {**saved.checkpoint["channel_values"], **written}
                found = values.get(SNAPSHOT_KEY) or "", values.get(GAP_KEY) or ""
                is_needed = or_later and not any(found)
                return await self._first_snapshot_after(saved) if is_needed else found
            saved = origin
        return "", ""

    async def _first_snapshot_after(self, saved: CheckpointTuple) -> tuple[str, str]:
        """Return the first snapshot on the lines that start at a checkpoint, as `snapshot_at` does.

        It was taken before the first call that might change files.
        """
        later = [one async for one in self._list() if _id(one) > _id(saved)]
        line = {_id(saved)}
        for one in reversed(later):  # the oldest first
            if id_of(one.parent_config) not in line:
                continue
            line.add(_id(one))
            if written := snapshot_written_after(one):
                return written.get(SNAPSHOT_KEY) or "", written.get(GAP_KEY) or ""
        return "", ""

    async def leaves_newest(self, start: CheckpointTuple) -> bool:
        """Return True if a checkpoint does not follow the one that was newest at that time."""
        before, origin = await self.before(_id(start)), await self._origin(start)
        return before is not None and _id(before) > (_id(origin) if origin else "")

    async def _origin(self, one: CheckpointTuple) -> CheckpointTuple | None:
        """Return the checkpoint that one was made from: its parent, or the one that it copies."""
        config = one.parent_config
        parent = None if config is None else await self._read(config)
        if parent is None or one.metadata.get("source") != "fork":
            return parent
        if one.metadata.get("step", 0) == parent.metadata.get("step", 0) + 1:
            return parent
        # Studio uses `as_node="__copy__"`: a copy has the original's parent.
        versions = one.checkpoint["channel_versions"]
        before = self._config({"checkpoint_id": _id(one)})
        async for other in self._list(before=before):
            is_sibling = id_of(other.parent_config) == _id(parent)
            if is_sibling and other.checkpoint["channel_versions"] == versions:
                return other
        return parent

    async def before(self, checkpoint_id: str, source: str = "") -> CheckpointTuple | None:
        before = self._config({"checkpoint_id": checkpoint_id})
        wanted = {"source": source} if source else None
        listed = self._list(filter=wanted, before=before, limit=1)
        return next(iter([one async for one in listed]), None)

    async def _read(self, config: RunnableConfig) -> CheckpointTuple | None:
        try:
            return await self._saver.aget_tuple(config)
        except NotImplementedError:  # a saver of graphs that are invoked without a loop
            return await asyncio.to_thread(self._saver.get_tuple, config)

    async def _list(self, **which: Any) -> AsyncIterator[CheckpointTuple]:
        """Yield the thread's checkpoints, the newest first, as `BaseCheckpointSaver.alist` does."""
        listed = self._saver.alist(self._config({}), **which)
        try:
            async for one in listed:
                yield one
        except NotImplementedError:  # see `_read`
            found = partial(self._saver.list, self._config({}), **which)
            for one in await asyncio.to_thread(lambda: list(found())):
                yield one

    def _config(self, more: Mapping[str, str]) -> RunnableConfig:
        return {"configurable": {"thread_id": self._thread, "checkpoint_ns": "", **more}}


def snapshot_written_after(saved: CheckpointTuple) -> dict[str, str]:
    """Return what the node after a checkpoint wrote about the snapshot that it took."""
    written = saved.pending_writes or ()
    return {key: value for _, key, value in written if key in (SNAPSHOT_KEY, GAP_KEY)}


def _id(checkpoint: CheckpointTuple) -> str:
    return id_of(checkpoint.config)
