"""What the checkpoints of a run's thread say to the run itself."""

from typing import Any, cast

from langchain_core.runnables import RunnableConfig

from openmanus_graph.limits import Progress
from openmanus_graph.state.reducers import Usage, no_usage

CHECKPOINTER_KEY = "__pregel_checkpointer"
"""Where LangGraph keeps a run's checkpointer; it has no public name for it."""


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
    """Name the fork that a run is, nothing for one that simply goes on.

    Going back to a checkpoint, or editing one, makes a new checkpoint that says so.
    """
    thread = saved_thread(config)
    if thread is None:
        return ""
    saver: Any = config.get("configurable", {})[CHECKPOINTER_KEY]
    head = await saver.aget_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
    if head is None or head.metadata.get("source") not in ("fork", "update"):
        return ""
    return f"@{head.config['configurable']['checkpoint_id']}"
