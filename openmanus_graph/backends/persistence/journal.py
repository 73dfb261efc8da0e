"""The table of events: what a thread's runs did, as the server shows and streams it."""

import json
from collections.abc import Iterable, Sequence

from openmanus_graph.backends.persistence.backend import Database, read_object

BATCH = 1000
"""The most events that one reading returns."""
_MAX_SEQ = 1 << 62
"""Above all numbers. SQLite sorts damaged ones, which are texts or bytes, above this."""

Numbered = tuple[int, str]
"""An event's number in its thread, and the event as JSON."""


class JournalTable:
    """The table of events. All methods block; call them off the event loop."""

    def __init__(self, database: Database) -> None:
        self._database, self._run = database, database.run

    def last(self, thread: str) -> int:
        """Return the number of a thread's newest event, 0 if there is none."""
        newest = "SELECT max(seq) FROM events WHERE thread = ? AND seq <= ?"
        return int(self._run(newest, (thread, _MAX_SEQ))[0][0] or 0)

    def write(self, thread: str, events: Sequence[Numbered], texts: Iterable[str] = ()) -> None:
        """Write events, and texts by which the thread is found."""
        self._database.run_many(
            (
                "INSERT INTO events (thread, seq, event) VALUES (?, ?, ?)"
                " ON CONFLICT (thread, seq) DO UPDATE SET event = excluded.event",
                [(thread, seq, event) for seq, event in events],
            ),
            *self._database.texts.adding(thread, texts),
            worker_of=thread,
        )

    def read(self, thread: str, after: int, to: int | None = None) -> list[Numbered]:
        """Return the next events after a number, and up to one, in order.

        A damaged event is replaced by a notice that reports it.
        """
        rows = self._run(
            "SELECT seq, event FROM events WHERE thread = ? AND seq > ? AND seq <= ?"
            " ORDER BY seq LIMIT ?",
            (thread, after, _MAX_SEQ if to is None else to, BATCH),
        )
        return [
            (seq, event if read_object(event) is not None else _damaged_event(thread, seq))
            for seq, event in rows
            if isinstance(seq, int)
        ]


def _damaged_event(thread: str, seq: int) -> str:
    text = "An event is missing here: its row in the database is damaged."
    notice = {"type": "notice", "level": "warning", "text": text}
    return json.dumps({**notice, "seq": seq, "run": "", "ns": "", "thread": thread, "ts": ""})
