"""The recording: each request that a thread's models were sent, and what came back.

A request repeats nearly all of the one before it, so a row holds the parts that are new in it, and
how many it shares with which other row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from openmanus_graph.backends.persistence.backend import (
    DamagedRowError,
    Database,
    Row,
    crc32,
    read_json,
    write_json,
)
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.errors import StorageError
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import ModelRole

Part = dict[str, Any]
"""One message of a request, or what was sent in addition to the messages, as JSON."""


@dataclass(frozen=True)
class NewCall:
    """A model call that is to be recorded."""

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
    """A model call as it was recorded."""

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

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, thread: str, call: NewCall, on_end: Callable[[int | BaseException], None]
    ) -> None:
        """Add a call, before the checkpoint that holds its reply.

        Args:
            on_end: Gets the number of its row, or why it could not be added.
        """

        def note(rows: list[Row], error: BaseException | None) -> None:
            on_end(error or int(rows[0][0]))

        parts, facts = write_json(call.parts), write_json(call.facts)
        self._database.run_later(
            "INSERT INTO model_calls (thread, caller, base, shared, parts, facts, checksum)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING number",
            (thread, call.caller, call.base, call.shared, parts, facts, crc32(parts, facts)),
            note,
            worker_of=thread,
        )

    async def wait_for_added(self) -> None:
        """Wait until the calls so far are added."""
        await self._database.arun("SELECT 1")

    async def has(self, thread: str, number: int) -> bool:
        """Return True if a call of a thread is still there."""
        rows = await self._database.arun(
            "SELECT 1 FROM model_calls WHERE number = ? AND thread = ?", (number, thread)
        )
        return bool(rows)

    async def add_fact(self, thread: str, name: str, value: Any) -> None:
        """Add what a run has found out about its environment, as JSON."""
        text = write_json(value)
        await self._database.arun(
            "INSERT INTO recorded_facts (thread, name, value, checksum) VALUES (?, ?, ?, ?)",
            (thread, name, text, crc32(name, text)),
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
            if checksum != crc32(name, value):
                raise _damaged(thread, f"its environment ({name})")
        return [(name, read_json(value)) for name, value, _ in rows]

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
                if checksum != crc32(parts, facts):
                    raise StorageError("it is not as it was written")
                begin: Sequence[Part] = () if base is None else found[base].request[:shared]
                request: list[Part] = [*begin, *read_json(parts)]
                found[number] = RecordedCall(number, caller, request, read_json(facts))
            except (StorageError, KeyError) as error:
                raise _damaged(thread, f"model call {position}") from error
        return list(found.values())


def _damaged(thread: str, what: str) -> DamagedRowError:
    return DamagedRowError(
        f"Of thread {thread} the record of {what} is damaged, so it cannot be replayed. Its "
        "conversation may be whole: openmanus show."
    )


def open_model_call_records(url: DatabaseUrl) -> ModelCallRecords:
    """Return the recording in a database. Blocks."""
    return ModelCallRecords(open_database(url))
