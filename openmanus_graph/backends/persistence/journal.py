"""The event journal of threads, from which a page replays runs that it did not see."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from openmanus_graph.backends.persistence.database import Database
from openmanus_graph.backends.persistence.rows import read_json

BATCH = 1000
"""Events that one reading returns at most."""
_MAX_SEQ = 1 << 62
"""Above all numbers; SQLite counts damaged ones, which are texts or bytes, as above this."""

Numbered = tuple[int, str]
"""An event's number in its thread, and the event as JSON."""


class JournalTable:
    """The table of events. All methods block; call them off the event loop."""

    def __init__(self, database: Database) -> None:
        self._run, self._run_many = database.run, database.run_many

    def last(self, thread: str) -> int:
        """Return the number of a thread's newest event, 0 if there is none."""
        newest = "SELECT max(seq) FROM events WHERE thread = ? AND seq <= ?"
        return int(self._run(newest, (thread, _MAX_SEQ))[0][0] or 0)

    def write(self, thread: str, events: Sequence[Numbered]) -> None:
        """Add events, all or none."""
        self._run_many(
            "INSERT INTO events (thread, seq, event) VALUES (?, ?, ?)"
            " ON CONFLICT (thread, seq) DO UPDATE SET event = excluded.event",
            [(thread, seq, event) for seq, event in events],
            worker_of=thread,
        )

    def read(self, thread: str, after: int, to: int | None = None) -> list[Numbered]:
        """Return the next events after a number, and up to one, in order.

        In the place of one that is damaged stands a notice that says so.
        """
        rows = self._run(
            "SELECT seq, event FROM events WHERE thread = ? AND seq > ? AND seq <= ?"
            " ORDER BY seq LIMIT ?",
            (thread, after, _MAX_SEQ if to is None else to, BATCH),
        )
        return [
            (seq, event if _is_event(event) else _damaged_event(thread, seq))
            for seq, event in rows
            if isinstance(seq, int)
        ]

    def forget_thread(self, thread: str) -> None:
        """Delete a thread's events."""
        self._run("DELETE FROM events WHERE thread = ?", (thread,))


def _is_event(stored: Any) -> bool:
    try:
        return isinstance(read_json(stored), dict)
    except sqlite3.DatabaseError:
        return False


def _damaged_event(thread: str, seq: int) -> str:
    text = "An event is missing here: its row in the database is damaged."
    notice = {"type": "notice", "level": "warning", "text": text}
    return json.dumps({**notice, "seq": seq, "run": "", "ns": "", "thread": thread, "ts": ""})
