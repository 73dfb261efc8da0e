"""What a thread's run has cost so far, also where it was stopped in the middle."""

from collections.abc import Mapping
from functools import reduce
from typing import Any, cast

from langgraph.types import PregelTask, StateSnapshot

from openmanus_graph.state.reducers import Usage, add_usage, no_usage


async def read_bill(graph: Any, config: Mapping[str, Any], state: StateSnapshot) -> Usage:
    """Return the usage of a run, with that of unfinished tasks and of the graphs inside them.

    Args:
        graph: Whose run it is.
        config: Names the thread.
        state: As it stands.
    """
    if state.tasks:
        state = await graph.aget_state(config, subgraphs=True)
    return _total(state)


def _total(state: StateSnapshot) -> Usage:
    own = _usage_in(state.values)
    return reduce(add_usage, (_of_task(task) for task in state.tasks), own)


def _of_task(task: PregelTask) -> Usage:
    # One that has ended, and waits for those beside it, is in the values of the state already.
    if task.result is None and isinstance(task.state, StateSnapshot):
        return _total(task.state)
    return no_usage()


def _usage_in(values: Any) -> Usage:
    if not isinstance(values, Mapping):
        return no_usage()
    usage: Usage | None = cast("Mapping[str, Any]", values).get("usage")
    return usage or no_usage()
