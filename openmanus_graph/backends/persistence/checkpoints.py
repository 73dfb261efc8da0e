"""The checkpoints of threads: opened by address, read as points of a history, and forked."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS
from langgraph.constants import START
from langgraph.types import Overwrite

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.database import backend_of
from openmanus_graph.config.entry_points import installed, load
from openmanus_graph.conversation.history import ENVIRONMENT_KEY
from openmanus_graph.runtime.checkpoint_lineage import (
    SNAPSHOT_KEY,
    id_of,
    snapshot_written_after,
)
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.manus import Usage, add_usage, no_usage

SHOWN_CHARS = 100


def checkpointer_class(url: DatabaseUrl) -> type[Checkpointer]:
    """Return the kind of saver for a database. ConfigError as `backend_of`."""
    if url.is_local:
        from openmanus_graph.backends.persistence.sqlite_checkpointer import LeanSqliteSaver

        return LeanSqliteSaver
    backend_of(url)
    if url.kind != "postgresql":
        point = installed("checkpointers")[url.kind]
        return load(point, "storage backend")  # type: ignore[no-any-return]  # a package's
    from openmanus_graph.backends.persistence.postgres_checkpointer import LeanPostgresSaver

    return LeanPostgresSaver


def open_checkpointer(url: DatabaseUrl) -> contextlib.AbstractAsyncContextManager[Checkpointer]:
    """Open the checkpoints of a database. ConfigError, StorageError: as for `open_database`."""
    return checkpointer_class(url).opened(url)


@dataclass(frozen=True)
class Point:
    """A checkpoint from which a thread can be continued."""

    number: int
    """LangGraph's number of the superstep."""
    checkpoint: str
    ts: str
    """When it was saved: ISO 8601, UTC."""
    what: str
    """What had happened just before; empty if nothing is shown."""
    ended: bool
    """Whether a run had ended there."""


async def points_of(saver: Checkpointer, thread: str) -> list[Point]:
    """Return the points of a thread's current branch, oldest first."""
    found = {id_of(one.config): one async for one in saver.alist(_config(thread, ""))}
    line: list[CheckpointTuple] = []
    name = next(iter(found), "")  # the newest
    while name in found:
        line.append(found[name])
        name = id_of(found[name].parent_config)
    line.reverse()
    return [
        Point(
            number=int(one.metadata.get("step", 0)),
            checkpoint=id_of(one.config),
            ts=one.checkpoint["ts"],
            what="; ".join(_written_after(before)),
            ended=_has_ended(one),
        )
        for before, one in zip(line, line[1:], strict=False)
        if one.metadata.get("source") != "input"  # its message is only there at the next one
    ]


def find_point(points: Sequence[Point], at: str) -> Point | None:
    """Return the point with that number or checkpoint id."""
    return next((point for point in points if at in (str(point.number), point.checkpoint)), None)


async def fork(saver: Checkpointer, old: str, checkpoint: str, new: str) -> None:
    """Begin a new thread with a copy of another one's history up to a checkpoint.

    Its calls have the new thread's keys in the ledger, so none counts as done. Of the writes after
    the checkpoint, it gets the snapshot of the files.
    """
    await saver.acopy_line(old, checkpoint, new)
    at = {"checkpoint_ns": "", "checkpoint_id": checkpoint}
    found = await saver.aget_tuple({"configurable": {"thread_id": old, **at}})
    if found is not None and (written := snapshot_written_after(found)):
        copied: RunnableConfig = {"configurable": {"thread_id": new, **at}}
        # Not under the id of a task, or LangGraph would take that node's task for done.
        await saver.aput_writes(copied, list(written.items()), SNAPSHOT_KEY)


def _config(thread: str, namespace: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}


def _has_ended(point: CheckpointTuple) -> bool:
    values = point.checkpoint["channel_values"]
    return not values.get(TASKS) and not any(
        name == START or name.startswith("branch:to:") for name in values
    )


def _written_after(before: CheckpointTuple) -> Iterator[str]:
    """Describe what the superstep after a checkpoint wrote."""
    for _, channel, value in before.pending_writes or ():
        if channel == "messages":
            if isinstance(value, Overwrite):
                yield "the conversation was compacted"
                continue
            messages = cast("list[AnyMessage]", value if isinstance(value, list) else [value])
            # With an environment it is the user message that an earlier superstep wrote.
            new = (one for one in messages if ENVIRONMENT_KEY not in one.additional_kwargs)
            yield from map(_message_line, new)
        elif channel == "order":
            yield f"planned {len(value)} steps"
        elif channel == "steps" and isinstance(value, dict):
            for name, fields in cast("dict[str, dict[str, Any] | None]", value).items():
                if status := (fields or {}).get("status") or (fields or {}).get("outcome"):
                    yield f"step {name}: {status}"


def _message_line(message: AnyMessage) -> str:
    text = _shorten(message.text)
    if isinstance(message, ToolMessage):
        return f"{message.name} {'failed' if message.status == 'error' else 'gave'}: {text}"
    if isinstance(message, AIMessage):
        made = [
            f"{call['name']}({json.dumps(call['args'], ensure_ascii=False)})"
            for call in message.tool_calls
        ]
        return " ".join(filter(None, (f"agent: {text}" if text else "", *map(_shorten, made))))
    return f"you: {text}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…"


@dataclass(frozen=True)
class EmbeddedAgents:
    """The results of the agents inside one run of a graph."""

    usage: Usage
    """Of all of them together."""
    unfinished: Mapping[str, Any] | None
    """The state of the newest agent whose last run failed or was stopped, if there is one."""


async def read_embedded_agents(saver: Checkpointer, thread: str) -> EmbeddedAgents:
    """Read the agents of a thread's newest run, those that ended and those that did not."""
    # The checkpoint that holds the newest input; a resumed run has none.
    inputs = saver.alist(_config(thread, ""), filter={"source": "input"}, limit=1)
    began = next(iter([found.checkpoint["id"] async for found in inputs]), "")
    states: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for namespace in sorted(await saver.anamespaces(thread), key=len):
        found = await saver.aget_tuple(_config(thread, namespace)) if namespace else None
        if found is None or found.checkpoint["id"] < began:
            continue
        values = found.checkpoint["channel_values"]
        # A graph inside another one is counted there; `|1` is a sibling.
        inside = (re.match(rf"{re.escape(one)}\|(?!\d+(\||$))", namespace) for one in states)
        if "usage" in values and not any(inside):
            states[namespace] = (found.checkpoint["id"], values)
    by_age = sorted(states.items(), key=lambda item: item[1][0])
    # By the place in the user's graph, whichever of its runs it was.
    newest = {re.sub(r":[^|]*|\|\d+(?=\||$)", "", name): state for name, state in by_age}
    ended = [values for _, values in newest.values() if values.get("status")]
    unfinished = [values for values in ended if values["status"] != "finished"]
    usage = reduce(add_usage, (values["usage"] for _, values in states.values()), no_usage())
    return EmbeddedAgents(usage, unfinished[-1] if unfinished else None)
