"""The effect ledger: the intents of tool calls, and their outcomes.

It is written before and after each call, apart from the checkpoints. After a crash no call with an
outcome runs again, even if its checkpoint was lost, and a call without one is never repeated
unnoticed. Keys hold no step numbers: (thread, branch, tool, canonical arguments, occurrence).
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, Literal, get_args

from openmanus_graph.backends.persistence.backend import Database, Row, crc32, read_json
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.errors import StorageError
from openmanus_graph.state.addresses import DatabaseUrl

_PLACE = (
    "thread = ? AND branch = ? AND namespace = ? AND parent = ? AND tool = ? AND args = ?"
    " AND position = ?"
)
_INTEND = (
    "INSERT INTO ledger"
    " (effect, thread, branch, tool, args, occurrence, call_id, attempts, stage, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, 1, 'intent', ?)"
)
log = logging.getLogger(__name__)
Stage = Literal["intent", "task", "waiting", "done"]
CallPlace = tuple[str, str, str, str, str, int]
"""Where in a conversation a call was made: the branch, the graph's namespace, the id of the message
that the model had answered, the tool, the digest of the arguments, and the position among the calls
of the reply with both."""


@dataclass(frozen=True)
class EffectKey:
    """Identifies one effect of a tool call on one branch of a thread."""

    thread: str
    branch: str
    tool: str
    args: str
    """Canonical JSON."""
    occurrence: int
    """How many calls with the same tool and arguments came before in this branch."""
    execution: str = ""
    """Distinguishes the executions of one call, if a middleware repeats or changes it."""

    @cached_property
    def digest(self) -> str:
        """A short name of the effect: arguments may be long."""
        parts = [self.thread, self.branch, self.tool, self.args, str(self.occurrence)]
        parts += [self.execution] if self.execution else []
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class LedgerEntry:
    stage: Stage
    outcome: dict[str, Any] | None
    args: dict[str, Any]
    """What it ran with: a person may have edited the model's arguments."""
    attempts: int
    """How often it was started."""
    server_task: str = ""
    """Id of the task by which another server runs the call."""


CellCall = tuple[int, str, int, LedgerEntry]
"""A call that a program made: its number there, tool, occurrence, and what is recorded of it."""


