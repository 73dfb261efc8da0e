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

from openmanus_graph.backends.persistence.checkpointer import COPIED_FROM
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.ledger import Entry, open_ledger
from openmanus_graph.backends.persistence.model_call_records import (
    RecordedCall,
    open_model_call_records,
)
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.database_url import DatabaseUrl

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
    """What its runs were given, in order; a `Command` where one that had ended went on."""
    calls: Sequence[RecordedCall]
    """Of models, in order."""
    facts: Sequence[tuple[str, Any]]
    """What its runs had found out about their surroundings, by name and in order."""
    outcomes: Mapping[str, Entry]
    """Of the tool calls, by the digests of their keys in the ledger."""

    @property
    def model(self) -> str:
        """Name of the model that was asked first."""
        return str(self.calls[0].request[0]["name"])


async def read_flight_record(url: DatabaseUrl, known: Thread) -> FlightRecord:
    """Gather the record of a thread.

    Raises:
        ConfigError: It has none, or goes several ways.
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
    return FlightRecord(
        thread=known.id,
        agent=known.agent,
        task=known.task,
        options=known.options,
        inputs=await _inputs(url, known.id),
        calls=calls,
        facts=await asyncio.to_thread(records.facts_of, known.id),
        outcomes=await asyncio.to_thread(ledger.outcomes_of, known.id),
    )


async def _inputs(url: DatabaseUrl, thread: str) -> list[Any]:
    """Read from a thread's checkpoints what its runs were given.

    ConfigError if it began as a copy, or goes several ways.
    """
    inputs: list[Any] = []
    seen, before = set[str](), None
    async with open_checkpointer(url) as saver:
        given: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        history = [one async for one in saver.alist(given)]
    for one in reversed(history):
        values, source = one.checkpoint["channel_values"], one.metadata.get("source")
        if values.get("run_message") and (origin := one.metadata.get(COPIED_FROM)):
            raise ConfigError(
                f"Thread {thread} began as a copy of thread {origin}, whose model calls stand in "
                "that thread's record and not in its own, so it cannot be replayed. Replay that "
                f"one: openmanus replay {shlex.quote(str(origin))}"
            )
        parent = (one.parent_config or {}).get("configurable", {}).get("checkpoint_id", before)
        if source in ("fork", "update") or parent != before:
            raise ConfigError(
                f"Thread {thread} was edited or went back to an earlier point, so its record holds "
                "several ways. Only threads that went straight on can be replayed."
            )
        before = one.checkpoint["id"]
        if source == "input" and START in values:
            inputs.append(values[START])
        if restart := _restart_after(one):
            inputs.append(restart)
        run = values.get("run_message")
        if inputs and run is not None and run not in seen:
            seen.add(run)
            inputs[-1] = _with_id(inputs[-1], run)
    return inputs


def _restart_after(place: CheckpointTuple) -> Command[Any] | None:
    """Return how a run that had ended there was told to go on, if it was."""
    given = [
        channel.removeprefix(_BRANCH)
        for task, channel, value in place.pending_writes or ()
        if task == _OF_CALLER and channel.startswith(_BRANCH) and value == START
    ]
    return Command(goto=given) if given else None


def _with_id(given: Any, message_id: str) -> Any:
    """Return an input whose last message has the id that it got when it was first read.

    By it the ledger knows the calls of the run.
    """
    if isinstance(given, Command):
        return cast("Any", given)
    *others, last = convert_to_messages(given["messages"])
    return {**given, "messages": [*others, last.model_copy(update={"id": message_id})]}
