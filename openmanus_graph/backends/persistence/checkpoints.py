"""Checkpoints of our own runs, and what they tell of the agents inside a run."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from langchain_core.runnables import RunnableConfig

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.database import load_postgres
from openmanus_graph.backends.persistence.sqlite_checkpointer import LeanSqliteSaver
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.manus import Usage, add_usage, no_usage


def checkpointer_class(url: DatabaseUrl) -> type[Checkpointer]:
    """Return the kind of saver for a database. ConfigError: an extra is not installed."""
    if url.is_local:
        return LeanSqliteSaver
    load_postgres()
    from openmanus_graph.backends.persistence.postgres_checkpointer import LeanPostgresSaver

    return LeanPostgresSaver


def open_checkpointer(
    url: DatabaseUrl,
) -> contextlib.AbstractAsyncContextManager[Checkpointer]:
    """Open the checkpoints of a database.

    Raises:
        ConfigError: An extra is not installed.
        sqlite3.Error: It cannot be reached, is damaged, or is of a later version.
    """
    return checkpointer_class(url).opened(url)


@dataclass(frozen=True)
class EmbeddedAgents:
    """What came of the agents inside one run of a graph."""

    usage: Usage
    """Of all of them together."""
    unfinished: Mapping[str, Any] | None
    """The state of the newest agent whose last run failed or was stopped, if there is one."""


async def read_embedded_agents(saver: Checkpointer, thread: str) -> EmbeddedAgents:
    """Read the agents of a thread's newest run, those that ended and those that did not."""
    # The checkpoint that holds the newest input; a run that goes on has none.
    inputs = saver.alist(_config(thread, ""), filter={"source": "input"}, limit=1)
    began = next(iter([found.checkpoint["id"] async for found in inputs]), "")
    states: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for namespace in sorted(await saver.anamespaces(thread), key=len):
        found = await saver.aget_tuple(_config(thread, namespace)) if namespace else None
        if found is None or found.checkpoint["id"] < began:
            continue
        values = found.checkpoint["channel_values"]
        if "usage" in values and not any(_contains(outer, namespace) for outer in states):
            states[namespace] = (found.checkpoint["id"], values)
    by_age = sorted(states.items(), key=lambda item: item[1][0])
    newest = {_place_in_graph(namespace): state for namespace, state in by_age}
    ended = [values for _, values in newest.values() if values.get("status")]
    unfinished = [values for values in ended if values["status"] != "finished"]
    usage = reduce(add_usage, (values["usage"] for _, values in states.values()), no_usage())
    return EmbeddedAgents(usage, unfinished[-1] if unfinished else None)


def _config(thread: str, namespace: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}


def _contains(outer: str, namespace: str) -> bool:
    """Say whether a graph runs inside another one, whose usage counts it; `|1` is beside it."""
    return re.match(rf"{re.escape(outer)}\|(?!\d+(\||$))", namespace) is not None


def _place_in_graph(namespace: str) -> str:
    """Return where in the user's graph an agent stands, whichever of its runs it was."""
    return re.sub(r":[^|]*|\|\d+(?=\||$)", "", namespace)
