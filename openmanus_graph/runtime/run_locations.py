"""Which run each graph, node and tool call under way belongs to, by LangChain's run ids."""

import os
import uuid
from typing import NamedTuple

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig

from openmanus_graph.runtime.traces import RunSpan


class RunLocation(NamedTuple):
    """Where a node, or a graph within it, runs."""

    run: uuid.UUID
    """Of the graph it belongs to."""
    key: str
    """Of that graph's session."""
    worker: str
    """Which of several parallel runs this is; see `WORKER_KEY`."""
    answered: bool
    """Whether the run may have been resumed with an answer."""
    span: RunSpan | None = None
    """The run's span, where runs are traced."""


locations: dict[uuid.UUID, RunLocation] = {}
"""By LangChain's run id of each running graph and node."""
tool_calls: dict[uuid.UUID, RunLocation] = {}
"""The run around each tool call that is under way."""


def location_around(parent_run_id: uuid.UUID | None, worker: str) -> RunLocation | None:
    """Return the run that another one belongs to.

    A graph that a tool runs belongs to the run around the tool if it is a worker's, as helpers
    are; any other stands for itself.
    """
    if parent_run_id is None:
        return None
    return locations.get(parent_run_id) or (tool_calls.get(parent_run_id) if worker else None)


def find_location(config: RunnableConfig) -> RunLocation | None:
    """Return where a node runs; None in a graph that is not ours."""
    callbacks = config.get("callbacks")
    parent = callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
    return locations.get(parent) if parent else None


def location_of(config: RunnableConfig) -> RunLocation:
    """Return where a node of ours runs."""
    location = find_location(config)
    if location is None:
        raise RuntimeError("This node runs outside of a graph that build_manus_graph() made.")
    return location


def _reset_after_fork() -> None:
    """Forget the parent's runs in a forked child."""
    locations.clear()
    tool_calls.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
