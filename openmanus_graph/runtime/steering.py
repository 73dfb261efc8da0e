"""Reads a run's steering messages: messages that a person sends to it while it works.

`backends.persistence.steering` has the table of messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from langchain_core.messages import AnyMessage, HumanMessage

from openmanus_graph.conversation.history import steering_message
from openmanus_graph.runtime.events import Emit, notice

SHOWN_CHARS = 200


@dataclass(frozen=True)
class SteeringMessage:
    id: str
    text: str
    read: bool
    """Whether a checkpoint holds it."""


class SteeringStore(Protocol):
    """What the reader needs from the table of steering messages."""

    def fetch_soon(self, thread: str) -> None:
        """Read a thread's steering messages with the next write, for a later `of`."""

    async def of(self, thread: str) -> Sequence[SteeringMessage]:
        """Return the steering messages of a thread, oldest first."""
        ...

    async def mark_read(self, thread: str, steering: Sequence[str]) -> None:
        """Mark steering messages that a checkpoint holds."""

    async def forget_read(self, thread: str) -> None:
        """Delete a thread's steering messages that were read."""


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
            count = "A message" if len(left) == 1 else f"{len(left)} messages"
            notice(emit, f"{count} came too late for this run: read first when the thread goes on.")

    async def _all(self) -> Sequence[SteeringMessage]:
        return [] if self.store is None else await self.store.of(self.thread)


def announce(messages: Sequence[AnyMessage], emit: Emit) -> None:
    """Send a notice for each message that was read."""
    for message in messages:
        text = " ".join(message.text.split())
        cut = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
        notice(emit, f"Read your message: {cut}", "info")
