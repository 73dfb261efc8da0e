"""The table of a thread's events, which the server's journal writes and the page reads."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from openmanus_graph.backends.persistence.backend import Database, read_json
from openmanus_graph.errors import StorageError

BATCH = 1000
"""The most events that one reading returns."""
SNIPPET_CHARS = 120
_SHOWN = ("task", "text", "args", "output", "question", "answer")
"""Fields of events in which a person may look for words."""
_MAX_SEQ = 1 << 62
"""Above all numbers. SQLite sorts damaged ones, which are texts or bytes, above this."""

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

        A damaged event is replaced by a notice that reports it.
        """
        rows = self._run(
            "SELECT seq, event FROM events WHERE thread = ? AND seq > ? AND seq <= ?"
            " ORDER BY seq LIMIT ?",
            (thread, after, _MAX_SEQ if to is None else to, BATCH),
        )
        return [
            (seq, event if _read_event(event) is not None else _damaged_event(thread, seq))
            for seq, event in rows
            if isinstance(seq, int)
        ]

    def search(self, words: str) -> dict[str, str]:
        """Return the ids of the threads in which a text was said or shown, each with a line of it.

        ASCII letters are compared case-insensitively.
        """
        written = json.dumps(words)[1:-1]  # events are stored so
        pattern = "".join(f"\\{c}" if c in "%_\\" else c for c in written)
        like = "lower(event) LIKE lower(?) ESCAPE '\\'"
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


def line_with(words: str, text: str) -> str:
    """Return the part of a line that contains a text, with what surrounds it; else ""."""
    at = text.lower().find(words.lower())
    if at < 0:
        return ""
    begin = max(text.rfind("\n", 0, at) + 1, at - SNIPPET_CHARS // 3)
    end = text.find("\n", at + len(words))
    return text[begin : begin + SNIPPET_CHARS if end < 0 else min(end, begin + SNIPPET_CHARS)]


def _texts_of(stored: Any) -> Iterator[str]:
    """Yield what a person sees of an event."""
    event = _read_event(stored) or {}
    for value in map(event.get, _SHOWN):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            texts = cast("dict[str, Any]", value).values()
            yield from (one for one in texts if isinstance(one, str))


def _read_event(stored: Any) -> dict[str, Any] | None:
    """Return an event; None if its row is damaged."""
    try:
        event = read_json(stored)
    except StorageError:
        return None
    return cast("dict[str, Any]", event) if isinstance(event, dict) else None


def _damaged_event(thread: str, seq: int) -> str:
    text = "An event is missing here: its row in the database is damaged."
    notice = {"type": "notice", "level": "warning", "text": text}
    return json.dumps({**notice, "seq": seq, "run": "", "ns": "", "thread": thread, "ts": ""})