class Ledger:
    """The ledger in a database. What a method writes is on disk when it returns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._run = database.arun

    def outcomes_of(self, thread: str) -> dict[str, LedgerEntry]:
        """Return the calls of a thread with an outcome, by the digests of their keys. Blocks.

        Damaged rows are left out: the outcome is not known.
        """
        rows = self._database.run(
            "SELECT effect, args, outcome, checksum, attempts FROM ledger"
            " WHERE thread = ? AND stage = 'done' ORDER BY at, effect",
            (thread,),
        )
        return {
            str(effect): LedgerEntry("done", read_json(outcome), read_json(args), attempts)
            for effect, args, outcome, checksum, attempts in rows
            if outcome and checksum == crc32(args, "done", outcome)
        }

    async def find(self, key: EffectKey) -> LedgerEntry | None:
        """Return the recorded effect. The outcome in a damaged row counts as unknown."""
        rows = await self._run(
            "SELECT args, stage, outcome, checksum, attempts FROM ledger WHERE effect = ?",
            (key.digest,),
        )
        return _entry(key, rows[0]) if rows else None

    async def begin(
        self, key: EffectKey, args: Mapping[str, Any], call_id: str
    ) -> LedgerEntry | None:
        """Return the recorded effect; if there is none, record the intent and return None."""
        new = await self._run(
            f"{_INTEND} ON CONFLICT (effect) DO NOTHING RETURNING effect",
            _intent(key, args, call_id),
            worker_of=key.thread,
        )
        return None if new else await self.find(key)

    async def intend(self, key: EffectKey, args: Mapping[str, Any], call_id: str) -> None:
        """Record that the call is about to run, with these arguments."""
        await self._run(
            f"{_INTEND} ON CONFLICT (effect) DO UPDATE SET stage = 'intent',"
            " call_id = excluded.call_id, args = excluded.args, outcome = NULL,"
            " attempts = ledger.attempts + 1, checksum = excluded.checksum, at = CURRENT_TIMESTAMP",
            _intent(key, args, call_id),
            worker_of=key.thread,
        )

    async def asked(self, key: EffectKey) -> dict[str, int]:
        """Return the positions at which a call's questions were asked, by their names."""
        rows = await self._run(
            "SELECT name, position FROM questions WHERE effect = ?", (key.digest,)
        )
        return dict(rows)

    async def ask(self, key: EffectKey, name: str, position: int) -> None:
        """Record that a call asks, and at which position of its task."""
        await self._run(
            "INSERT INTO questions (effect, name, thread, position) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (effect, name) DO UPDATE SET position = excluded.position",
            (key.digest, name, key.thread, position),
            worker_of=key.thread,
        )

    async def unask(self, key: EffectKey, position: int) -> None:
        """Forget a call's questions from a position on."""
        await self._run(
            "DELETE FROM questions WHERE effect = ? AND position >= ?",
            (key.digest, position),
            worker_of=key.thread,
        )

    async def conclude(
        self, key: EffectKey, args: Mapping[str, Any], outcome: Mapping[str, Any]
    ) -> None:
        """Record the outcome of the call with these arguments."""
        await self._update(key, args, "done", json.dumps(outcome, default=str))

    async def wait(self, key: EffectKey, args: Mapping[str, Any]) -> None:
        """Record that the call stopped to ask a person, before any effect."""
        await self._update(key, args, "waiting", None)

    async def begin_task(self, key: EffectKey, args: Mapping[str, Any], task_id: str) -> None:
        """Record that another server runs the call as a task with this id."""
        await self._update(key, args, "task", json.dumps(task_id))

    async def first_at(
        self, thread: str, place: CallPlace, message: str, call_id: str
    ) -> tuple[str, str]:
        """Return the ids of reply and call that were the first at a place, or record these."""
        values = (thread, *place)
        await self._run(
            "INSERT INTO first_sights (thread, branch, namespace, parent, tool, args, position,"
            " message, call_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*values, message, call_id),
            worker_of=thread,
        )
        rows = await self._run(f"SELECT message, call_id FROM first_sights WHERE {_PLACE}", values)
        return (str(rows[0][0]), str(rows[0][1])) if rows else (message, call_id)

    async def calls_of(self, key: EffectKey, cell: str) -> list[CellCall]:
        """Return the calls of a program whose key is on the same branch, in order."""
        rows = await self._run(
            "SELECT call_id, tool, occurrence, args, stage, outcome, checksum, attempts FROM ledger"
            " WHERE thread = ? AND branch = ? AND substr(call_id, 1, ?) = ?",
            (key.thread, key.branch, len(cell) + 1, f"{cell}."),
        )
        found = [
            (int(number), tool, occurrence, _entry(key, tuple(row)))
            for call_id, tool, occurrence, *row in rows
            if (number := call_id[len(cell) + 1 :]).isdecimal()
        ]
        return sorted(found, key=itemgetter(0))

    async def _update(
        self, key: EffectKey, args: Mapping[str, Any], stage: Stage, outcome: str | None
    ) -> None:
        written = canonical_args(args)
        await self._run(
            "UPDATE ledger SET args = ?, stage = ?, outcome = ?, at = CURRENT_TIMESTAMP,"
            " checksum = ? WHERE effect = ?",
            (written, stage, outcome, crc32(written, stage, outcome), key.digest),
            worker_of=key.thread,
        )


def _entry(key: EffectKey, row: Row) -> LedgerEntry:
    args, stage, outcome, checksum, attempts = row
    try:
        if checksum != crc32(args, stage, outcome) or stage not in get_args(Stage):
            raise StorageError("it is not as it was written")
        known = read_json(outcome) if outcome else None
        if stage == "task":
            return LedgerEntry(stage, None, read_json(args), attempts, str(known))
        return LedgerEntry(stage, known, read_json(args), attempts)
    except StorageError as error:
        log.warning(
            "The ledger's row of a call of %s in thread %s is damaged (%s). The outcome of "
            "the call counts as unknown.", key.tool, key.thread, error,
        )  # fmt: skip
        started = attempts if isinstance(attempts, int) else 1
        return LedgerEntry("intent", None, read_json(key.args), started)


def _intent(key: EffectKey, args: Mapping[str, Any], call_id: str) -> Sequence[Any]:
    written, checksum = canonical_args(args), crc32(canonical_args(args), "intent", None)
    place = (key.digest, key.thread, key.branch, key.tool)
    return (*place, written, key.occurrence, call_id, checksum)


def open_ledger(url: DatabaseUrl) -> Ledger:
    """Return the ledger of a database. Blocks."""
    return Ledger(open_database(url))
