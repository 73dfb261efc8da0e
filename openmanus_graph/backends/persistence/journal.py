"""The event journal of threads, from which a page replays runs that it did not see."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, cast

from openmanus_graph.backends.persistence.database import Database
from openmanus_graph.backends.persistence.rows import read_json

BATCH = 1000
"""Events that one reading returns at most."""
SNIPPET_CHARS = 120
_SHOWN = ("task", "text", "args", "output", "question", "answer")
"""Fields of events in which a person may look for words."""
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

    def search(self, words: str) -> dict[str, str]:
        """Return the ids of the threads in which a text was said or shown, each with a line of it.

        Large and small letters of ASCII count as the same.
        """
        written = json.dumps(words)[1:-1]  # events are stored so
        pattern = "".join(f"\\{c}" if c in "%_\\" else c for c in written)
        like = "event LIKE ? ESCAPE '\\'"
        threads = self._run(f"SELECT DISTINCT thread FROM events WHERE {like}", (f"%{pattern}%",))
        found: dict[str, str] = {}
        for (thread,) in threads:
            rows = self._run(
                f"SELECT event FROM events WHERE thread = ? AND {like} ORDER BY seq LIMIT ?",
                (thread, f"%{pattern}%", BATCH),
            )
            lines = (line_with(words, text) for (event,) in rows for text in _texts_of(event))
            if line := next(filter(None, lines), ""):
                found[thread] = line
        return found

    def forget_thread(self, thread: str) -> None:
        """Delete a thread's events."""
        self._run("DELETE FROM events WHERE thread = ?", (thread,), worker_of=thread)


def line_with(words: str, text: str) -> str:
    """Return the part of a line that a text is in, with what stands around it; "" if it is not."""
    at = text.lower().find(words.lower())
    if at < 0:
        return ""
    begin = max(text.rfind("\n", 0, at) + 1, at - SNIPPET_CHARS // 3)
    end = text.find("\n", at + len(words))
    return text[begin : begin + SNIPPET_CHARS if end < 0 else min(end, begin + SNIPPET_CHARS)]


def _texts_of(stored: Any) -> Iterator[str]:
    """Yield what a person sees of an event."""
    try:
        event = read_json(stored)
    except sqlite3.DatabaseError:
        return
    for name in _SHOWN:
        value: Any = cast("dict[str, Any]", event).get(name) if isinstance(event, dict) else None
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from (
                one for one in cast("dict[str, Any]", value).values() if isinstance(one, str)
            )


def _is_event(stored: Any) -> bool:
    try:
        return isinstance(read_json(stored), dict)
    except sqlite3.DatabaseError:
        return False


def _damaged_event(thread: str, seq: int) -> str:
    text = "An event is missing here: its row in the database is damaged."
    notice = {"type": "notice", "level": "warning", "text": text}
    return json.dumps({**notice, "seq": seq, "run": "", "ns": "", "thread": thread, "ts": ""})
