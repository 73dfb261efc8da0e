"""The way in for remarks: who leaves them, and how a run finds those meant for it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.config import get_config

from openmanus_graph.config.resolve import openmanus_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.events import Emit, notice
from openmanus_graph.persistence.database import open_database
from openmanus_graph.persistence.remarks import Remarks
from openmanus_graph.registry import LANE_KEY
from openmanus_graph.remarks import remark_message
from openmanus_graph.saved import saved_thread
from openmanus_graph.sessions import Session

SHOWN_CHARS = 200


async def tell(thread: str, text: str) -> str:
    """Tell an agent something while it works; it reads that at its next step.

    From any process with the same `OPENMANUS_HOME`. The agent needs a checkpointer. What comes
    after its last step is read first when the thread goes on.

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
    remarks = await asyncio.to_thread(lambda: open_remarks(openmanus_home()))
    return await remarks.add(thread, text)


def open_remarks(home: Path) -> Remarks:
    """Return the remarks of a home folder. Blocks."""
    return Remarks(open_database(home))


@dataclass(frozen=True)
class Inbox:
    """The remarks for one run."""

    remarks: Remarks | None
    """None without a checkpointer: what was read could not be remembered."""
    thread: str
    shared: bool
    """It is a step of a plan: each step reads what was told to the plan."""

    async def unread(self, known: Sequence[str]) -> list[HumanMessage]:
        """Return what the run has not read yet, oldest first.

        Args:
            known: Ids of those that it has.
        """
        if self.remarks is None:
            return []
        return [
            remark_message(remark.id, remark.text)
            for remark in await self.remarks.of(self.thread)
            if remark.id not in known and (self.shared or not remark.read)
        ]

    async def known(self, read: Sequence[str], *, begun: bool) -> Sequence[str]:
        """Return the ids of what the run has read; a run that begins has read nothing.

        Args:
            read: What the checkpoint says. It holds these, so they are not read again.
            begun: Whether a new run begins.
        """
        if self.remarks is not None:
            await self.remarks.mark_read(read)
        return [] if begun else read

    async def leave(self, known: Sequence[str], emit: Emit) -> None:
        """End the run: what was read may go, and what was not is told to the person."""
        await self.known(known, begun=False)
        if self.remarks is None or self.shared:
            return
        await self.remarks.forget_read(self.thread)
        if left := await self.unread(known):
            count = "A message" if len(left) == 1 else f"{len(left)} messages"
            notice(emit, f"{count} came too late for this run: read first when the thread goes on.")


async def open_inbox(session: Session) -> Inbox:
    """Return the inbox of the run that the calling node belongs to."""
    config = get_config()
    thread = saved_thread(config)
    if thread is None:
        return Inbox(None, "", shared=False)
    home = session.settings.home
    remarks = await session.cached_off_loop(Remarks, lambda: open_remarks(home))
    return Inbox(remarks, thread, shared=bool((config.get("metadata") or {}).get(LANE_KEY)))


def announce(messages: Sequence[AnyMessage], emit: Emit) -> None:
    """Tell the person that these were read."""
    for message in messages:
        text = " ".join(message.text.split())
        cut = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
        notice(emit, f"Read your message: {cut}", "info")
