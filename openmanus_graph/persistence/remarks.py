"""Remarks that wait for an agent. They lie beside the threads, so that any process can leave one.

A remark is read when a checkpoint holds it: its reader says so with the next step, and until then
a crash only means that it is read again by who never came to save it.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from openmanus_graph.persistence.database import Database

_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS remarks (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, thread TEXT NOT NULL,
        text TEXT NOT NULL, read INTEGER NOT NULL DEFAULT 0,
        at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
    )
    """,
    "CREATE INDEX IF NOT EXISTS remarks_thread ON remarks (thread)",
)


@dataclass(frozen=True)
class Remark:
    """One message to an agent at work."""

    id: str
    text: str
    read: bool
    """Some checkpoint holds it."""


class Remarks:
    """The table of remarks. What a method writes is on disk when it returns."""

    def __init__(self, database: Database) -> None:
        """Make the table. Blocks."""
        self._database = database
        for statement in _SCHEMA:
            database.run(statement)

    async def add(self, thread: str, text: str) -> str:
        """Leave a remark and return its id."""
        remark = f"remark-{uuid.uuid4()}"
        await self._database.arun(
            "INSERT INTO remarks (id, thread, text) VALUES (?, ?, ?)", (remark, thread, text)
        )
        return remark

    async def of(self, thread: str) -> list[Remark]:
        """Return the remarks of a thread, oldest first."""
        rows = await self._database.arun(
            "SELECT id, text, read FROM remarks WHERE thread = ? ORDER BY number", (thread,)
        )
        return [Remark(row[0], row[1], bool(row[2])) for row in rows]

    async def mark_read(self, remarks: Sequence[str]) -> None:
        """Note that checkpoints hold these."""
        for remark in remarks:
            await self._database.arun("UPDATE remarks SET read = 1 WHERE id = ?", (remark,))

    async def forget_read(self, thread: str) -> None:
        """Delete a thread's remarks that were read."""
        await self._database.arun("DELETE FROM remarks WHERE thread = ? AND read = 1", (thread,))

    def forget_thread(self, thread: str) -> None:
        """Delete all remarks of a thread. Blocks."""
        self._database.run("DELETE FROM remarks WHERE thread = ?", (thread,))
