"""All that a thread's runs can be replayed from: gathered from its rows, or read from a bundle."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import convert_to_messages
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.constants import START
from langgraph.types import Command

from openmanus_graph.backends.persistence.beginnings import beginning_at
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
from openmanus_graph.state.storage_urls import DatabaseUrl

FOLDERS = "places"
"""Name of the fact that each run begins with: the folders it had, and the checkpoint it was at."""
_BRANCH = "branch:to:"
"""Begins the names of LangGraph's channels by which a node is started."""
_OF_CALLER = "00000000-0000-0000-0000-000000000000"
"""LangGraph's id for the task of what a caller writes."""


@dataclass(frozen=True)
class FlightRecord:
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
    """What its runs had found out about their surroundings, by name and in order."""
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


async def read_flight_record(url: DatabaseUrl, known: Thread) -> FlightRecord:
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
    return FlightRecord(
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
