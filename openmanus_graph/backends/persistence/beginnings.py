"""What a replay begins with, where a thread's record begins later than the thread does.

A thread that went back, or that was edited, goes on from a checkpoint; a fork or a copy goes on
from what it was made of. The model calls since then are replayed, and the checkpoints until then
are the beginning: the line that leads there whole, and of abandoned lines that they were there.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from typing import Any, cast

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Overwrite, Send

from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.checkpoint_lineage import id_of
from openmanus_graph.state.reducers import DeltaSnapshot

_OWN_CHANNELS = "__"
"""Begins the names of channels by which LangGraph tells itself of errors, questions and answers."""


def beginning_at(
    saved: CheckpointTuple, history: Sequence[CheckpointTuple]
) -> list[CheckpointTuple]:
    """Return what a replay begins with that goes on from a checkpoint.

    Args:
        saved: The checkpoint. What was written after it is left out: that is replayed.
        history: The thread's checkpoints until then, oldest first.
    """
    parents = {id_of(one.config): id_of(one.parent_config) for one in history}
    line, at = set[str](), id_of(saved.config)
    while at in parents:
        line.add(at)
        at = parents[at]
    return [
        _kept(one, is_last=one is saved) if id_of(one.config) in line else _emptied(one)
        for one in history
    ]


def _emptied(one: CheckpointTuple) -> CheckpointTuple:
    return one._replace(checkpoint={**one.checkpoint, "channel_values": {}}, pending_writes=[])


def _kept(one: CheckpointTuple, *, is_last: bool) -> CheckpointTuple:
    written = [] if is_last else one.pending_writes or []
    return one._replace(
        pending_writes=[each for each in written if not each[1].startswith(_OWN_CHANNELS)]
    )


async def put_beginning(
    saver: BaseCheckpointSaver[Any], thread: str, beginning: Sequence[CheckpointTuple]
) -> None:
    """Put a beginning into an empty saver.

    Args:
        saver: It numbers versions in its own way, and so they are numbered anew.
        thread: The thread's id there.
        beginning: From `beginning_at`.
    """
    version = _versions_of(saver)
    at_root = {"thread_id": thread, "checkpoint_ns": ""}
    stored = set[tuple[str, Any]]()
    for one in beginning:
        checkpoint = one.checkpoint.copy()
        versions = {name: version(at) for name, at in checkpoint["channel_versions"].items()}
        checkpoint["channel_versions"] = versions
        checkpoint["versions_seen"] = {
            node: {name: version(at) for name, at in seen.items()}
            for node, seen in checkpoint["versions_seen"].items()
        }
        # Savers keep a version's value once: what an emptied checkpoint lacks must not replace it.
        new = {name: at for name, at in versions.items() if (name, at) not in stored}
        new = new if checkpoint["channel_values"] else {}
        stored |= set(new.items())
        before: RunnableConfig = {
            "configurable": {**at_root, "checkpoint_id": id_of(one.parent_config) or None}
        }
        written = await saver.aput(before, checkpoint, one.metadata, new)
        tasks: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in one.pending_writes or ():
            tasks.setdefault(task, []).append((channel, value))
        for task, writes in tasks.items():
            await saver.aput_writes(written, writes, task)


def _versions_of(saver: BaseCheckpointSaver[Any]) -> Callable[[Any], Any]:
    @cache
    def numbered(number: int) -> Any:
        return saver.get_next_version(cast("Any", number - 1 or None), None)

    return lambda known: numbered(int(str(known).partition(".")[0]))


def checkpoint_to_json(one: CheckpointTuple) -> dict[str, Any]:
    """Return a checkpoint of a beginning as plain JSON.

    Raises:
        ConfigError: The state holds what cannot be written so.
    """
    values = {name: _to_json(value) for name, value in one.checkpoint["channel_values"].items()}
    writes = [[task, name, _to_json(value)] for task, name, value in one.pending_writes or ()]
    return {
        "checkpoint": {**one.checkpoint, "channel_values": values},
        "metadata": dict(one.metadata),
        "parent": id_of(one.parent_config),
        "writes": writes,
    }


def checkpoint_from_json(given: Mapping[str, Any], without: Set[str]) -> CheckpointTuple:
    """Return the checkpoint that `checkpoint_to_json` was given.

    Args:
        given: What that returned.
        without: Names of what is left out of the state.
    """
    checkpoint = dict(given["checkpoint"])
    values: dict[str, Any] = checkpoint["channel_values"]
    checkpoint["channel_values"] = {
        name: _from_json(value) for name, value in values.items() if name not in without
    }
    return CheckpointTuple(
        config={"configurable": {"checkpoint_id": checkpoint["id"]}},
        checkpoint=cast("Any", checkpoint),  # as it was written above
        metadata=given["metadata"],
        parent_config={"configurable": {"checkpoint_id": given["parent"]}},
        pending_writes=[
            (task, name, _from_json(value))
            for task, name, value in given["writes"]
            if name not in without
        ],
    )


def _to_json(value: Any) -> Any:
    """Return a value of the state as JSON; what is no plain value in an object of one key."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, BaseMessage):
        return {"message": message_to_dict(value)}
    if isinstance(value, Overwrite):
        return {"overwrite": _to_json(value.value)}
    if isinstance(value, Send):
        return {"send": [value.node, _to_json(value.arg)]}
    if isinstance(value, DeltaSnapshot):
        return {"snapshot": _to_json(value.value)}
    if isinstance(value, dict):
        values = cast("dict[str, Any]", value)
        return {"object": {str(key): _to_json(one) for key, one in values.items()}}
    if isinstance(value, list | tuple):
        return [_to_json(one) for one in cast("Sequence[Any]", value)]
    raise ConfigError(
        f"The run went back, or began as a fork, and its state of then holds "
        f"what no bundle can hold ({type(value).__name__}). Replay the thread where it ran."
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = cast("dict[str, Any]", value).items()
    if kind == "message":
        return messages_from_dict([inner])[0]
    if kind == "send":
        return Send(inner[0], _from_json(inner[1]))
    if kind == "object":
        return {key: _from_json(one) for key, one in inner.items()}
    if kind == "overwrite":
        return Overwrite(_from_json(inner))
    if kind == "snapshot":
        return DeltaSnapshot(_from_json(inner))
    raise ConfigError(f"The bundle is refused: its state holds {kind!r}, which is not known.")
