"""The effect ledger: what a tool call is about to do, and what came of it.

It lies beside the checkpoints and is written before and after each call, so that after a crash
no call with an outcome runs again, even if its checkpoint was lost, and one without an outcome
is never repeated unnoticed. Keys hold no step numbers: (thread, branch, tool, canonical
arguments, occurrence).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from openmanus_graph.canonical import canonical
from openmanus_graph.persistence.database import Database, open_database, read_json

_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS ledger (
        effect TEXT NOT NULL, thread TEXT NOT NULL, branch TEXT NOT NULL, tool TEXT NOT NULL,
        args TEXT NOT NULL, occurrence INTEGER NOT NULL, call_id TEXT NOT NULL,
        attempts INTEGER NOT NULL, stage TEXT NOT NULL, outcome TEXT,
        at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
    )
    """,
    "CREATE UNIQUE INDEX IF NOT EXISTS ledger_effect ON ledger (effect)",
    """
    CREATE TABLE IF NOT EXISTS questions (
        effect TEXT NOT NULL, name TEXT NOT NULL, thread TEXT NOT NULL, position INTEGER NOT NULL,
        PRIMARY KEY (effect, name)
    ) WITHOUT ROWID
    """,
)

Stage = Literal["intent", "waiting", "done"]


@dataclass(frozen=True)
class EffectKey:
    """Names one effect of one line of history."""

    thread: str
    branch: str
    tool: str
    args: str
    """Canonical JSON."""
    occurrence: int
    """How many calls with the same tool and arguments came before in this branch."""

    @cached_property
    def digest(self) -> str:
        """A short name of the effect: arguments may be long."""
        parts = (self.thread, self.branch, self.tool, self.args, str(self.occurrence))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """What the ledger knows of an effect."""

    stage: Stage
    outcome: dict[str, Any] | None
    args: dict[str, Any]
    """What it ran with: a person may have edited the model's arguments."""
    attempts: int
    """How often it was begun."""


class Ledger:
    """The ledger in a database. What a method writes is on disk when it returns."""

    def __init__(self, database: Database) -> None:
        """Make the tables. Blocks."""
        self._database = database
        self._run = database.arun
        for statement in _SCHEMA:
            database.run(statement)

    async def find(self, key: EffectKey) -> Entry | None:
        """Return what is known of an effect."""
        rows = await self._run(
            "SELECT stage, outcome, args, attempts FROM ledger WHERE effect = ?", (key.digest,)
        )
        for stage, outcome, args, attempts in rows:
            known = read_json(outcome) if outcome else None
            return Entry(stage, known, read_json(args), attempts)
        return None

    async def intend(self, key: EffectKey, args: Mapping[str, Any], call_id: str) -> None:
        """Write down that the call is about to run, with these arguments."""
        await self._run(
            "INSERT INTO ledger"
            " (effect, thread, branch, tool, args, occurrence, call_id, attempts, stage)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 1, 'intent')"
            " ON CONFLICT (effect) DO UPDATE SET stage = 'intent', call_id = excluded.call_id,"
            " args = excluded.args, outcome = NULL, attempts = attempts + 1,"
            " at = CURRENT_TIMESTAMP",
            (
                key.digest,
                key.thread,
                key.branch,
                key.tool,
                canonical(args),
                key.occurrence,
                call_id,
            ),
        )

    async def asked_at(self, key: EffectKey, name: str) -> int | None:
        """Return the position at which a call's question was asked, if it was."""
        rows = await self._run(
            "SELECT position FROM questions WHERE effect = ? AND name = ?", (key.digest, name)
        )
        return rows[0][0] if rows else None

    async def ask(self, key: EffectKey, name: str, position: int) -> None:
        """Write down that a call asks, and at which position of its task."""
        await self._run(
            "INSERT OR REPLACE INTO questions (effect, name, thread, position) VALUES (?, ?, ?, ?)",
            (key.digest, name, key.thread, position),
        )

    async def conclude(self, key: EffectKey, outcome: Mapping[str, Any]) -> None:
        """Write down what came of the call."""
        await self._update(key, "done", json.dumps(outcome, default=str))

    async def wait(self, key: EffectKey) -> None:
        """Write down that the call stopped to ask a person, before any effect."""
        await self._update(key, "waiting", None)

    def forget_thread(self, thread: str) -> None:
        """Delete all entries of a thread. Blocks."""
        self._database.run("DELETE FROM ledger WHERE thread = ?", (thread,))
        self._database.run("DELETE FROM questions WHERE thread = ?", (thread,))

    async def _update(self, key: EffectKey, stage: Stage, outcome: str | None) -> None:
        await self._run(
            "UPDATE ledger SET stage = ?, outcome = ?, at = CURRENT_TIMESTAMP WHERE effect = ?",
            (stage, outcome, key.digest),
        )


def open_ledger(home: Path) -> Ledger:
    """Return the ledger of a home folder. Blocks."""
    return Ledger(open_database(home))
