"""Interjections that wait for an agent. They lie beside the threads: any process can add one.

An interjection counts as read when a checkpoint holds it: its reader says so with the next agent
step. Until then a crash only means that it is read again.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence

from langgraph.config import get_config

from openmanus_graph.backends.persistence.database import Database, open_database
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.checkpoint_lineage import checkpointed_thread
from openmanus_graph.runtime.interjections import Interjection, InterjectionReader
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import WORKER_KEY
from openmanus_graph.state.storage_urls import DatabaseUrl

log = logging.getLogger(__name__)


class Interjections:
    """The table of interjections. What a method writes is on disk when it returns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, thread: str, text: str) -> str:
        """Add an interjection and return its id."""
        interjection = f"remark-{uuid.uuid4()}"
        await self._database.arun(
            "INSERT INTO remarks (id, thread, text) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (interjection, thread, text),
        )
        return interjection

    async def of(self, thread: str) -> list[Interjection]:
        """Return the interjections of a thread, oldest first; damaged ones are left out."""
        rows = await self._database.arun(
            "SELECT id, text, read FROM remarks WHERE thread = ? ORDER BY number", (thread,)
        )
        sound = [row for row in rows if isinstance(row[0], str) and isinstance(row[1], str)]
        if len(sound) < len(rows):
            log.warning("%d messages to thread %s are damaged", len(rows) - len(sound), thread)
        return [Interjection(row[0], row[1], bool(row[2])) for row in sound]

    async def mark_read(self, thread: str, interjections: Sequence[str]) -> None:
        """Note that checkpoints hold these."""
        if not interjections:
            return
        places = ", ".join("?" * len(interjections))
        await self._database.arun(
            f"UPDATE remarks SET read = 1 WHERE read = 0 AND id IN ({places})",
            tuple(interjections),
            worker_of=thread,
        )

    async def forget_read(self, thread: str) -> None:
        """Delete a thread's interjections that were read."""
        await self._database.arun(
            "DELETE FROM remarks WHERE thread = ? AND read = 1", (thread,), worker_of=thread
        )

    def forget_thread(self, thread: str) -> None:
        """Delete all interjections of a thread. Blocks."""
        self._database.run("DELETE FROM remarks WHERE thread = ?", (thread,))


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
    interjections = await asyncio.to_thread(lambda: open_interjections(database_url()))
    return await interjections.add(thread, text)


def open_interjections(url: DatabaseUrl) -> Interjections:
    """Return the interjections of a database. Blocks."""
    return Interjections(open_database(url))


async def interjection_reader(session: Session) -> InterjectionReader:
    """Return the reader of the run that the calling node belongs to."""
    config = get_config()
    thread = checkpointed_thread(config)
    if thread is None:
        return InterjectionReader(None, "", shared=False)
    if (replay := current_replay()) is not None:
        return InterjectionReader(replay, thread, shared=True)
    url = session.settings.database
    interjections = await session.cached_off_loop(Interjections, lambda: open_interjections(url))
    return InterjectionReader(
        interjections, thread, shared=bool((config.get("metadata") or {}).get(WORKER_KEY))
    )
