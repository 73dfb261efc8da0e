"""Steering messages that wait for an agent. They lie beside the threads: any process can add one.

A steering message counts as read when a checkpoint holds it: its reader says so with the next agent
step. Until then a crash only means that it is read again.
"""

import asyncio
import json
import logging
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langgraph.config import get_config

from openmanus_graph.backends.persistence.database import Database, open_database
from openmanus_graph.backends.persistence.database_thread import read_json
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.checkpoint_lineage import checkpointed_thread
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import WORKER_KEY
from openmanus_graph.runtime.steering import SteeringMessage, SteeringReader
from openmanus_graph.state.addresses import DatabaseUrl

log = logging.getLogger(__name__)
FRESH_S = 0.1
"""How long what was fetched counts as what there is: a person does not notice it."""
_OF_THREAD = "SELECT id, text, read FROM remarks WHERE thread = ? ORDER BY number"


@dataclass
class _Fetched:
    """Rows of a thread that were read before they are wanted."""

    at: float
    """When they were asked for, on the monotonic clock."""
    rows: list[tuple[Any, ...]] | None = None
    """None until they are there."""

    def note(self, rows: list[tuple[Any, ...]], error: BaseException | None) -> None:
        """Keep what was read."""
        self.rows = rows if error is None else None

    def now(self) -> list[tuple[Any, ...]] | None:
        """Return what a reading at this moment would find; None if that is not known."""
        is_fresh = self.at > max(SteeringMessages.changed_at, time.monotonic() - FRESH_S)
        return self.rows if is_fresh else None


class SteeringMessages:
    """The table of steering messages. What a method writes is on disk when it returns."""

    changed_at = 0.0
    """When this process changed some last, on the monotonic clock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._fetched: dict[str, _Fetched] = {}
        """By thread, until it is used: an agent step follows at once."""

    async def add(self, thread: str, text: str) -> str:
        """Add a steering message and return its id."""
        steering_text = f"remark-{uuid.uuid4()}"
        await self._database.arun(
            "INSERT INTO remarks (id, thread, text) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (steering_text, thread, text),
        )
        self._note_change()
        return steering_text

    def fetch_soon(self, thread: str) -> None:
        """Read a thread's steering messages with the next write, for a later `of`."""
        fetched = self._fetched[thread] = _Fetched(time.monotonic())
        self._database.run_later(_OF_THREAD, (thread,), fetched.note)

    async def of(self, thread: str) -> list[SteeringMessage]:
        """Return the steering messages of a thread, oldest first; damaged ones are left out."""
        fetched = self._fetched.pop(thread, None)
        rows = fetched.now() if fetched is not None else None
        if rows is None:
            rows = await self._database.arun(_OF_THREAD, (thread,))
        sound = [row for row in rows if isinstance(row[0], str) and isinstance(row[1], str)]
        if len(sound) < len(rows):
            log.warning("%d messages to thread %s are damaged", len(rows) - len(sound), thread)
        return [SteeringMessage(row[0], row[1], bool(row[2])) for row in sound]

    async def mark_read(self, thread: str, steering: Sequence[str]) -> None:
        """Note that checkpoints hold these."""
        if not steering:
            return
        places = ", ".join("?" * len(steering))
        await self._database.arun(
            f"UPDATE remarks SET read = 1 WHERE read = 0 AND id IN ({places})",
            tuple(steering),
            worker_of=thread,
        )
        self._note_change()

    async def forget_read(self, thread: str) -> None:
        """Delete a thread's steering messages that were read."""
        await self._database.arun(
            "DELETE FROM remarks WHERE thread = ? AND read = 1", (thread,), worker_of=thread
        )
        self._note_change()

    def forget_thread(self, thread: str) -> None:
        """Delete all steering messages of a thread. Blocks."""
        self._database.run("DELETE FROM remarks WHERE thread = ?", (thread,), worker_of=thread)
        self._note_change()

    def _note_change(self) -> None:
        SteeringMessages.changed_at = time.monotonic()


async def tell(thread: str, text: str) -> str:
    """Tell an agent something while it works; it reads that at its next agent step.

    From any process with the same database, by default that of `OPENMANUS_HOME`. The agent needs a
    checkpointer. What comes after its last agent step is read first when the thread goes on.

    Args:
        thread: The run's `thread_id`.
        text: In the person's words.

    Returns:
        The id that the message will have in the conversation.

    Raises:
        ConfigError: The thread or the text is empty.
        sqlite3.Error: The database is damaged or cannot be used.
    """
    if not thread.strip() or not text.strip():
        raise ConfigError("Say to which thread, and what: neither may be empty.")
    steering = await asyncio.to_thread(lambda: open_steering(database_url()))
    return await steering.add(thread, text)


def open_steering(url: DatabaseUrl) -> SteeringMessages:
    """Return the steering messages of a database. Blocks."""
    return SteeringMessages(open_database(url))


async def steering_reader(session: Session) -> SteeringReader:
    """Return the reader of the run that the calling node belongs to."""
    config = get_config()
    thread = checkpointed_thread(config)
    if thread is None:
        return SteeringReader(None, "", shared=False)
    if (replay := current_replay()) is not None:
        return SteeringReader(replay, thread, shared=True)
    url = session.settings.database
    steering = await session.cached_off_loop(SteeringMessages, lambda: open_steering(url))
    return SteeringReader(
        steering, thread, shared=bool((config.get("metadata") or {}).get(WORKER_KEY))
    )


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
