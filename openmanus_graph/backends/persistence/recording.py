"""The recording of a thread: each request that its models were sent, and what came back.

A request repeats nearly all of the one before it, so a row holds the parts that are new in it, and
how many it shares with which other row. `read_recording` gathers what a replay needs.
"""

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, get_args

from langchain_core.messages import convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.constants import START
from langgraph.types import Command

from openmanus_graph.backends.persistence import backend
from openmanus_graph.backends.persistence.checkpointer import COPIED_FROM
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.ledger import LedgerEntry, open_ledger
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.runtime.checkpoint_lineage import id_of
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import ModelRole

FOLDERS = "folders"
"""Name of the fact that each run begins with: its folders, and the checkpoint it started from."""
_OWN_CHANNELS = "__"
"""Prefix of the channels that LangGraph uses for errors, questions and answers."""
_BRANCH = "branch:to:"
"""Prefix of LangGraph's channels by which a node is started."""
_OF_CALLER = "00000000-0000-0000-0000-000000000000"
"""LangGraph's id for the task of what a caller writes."""


Part = dict[str, Any]
"""One message of a request, or what was sent in addition to the messages, as JSON."""


@dataclass(frozen=True)
class NewCall:
    caller: str
    """The calls of one caller follow one another."""
    base: int | None
    """Number of the row with whose request this one begins; None: it is stored whole."""
    shared: int
    """How many parts it shares with that row."""
    parts: Sequence[Part]
    """The parts after those."""
    facts: Mapping[str, Any]
    """What else is known of the call, and the reply or the failure."""


@dataclass(frozen=True)
class RecordedCall:
    number: int
    """Among all threads' calls: later ones have higher numbers."""
    caller: str
    request: Sequence[Part]
    facts: Mapping[str, Any]

    @property
    def is_agent_step(self) -> bool:
        """Whether it asked an agent for its next step: its conversation grows with each reply."""
        nodes, *others = self.caller.split(" ")
        return nodes.split("/")[-1] == "think" and not {*others} & {*get_args(ModelRole)}

    @property
    def is_of_tool(self) -> bool:
        """Whether it was made while a tool ran, whose outcome the ledger holds."""
        return "act" in self.caller.partition(" ")[0].split("/")


class ModelCallRecords:
    """The tables of model calls and of facts about the environment."""

    def __init__(self, database: backend.Database) -> None:
        self._database = database

    def add(
        self, thread: str, call: NewCall, on_end: Callable[[int | BaseException], None]
    ) -> None:
        """Add a call, before the checkpoint that holds its reply.

        Args:
            on_end: Gets the number of its row, or why it could not be added.
        """

        def note(rows: list[backend.Row], error: BaseException | None) -> None:
            on_end(error or int(rows[0][0]))

        parts, facts = backend.write_json(call.parts), backend.write_json(call.facts)
        checksum = backend.crc32(parts, facts)
        self._database.run_later(
            "INSERT INTO model_calls (thread, caller, base, shared, parts, facts, checksum)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING number",
            (thread, call.caller, call.base, call.shared, parts, facts, checksum),
            note,
            worker_of=thread,
        )

    async def wait_for_added(self) -> None:
        await self._database.arun("SELECT 1")

    async def has(self, thread: str, number: int) -> bool:
        rows = await self._database.arun(
            "SELECT 1 FROM model_calls WHERE number = ? AND thread = ?", (number, thread)
        )
        return bool(rows)

    async def add_fact(self, thread: str, name: str, value: Any) -> None:
        """Add what a run has found out about its environment, as JSON."""
        text = backend.write_json(value)
        await self._database.arun(
            "INSERT INTO recorded_facts (thread, name, value, checksum) VALUES (?, ?, ?, ?)",
            (thread, name, text, backend.crc32(name, text)),
            worker_of=thread,
        )

    def facts_of(self, thread: str) -> list[tuple[str, Any]]:
        """Return names and values of a thread's facts, oldest first. Blocks.

        DamagedRowError: one of them is not as it was written.
        """
        rows = self._database.run(
            "SELECT name, value, checksum FROM recorded_facts WHERE thread = ? ORDER BY number",
            (thread,),
        )
        for name, value, checksum in rows:
            if checksum != backend.crc32(name, value):
                raise _damaged(thread, f"its environment ({name})")
        return [(name, backend.read_json(value)) for name, value, _ in rows]

    def of(self, thread: str) -> list[RecordedCall]:
        """Return the calls of a thread, oldest first. Blocks.

        DamagedRowError: one of them is not as it was written.
        """
        rows = self._database.run(
            "SELECT number, caller, base, shared, parts, facts, checksum FROM model_calls"
            " WHERE thread = ? ORDER BY number",
            (thread,),
        )
        found: dict[int, RecordedCall] = {}
        for position, (number, caller, base, shared, parts, facts, checksum) in enumerate(rows, 1):
            try:
                if checksum != backend.crc32(parts, facts):
                    raise StorageError("it is not as it was written")
                begin: Sequence[Part] = () if base is None else found[base].request[:shared]
                request: list[Part] = [*begin, *backend.read_json(parts)]
                found[number] = RecordedCall(number, caller, request, backend.read_json(facts))
            except (StorageError, KeyError) as error:
                raise _damaged(thread, f"model call {position}") from error
        return list(found.values())


