"""What the checkpoints of a run's thread say to the run itself."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from openmanus_graph.limits import Progress
from openmanus_graph.state.reducers import Usage, no_usage

CHECKPOINTER_KEY = "__pregel_checkpointer"
"""Where LangGraph keeps a run's checkpointer; it has no public names for this and the next."""
MAP_KEY = "checkpoint_map"
"""The ids of the checkpoints that a node, and the graphs around it, run at."""
REPLAY_KEY = "__pregel_replay_state"
"""Set where the caller named the checkpoint to begin at."""
DURABILITY_KEY = "__pregel_durability"
SAVING_S, LOOK_S = 5.0, 0.01


def saved_thread(config: RunnableConfig) -> str | None:
    """Return the id of the thread that a checkpointer keeps, if there is one."""
    configurable = config.get("configurable", {})
    # LangGraph fills in the thread's id whether or not anything is saved.
    if configurable.get(CHECKPOINTER_KEY) is None:
        return None
    return str(configurable["thread_id"])


async def spent_beside(config: RunnableConfig) -> Progress:
    """Return what the steps beside this one had spent that ended before it began.

    After a crash or a question only unfinished ones run again; what the others brought waits to be
    merged into the state when these end, too.
    """
    spent = Progress(0, no_usage(), 0.0)
    thread = saved_thread(config)
    if thread is None:
        return spent
    configurable = config.get("configurable", {})
    # The namespace of this node is its flow's, then `run_step`, then the executor.
    around = configurable["checkpoint_ns"].split("|")[:-2]
    place = {"thread_id": thread, "checkpoint_ns": "|".join(around)}
    head = await configurable[CHECKPOINTER_KEY].aget_tuple({"configurable": place})
    for _, channel, value in (head.pending_writes or ()) if head else ():
        if channel == "usage" and isinstance(value, dict):
            spent = spent.plus(Progress(0, cast("Usage", value), 0.0))
        elif channel == "step_count" and isinstance(value, int):
            spent = spent.plus(Progress(value, no_usage(), 0.0))
    return spent


async def line_of(config: RunnableConfig) -> str:
    """Name the turn in a thread's history that a run follows, nothing where there was none.

    Going back to a checkpoint, with or without a new message, and editing one are turns. The name
    is the same each time the run is taken up again.
    """
    thread = saved_thread(config)
    if thread is None:
        return ""
    configurable = config.get("configurable", {})
    history = _History(configurable[CHECKPOINTER_KEY], thread)
    # That of the outermost graph, whose turns are those of all graphs within.
    place = configurable.get(MAP_KEY, {}).get("", "")
    turns_here = configurable.get(REPLAY_KEY) is not None
    lasting = configurable.get(DURABILITY_KEY) != "exit"
    here = await history.at(place, wait_s=SAVING_S if turns_here and lasting else 0.0)
    if here is None:
        return f"@{place}" if turns_here else ""
    newest = await history.at()
    if newest is not None and _id(newest) > place:
        return f"@{place}:{_id(newest)}"  # an earlier question is answered once more
    begin = here if here.metadata.get("source") != "loop" else await history.begin_before(place)
    return f"@{_id(begin)}" if begin is not None and await history.is_turn(begin) else ""


class _History:
    """The checkpoints of a thread's outermost graph."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str) -> None:
        self._saver, self._thread = saver, thread

    async def at(self, place: str = "", *, wait_s: float = 0.0) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest.

        Args:
            place: Its id.
            wait_s: How long it may take to be there: LangGraph may save while the run goes on.
        """
        config = self._config({"checkpoint_id": place} if place else {})
        found = await self._saver.aget_tuple(config)
        until = time.monotonic() + wait_s
        while found is None and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
            found = await self._saver.aget_tuple(config)
        return found

    async def begin_before(self, place: str) -> CheckpointTuple | None:
        """Return the newest checkpoint at which a run began, among those before this one."""
        found = [await self._before(place, source) for source in ("fork", "update", "input")]
        return max((one for one in found if one is not None), key=_id, default=None)

    async def is_turn(self, begin: CheckpointTuple) -> bool:
        """Say whether a run began elsewhere than at the end of what there was."""
        if begin.metadata.get("source") != "input":
            return True
        before, parent = await self._before(_id(begin)), begin.parent_config
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
