"""The events of threads, as they were told: what a page shows of runs that it did not see."""

import json
from collections.abc import Sequence

from openmanus_graph.persistence.database import Database

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS events (
        thread TEXT NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL, PRIMARY KEY (thread, seq)
    ) WITHOUT ROWID
"""
BATCH = 1000
"""Events that one reading returns at most."""

Numbered = tuple[int, str]
"""An event's number in its thread, and the event as JSON."""


class JournalTable:
    """The table of events. All methods block; call them off the event loop."""

    def __init__(self, database: Database) -> None:
        self._run = database.run
        self._run(_SCHEMA)

    def last(self, thread: str) -> int:
        """Return the number of a thread's newest event, 0 if there is none."""
        return int(self._run("SELECT max(seq) FROM events WHERE thread = ?", (thread,))[0][0] or 0)

    def write(self, thread: str, events: Sequence[Numbered]) -> None:
        """Add events, all or none."""
        self._run(
            "INSERT OR REPLACE INTO events (thread, seq, event)"
            " SELECT ?, value ->> 0, value ->> 1 FROM json_each(?)",
            (thread, json.dumps(events)),
        )

    def read(self, thread: str, after: int, to: int | None = None) -> list[Numbered]:
        """Return the next events after a number, and up to one, in order."""
        rows = self._run(
            "SELECT seq, event FROM events WHERE thread = ? AND seq > ? AND seq <= ?"
            " ORDER BY seq LIMIT ?",
            (thread, after, (1 << 62) if to is None else to, BATCH),
        )
        return [(seq, event) for seq, event in rows]

    def forget_thread(self, thread: str) -> None:
        """Delete a thread's events."""
        self._run("DELETE FROM events WHERE thread = ?", (thread,))
