"""Steering messages that wait for an agent, stored with the threads: any process can add one.

A steering message counts as read when a checkpoint holds it: its reader notes that with the next
agent step. After a crash before that it is read again.
"""

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.config import get_config

from openmanus_graph.backends.persistence.backend import Database, Row
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.config.resolve import database_url
from openmanus_graph.conversation.history import steering_message
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.checkpoint_lineage import checkpointed_thread
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.replaying import SteeringMessage, SteeringStore, current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import WORKER_KEY
from openmanus_graph.state.addresses import DatabaseUrl

log = logging.getLogger(__name__)
SHOWN_CHARS = 200
FRESH_S = 0.1
"""How long fetched messages count as current: a person does not notice it."""
_OF_THREAD = "SELECT id, text, read FROM steering WHERE thread = ? ORDER BY number"


class SteeringMessages:
    """The table of steering messages. What a method writes is on disk when it returns."""

    changed_at = 0.0
    """When this process changed some last, on the monotonic clock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._fetched: dict[str, tuple[float, list[Row]]] = {}
        """Rows that were read before they are wanted, by thread, and when they were asked for."""

    async def add(self, thread: str, text: str) -> str:
        message_id = f"steering-{uuid.uuid4()}"
        await self._change(
            "INSERT INTO steering (id, thread, text) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (message_id, thread, text),
        )
        return message_id

    def fetch_soon(self, thread: str) -> None:
        """Read a thread's steering messages with the next write, for a later `of`."""
        asked_at = time.monotonic()

        def note(rows: list[Row], error: BaseException | None) -> None:
            if error is None:
                self._fetched[thread] = asked_at, rows

        self._database.run_later(_OF_THREAD, (thread,), note)

    async def take_back(self, message_id: str) -> bool:
        """Delete a steering message that no checkpoint holds. Return whether there was one."""
        delete = "DELETE FROM steering WHERE id = ? AND read = 0 RETURNING id"
        return bool(await self._change(delete, (message_id,)))

    async def of(self, thread: str) -> list[SteeringMessage]:
        """Return the steering messages of a thread, oldest first; damaged ones are left out."""
        asked_at, rows = self._fetched.pop(thread, (-math.inf, []))
        if asked_at <= max(SteeringMessages.changed_at, time.monotonic() - FRESH_S):
            rows = await self._database.arun(_OF_THREAD, (thread,))
        sound = [row for row in rows if isinstance(row[0], str) and isinstance(row[1], str)]
        if len(sound) < len(rows):
            log.warning("%d messages to thread %s are damaged", len(rows) - len(sound), thread)
        return [SteeringMessage(row[0], row[1], bool(row[2])) for row in sound]

    async def mark_read(self, thread: str, steering: Sequence[str]) -> None:
        """Note that checkpoints hold these messages."""
        if not steering:
            return
        marks = ", ".join("?" * len(steering))
        update = f"UPDATE steering SET read = 1 WHERE read = 0 AND id IN ({marks})"
        await self._change(update, steering, worker_of=thread)

    async def forget_read(self, thread: str) -> None:
        delete = "DELETE FROM steering WHERE thread = ? AND read = 1"
        await self._change(delete, (thread,), worker_of=thread)

    async def _change(
        self, statement: str, values: Sequence[str], worker_of: str | None = None
    ) -> list[Row]:
        rows = await self._database.arun(statement, values, worker_of=worker_of)
        SteeringMessages.changed_at = time.monotonic()
        return rows


async def tell(thread: str, text: str) -> str:
    """Send a message to an agent while it works. The agent reads it at its next agent step.

    Any process with the same database can do so, by default that of `OPENMANUS_HOME`. The agent
    needs a checkpointer. A message after its last agent step is read when the thread continues.

    Args:
        thread: The run's `thread_id`.
        text: In the person's words.

    Returns:
        The id that the message will have in the conversation.

    Raises:
        ConfigError: The thread or the text is empty.
        StorageError: The database is damaged or cannot be used.
    """
    if not thread.strip() or not text.strip():
        raise ConfigError("Name the thread and write the message: neither can be empty.")
    steering = await asyncio.to_thread(lambda: open_steering(database_url()))
    return await steering.add(thread, text)


def open_steering(url: DatabaseUrl) -> SteeringMessages:
    """Return the steering messages of a database. Blocks."""
    return SteeringMessages(open_database(url))


@dataclass(frozen=True)
class SteeringReader:
    """Reads the steering messages of one run's thread."""

    store: SteeringStore | None
    """None without a checkpointer, which stores what was read."""
    thread: str
    shared: bool
    """Whether the run is a plan step: each step reads all steering messages of the plan."""

    def fetch_soon(self) -> None:
        """Read them with the next checkpoint: an agent step follows it."""
        if self.store is not None:
            self.store.fetch_soon(self.thread)

    async def unread(self, known: Sequence[str]) -> list[HumanMessage]:
        """Return the unread steering messages, oldest first. `known` are the ids that were read."""
        return [
            steering_message(one.id, one.text)
            for one in await self._all()
            if one.id not in known and (self.shared or not one.read)
        ]

    async def read_by_steps(self) -> list[HumanMessage]:
        """Return the steering messages that steps of the run's plan have read, oldest first."""
        return [steering_message(one.id, one.text) for one in await self._all() if one.read]

    async def record_read(self, read: Sequence[str], *, begun: bool) -> Sequence[str]:
        """Mark the ids in the checkpoint as read. Return the ids that the run has read.

        If a new run has begun, it has read none.
        """
        if self.store is not None:
            await self.store.mark_read(self.thread, read)
        return [] if begun else read

    async def end_run(self, known: Sequence[str], emit: Emit) -> None:
        """End the run: delete what was read, and send a notice about what was not."""
        await self.record_read(known, begun=False)
        if self.store is None or self.shared:
            return
        await self.store.forget_read(self.thread)
        if left := await self.unread(known):
            is_one = len(left) == 1
            count, what = ("A message", "it") if is_one else (f"{len(left)} messages", "them")
            notice(emit, f"{count} came too late for this run. The next run reads {what} first.")

    async def _all(self) -> Sequence[SteeringMessage]:
        return [] if self.store is None else await self.store.of(self.thread)


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


def announce(messages: Sequence[AnyMessage], emit: Emit) -> None:
    """Send a notice for each message that was read."""
    for message in messages:
        text = " ".join(message.text.split())
        cut = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
        text = f"Read your message: {cut}"
        emit({"type": "notice", "level": "info", "text": text, "message": message.id})