def _damaged(thread: str, what: str) -> backend.DamagedRowError:
    return backend.DamagedRowError(
        f"Of thread {thread} the record of {what} is damaged, so it cannot be replayed. Its "
        "conversation may be undamaged: openmanus show."
    )


def open_model_call_records(url: DatabaseUrl) -> ModelCallRecords:
    """Return the recording in a database. Blocks."""
    return ModelCallRecords(open_database(url))


@dataclass(frozen=True)
class Recording:
    """What is known of a thread's runs."""

    thread: str
    agent: str
    """Its name in the catalogue."""
    task: str
    """The newest one."""
    options: Mapping[str, Any]
    """Of its runs, as given; never keys."""
    inputs: Sequence[Any]
    """The inputs of its runs, in order; a `Command` for one that continued after its end, None for
    one that continues from the beginning."""
    calls: Sequence[RecordedCall]
    """Of models, in order."""
    facts: Sequence[tuple[str, Any]]
    """What its runs found out about their environment, by name and in order."""
    outcomes: Mapping[str, LedgerEntry]
    """Of the tool calls, by the digests of their keys in the ledger."""
    beginning: Sequence[CheckpointTuple] = ()
    """The checkpoints from which the recording continues, oldest first; empty for a new thread."""

    @property
    def model(self) -> str:
        """Name of the model that was asked first."""
        return str(self.calls[0].request[0]["name"])


async def read_recording(url: DatabaseUrl, known: Thread) -> Recording:
    """Gather a thread's recording since its newest fork or return. ConfigError: it has none."""
    records = await asyncio.to_thread(open_model_call_records, url)
    calls = await asyncio.to_thread(records.of, known.id)
    if not calls:
        raise ConfigError(
            f"Thread {known.id} has no record of its model calls: it has asked no model yet."
        )
    ledger = await asyncio.to_thread(open_ledger, url)
    facts = await asyncio.to_thread(records.facts_of, known.id)
    beginning, inputs, edited_at = await _newest_course(url, known.id)
    if edited_at:
        calls, facts = _since(edited_at, known.id, calls, facts)
    return Recording(
        thread=known.id,
        agent=known.agent,
        task=known.task,
        options=known.options,
        inputs=inputs,
        calls=calls,
        facts=facts,
        outcomes=await asyncio.to_thread(ledger.outcomes_of, known.id),
        beginning=beginning,
    )


def _since(
    checkpoint_id: str, thread: str, calls: Sequence[RecordedCall], facts: Sequence[tuple[str, Any]]
) -> tuple[list[RecordedCall], list[tuple[str, Any]]]:
    """Leave out what was recorded before a checkpoint. ConfigError if nothing is left."""
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
            "of model calls since then: it has asked no model."
        )
    return newer, list(facts[first:])


