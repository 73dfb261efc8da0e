"""How the agents inside a user's graph ended and what they cost, read off their checkpoints.

Such a graph's own state need not say: often it has `messages` and nothing else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from langchain_core.runnables import RunnableConfig

from openmanus_graph.backends.persistence.checkpoints import LeanSqliteSaver
from openmanus_graph.state.reducers import Usage, add_usage, no_usage


@dataclass(frozen=True)
class EmbeddedAgents:
    """What came of the agents inside one run of a graph."""

    usage: Usage
    """Of all of them together."""
    unfinished: Mapping[str, Any] | None
    """The state of the newest agent whose last run failed or was stopped, if there is one."""


async def read_embedded_agents(saver: LeanSqliteSaver, thread: str) -> EmbeddedAgents:
    """Read the agents of a thread's newest run, those that ended and those that did not."""
    began = await _beginning(saver, thread)
    states: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for namespace in sorted(await saver.namespaces(thread), key=len):
        found = await saver.aget_tuple(_place(thread, namespace)) if namespace else None
        if found is None or found.checkpoint["id"] < began:
            continue
        values = found.checkpoint["channel_values"]
        if "usage" in values and not any(_is_around(outer, namespace) for outer in states):
            states[namespace] = (found.checkpoint["id"], values)
    newest = {_agent(namespace): state for namespace, state in sorted(states.items(), key=_age)}
    ended = [values for _, values in newest.values() if values.get("status")]
    unfinished = [values for values in ended if values["status"] != "finished"]
    usage = reduce(add_usage, (values["usage"] for _, values in states.values()), no_usage())
    return EmbeddedAgents(usage, unfinished[-1] if unfinished else None)


async def _beginning(saver: LeanSqliteSaver, thread: str) -> str:
    """Return the id of the checkpoint that holds the newest input; a run that goes on has none."""
    inputs = saver.alist(_place(thread, ""), filter={"source": "input"}, limit=1)
    return next(iter([found.checkpoint["id"] async for found in inputs]), "")


def _place(thread: str, namespace: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}


def _is_around(outer: str, namespace: str) -> bool:
    """Say whether a graph runs inside another one, whose usage counts it; `|1` is beside it."""
    return re.match(rf"{re.escape(outer)}\|(?!\d+(\||$))", namespace) is not None


def _agent(namespace: str) -> str:
    """Return where in the user's graph an agent stands, whichever of its runs it was."""
    return re.sub(r":[^|]*|\|\d+(?=\||$)", "", namespace)


def _age(item: tuple[str, tuple[str, Mapping[str, Any]]]) -> str:
    return item[1][0]
