"""The usage of a run so far, also of one that was interrupted."""

from collections.abc import Mapping
from functools import reduce
from typing import Any, cast

from langgraph.types import PregelTask, StateSnapshot

from openmanus_graph.state.reducers import Usage, add_usage, no_usage


async def read_bill(graph: Any, config: Mapping[str, Any], state: StateSnapshot) -> Usage:
    """Return the usage of a run, with that of unfinished tasks and of the graphs inside them.

    Args:
        graph: The graph of the run.
        config: Names the thread.
        state: The thread's current state.
    """
    if state.tasks:
        state = await graph.aget_state(config, subgraphs=True)
    return _total(state)


def _total(state: StateSnapshot) -> Usage:
    own = _usage_in(state.values)
    return reduce(add_usage, (_of_task(task) for task in state.tasks), own)


def _of_task(task: PregelTask) -> Usage:
    # The usage of a finished task, which waits for parallel ones, is in the state's values already.
    if task.result is None and isinstance(task.state, StateSnapshot):
        return _total(task.state)
    return no_usage()


def _usage_in(values: Any) -> Usage:
    if not isinstance(values, Mapping):
        return no_usage()
    usage: Usage | None = cast("Mapping[str, Any]", values).get("usage")
    return usage or no_usage()