async def _newest_course(
    url: DatabaseUrl, thread: str
) -> tuple[Sequence[CheckpointTuple], Sequence[Any], str]:
    """Read the newest part of a thread that ran without going back.

    Returns its beginning, its inputs, and its first checkpoint if the thread had another
    continuation before, else "". ConfigError: the thread answered an earlier question again.
    """
    async with open_checkpointer(url) as saver:
        given: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        history = [one async for one in saver.alist(given)][::-1]
    start = max((at for at in range(len(history)) if _is_start(history, at)), default=None)
    if start is None:
        return (), _inputs(history), ""
    saved = history[start]
    is_copy = COPIED_FROM in saved.metadata
    if saved.metadata.get("source") == "loop" and not is_copy:
        raise ConfigError(
            f"Thread {thread} answered an earlier question again, so its record holds several "
            "ways. Only a history without going back can be replayed. Try again from a point: "
            f"openmanus fork {shlex.quote(thread)}"
        )
    until = history[: start + 1]
    inputs = _inputs(history[start + 1 :], saved)
    if inputs and START in saved.checkpoint["channel_values"]:
        values = {**saved.checkpoint["channel_values"], START: inputs[0]}
        until[-1] = saved._replace(checkpoint={**saved.checkpoint, "channel_values": values})
        inputs[0] = None
    edited_at = "" if is_copy else saved.checkpoint["id"]
    return beginning_at(until[-1], until), inputs, edited_at


def _is_start(history: Sequence[CheckpointTuple], at: int) -> bool:
    """Return True if a checkpoint is the last copied one, or does not follow the one before it."""
    one, before = history[at], history[at - 1].checkpoint["id"] if at else ""
    if COPIED_FROM in one.metadata:
        return bool(one.checkpoint["channel_values"].get("run_message"))
    return one.metadata.get("source") in ("fork", "update") or (
        at > 0 and one.parent_config is not None and id_of(one.parent_config) != before
    )


def _inputs(history: Sequence[CheckpointTuple], saved: CheckpointTuple | None = None) -> list[Any]:
    """Return the inputs of the runs that made these checkpoints, which follow `saved`."""
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
    """Return the command by which a run that had ended there was continued, if it was."""
    given = [
        channel.removeprefix(_BRANCH)
        for task, channel, value in saved.pending_writes or ()
        if task == _OF_CALLER and channel.startswith(_BRANCH) and value == START
    ]
    return Command(goto=given) if given else None


def _with_id(given: Any, message_id: str) -> Any:
    """Return an input whose last message has its recorded id, which the ledger's keys contain."""
    if given is None or isinstance(given, Command):
        return cast("Any", given)
    *others, last = convert_to_messages(given["messages"])
    return {**given, "messages": [*others, last.model_copy(update={"id": message_id})]}


def beginning_at(
    saved: CheckpointTuple, history: Sequence[CheckpointTuple]
) -> list[CheckpointTuple]:
    """Return the beginning of a replay that continues from `saved`, without the writes after it.

    `history` holds the thread's checkpoints until then, oldest first.
    """
    parents = {id_of(one.config): id_of(one.parent_config) for one in history}
    line, at = set[str](), id_of(saved.config)
    while at in parents:
        line.add(at)
        at = parents[at]
    kept: list[CheckpointTuple] = []
    for one in history:
        written = [] if one is saved else one.pending_writes or []
        writes = [each for each in written if not each[1].startswith(_OWN_CHANNELS)]
        if id_of(one.config) not in line:
            one, writes = one._replace(checkpoint={**one.checkpoint, "channel_values": {}}), []
        kept.append(one._replace(pending_writes=writes))
    return kept


async def put_beginning(
    saver: BaseCheckpointSaver[Any], thread: str, beginning: Sequence[CheckpointTuple]
) -> None:
    """Put a beginning, from `beginning_at`, into an empty saver.

    Versions are numbered again, as each saver numbers them in its own way.
    """

    @cache
    def numbered(number: int) -> Any:
        return saver.get_next_version(cast("Any", number - 1 or None), None)

    def version(known: Any) -> Any:
        return numbered(int(str(known).partition(".")[0]))

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
        # Savers keep a version's value once: an emptied checkpoint must not replace it.
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
