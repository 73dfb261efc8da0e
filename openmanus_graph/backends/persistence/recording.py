"""All that a thread's runs can be replayed from: gathered from its rows, or read from a bundle."""

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from langchain_core.messages import (
    BaseMessage,
    convert_to_messages,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.constants import START
from langgraph.types import Command, Overwrite, Send

from openmanus_graph.backends.persistence.checkpointer import COPIED_FROM
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.ledger import LedgerEntry, open_ledger
from openmanus_graph.backends.persistence.model_call_records import (
    RecordedCall,
    open_model_call_records,
)
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.checkpoint_lineage import id_of
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.manus import DeltaSnapshot

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


FOLDERS = "places"
"""Name of the fact that each run begins with: the folders it had, and the checkpoint it was at."""
_BRANCH = "branch:to:"
"""Begins the names of LangGraph's channels by which a node is started."""
_OF_CALLER = "00000000-0000-0000-0000-000000000000"
"""LangGraph's id for the task of what a caller writes."""


@dataclass(frozen=True)
class Recording:
    """The record of a thread."""

    thread: str
    agent: str
    """Its name in the catalogue."""
    task: str
    """The newest one."""
    options: Mapping[str, Any]
    """Of its runs, as given; never keys."""
    inputs: Sequence[Any]
    """What its runs were given, in order; a `Command` where one that had ended went on, None where
    one goes on from the beginning."""
    calls: Sequence[RecordedCall]
    """Of models, in order."""
    facts: Sequence[tuple[str, Any]]
    """What its runs had found out about their environment, by name and in order."""
    outcomes: Mapping[str, LedgerEntry]
    """Of the tool calls, by the digests of their keys in the ledger."""
    beginning: Sequence[CheckpointTuple] = ()
    """The checkpoints that the record goes on from, oldest first; empty: it begins with nothing."""

    @property
    def model(self) -> str:
        """Name of the model that was asked first."""
        return str(self.calls[0].request[0]["name"])


@dataclass(frozen=True)
class _Course:
    """The way that a thread went straight on, to where it is now."""

    beginning: Sequence[CheckpointTuple]
    """As of a `FlightRecord`."""
    inputs: Sequence[Any]
    edited_at: str
    """The first checkpoint of it, where the thread itself went another way before; else empty."""


async def read_recording(url: DatabaseUrl, known: Thread) -> Recording:
    """Gather the record of a thread: of one that went back, since it did so the last time.

    Raises:
        ConfigError: It has none.
        sqlite3.Error: The database is damaged or cannot be used.
    """
    records = await asyncio.to_thread(open_model_call_records, url)
    calls = await asyncio.to_thread(records.of, known.id)
    if not calls:
        raise ConfigError(
            f"Thread {known.id} has no record of its model calls: it ran with an earlier version, "
            "or has asked no model yet."
        )
    ledger = await asyncio.to_thread(open_ledger, url)
    facts = await asyncio.to_thread(records.facts_of, known.id)
    course = await _course(url, known.id)
    if course.edited_at:
        calls, facts = _since(course.edited_at, known.id, calls, facts)
    return Recording(
        thread=known.id,
        agent=known.agent,
        task=known.task,
        options=known.options,
        inputs=course.inputs,
        calls=calls,
        facts=facts,
        outcomes=await asyncio.to_thread(ledger.outcomes_of, known.id),
        beginning=course.beginning,
    )


def _since(
    checkpoint_id: str, thread: str, calls: Sequence[RecordedCall], facts: Sequence[tuple[str, Any]]
) -> tuple[list[RecordedCall], list[tuple[str, Any]]]:
    """Leave out what was recorded on lines that a thread has left. Their checkpoints are older.

    ConfigError if nothing is left.
    """
    newer = [call for call in calls if call.facts.get("checkpoint", "") >= checkpoint_id]
    first = next(
        (
            number
            for number, (name, value) in enumerate(facts)
            if name == FOLDERS and value.get("checkpoint", "") >= checkpoint_id
        ),
        len(facts),
    )
    if not newer:
        raise ConfigError(
            f"Thread {thread} was edited or went back to an earlier point, and there is no record "
            "of model calls since then: it has asked no model, or ran with an earlier version."
        )
    return newer, list(facts[first:])


async def _course(url: DatabaseUrl, thread: str) -> _Course:
    """Read from a thread's checkpoints how it came to where it is.

    ConfigError if it answered an earlier question again.
    """
    async with open_checkpointer(url) as saver:
        given: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        history = [one async for one in saver.alist(given)][::-1]
    start = max((at for at in range(len(history)) if _is_start(history, at)), default=None)
    if start is None:
        return _Course((), _inputs(history), "")
    saved = history[start]
    is_copy = COPIED_FROM in saved.metadata
    if saved.metadata.get("source") == "loop" and not is_copy:
        raise ConfigError(
            f"Thread {thread} answered an earlier question again, so its record holds several "
            f"ways. Only what goes straight on can be replayed. Try again from a point: openmanus "
            f"fork {shlex.quote(thread)}"
        )
    until = history[: start + 1]
    inputs = _inputs(history[start + 1 :], saved)
    if inputs and START in saved.checkpoint["channel_values"]:
        values = {**saved.checkpoint["channel_values"], START: inputs[0]}
        until[-1] = saved._replace(checkpoint={**saved.checkpoint, "channel_values": values})
        inputs[0] = None
    edited_at = "" if is_copy else saved.checkpoint["id"]
    return _Course(beginning_at(until[-1], until), inputs, edited_at)


def _is_start(history: Sequence[CheckpointTuple], at: int) -> bool:
    """Say whether a checkpoint is the last copied one, or no node made it of the newest."""
    one, before = history[at], history[at - 1].checkpoint["id"] if at else ""
    if COPIED_FROM in one.metadata:
        return bool(one.checkpoint["channel_values"].get("run_message"))
    return one.metadata.get("source") in ("fork", "update") or (
        at > 0 and one.parent_config is not None and id_of(one.parent_config) != before
    )


def _inputs(history: Sequence[CheckpointTuple], saved: CheckpointTuple | None = None) -> list[Any]:
    """Return what the runs were given that made these checkpoints.

    Args:
        history: The checkpoints, oldest first.
        saved: The checkpoint that they go on from, if there is one.
    """
    inputs: list[Any] = []
    before = [] if saved is None else [saved]
    seen = {one.checkpoint["channel_values"].get("run_message") for one in before}
    for one in (*before, *history):
        values, source = one.checkpoint["channel_values"], one.metadata.get("source")
        if source == "input" and START in values:
            inputs.append(values[START])
        if restart := _restart_after(one):
            inputs.append(restart)
        if not inputs and one is not saved:
            inputs.append(None)
        run = values.get("run_message")
        if inputs and run is not None and run not in seen:
            seen.add(run)
            inputs[-1] = _with_id(inputs[-1], run)
    return inputs


def _restart_after(saved: CheckpointTuple) -> Command[Any] | None:
    """Return how a run that had ended there was told to go on, if it was."""
    given = [
        channel.removeprefix(_BRANCH)
        for task, channel, value in saved.pending_writes or ()
        if task == _OF_CALLER and channel.startswith(_BRANCH) and value == START
    ]
    return Command(goto=given) if given else None


def _with_id(given: Any, message_id: str) -> Any:
    """Return an input whose last message has the id that it got when it was first read.

    By it the ledger knows the calls of the run.
    """
    if given is None or isinstance(given, Command):
        return cast("Any", given)
    *others, last = convert_to_messages(given["messages"])
    return {**given, "messages": [*others, last.model_copy(update={"id": message_id})]}
