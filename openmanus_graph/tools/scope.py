"""The scope in which tool calls run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config

from openmanus_graph.events import Emit
from openmanus_graph.limits import Progress, deadline
from openmanus_graph.persistence.ledger import Ledger, open_ledger
from openmanus_graph.saved import saved_thread
from openmanus_graph.sessions import Session
from openmanus_graph.state.manus import PlannedCall
from openmanus_graph.state.plan import Plans
from openmanus_graph.state.reducers import Held, Holdings
from openmanus_graph.tools.questions import Questions
from openmanus_graph.tools.toolset import Toolset


@dataclass
class PlanBook:
    """The thread's plans, as the calls of a chain change them."""

    plans: Plans


@dataclass(frozen=True)
class CallScope:
    """Where a call runs."""

    session: Session
    toolset: Toolset
    config: RunnableConfig
    emit: Emit
    branch: str
    thread: str | None
    ledger: Ledger | None
    """None without a checkpointer."""
    questions: Questions
    progress: Progress
    """How far the run had come before this step."""
    book: PlanBook
    deadline: float | None = None
    """When the run's time limit is over, on the monotonic clock."""
    held: Holdings = field(default_factory=dict[str, Held])
    """What is known of the session's handles; brought up to date after each call."""
    granted: list[str] = field(default_factory=list[str])
    """What a person approved for the rest of the run; approvals of these calls are added."""

    def grant(self, grant: str) -> None:
        """Keep what an approval allows beyond its call; nothing if it is empty."""
        if grant and grant not in self.granted:
            self.granted.append(grant)

    def announce(self, call: PlannedCall, args: dict[str, Any]) -> None:
        """Tell watchers that a call begins, with these arguments."""
        event = {"type": "tool_start", "call_id": call["id"], "tool": call["name"], "args": args}
        self.emit(event)


async def open_scope(
    session: Session,
    toolset: Toolset,
    emit: Emit,
    *,
    branch: str,
    progress: Progress,
    plans: Plans,
    held: Holdings,
    granted: Sequence[str] = (),
) -> CallScope:
    """Return the scope of one task's calls, with the ledger if anything is saved at all.

    Args:
        session: Of the run.
        toolset: The tools on offer.
        emit: Takes the events.
        branch: Of the run's history.
        progress: How far the run has come.
        plans: The thread's.
        held: What its live handles held before this step.
        granted: What a person approved for the rest of the run.
    """
    config = get_config()
    # Without a checkpointer there is nothing to resume, and no ledger.
    thread = saved_thread(config)
    ledger = None
    if thread is not None:
        home = session.settings.home
        ledger = await session.cached_off_loop(Ledger, lambda: open_ledger(home))
    return CallScope(
        session=session,
        toolset=toolset,
        config=config,
        emit=emit,
        branch=session.on_line(branch),
        thread=thread,
        ledger=ledger,
        questions=Questions(ledger),
        progress=progress,
        book=PlanBook(plans),
        deadline=deadline(session.settings, time.monotonic(), progress.elapsed_s),
        held=dict(held),
        granted=list(granted),
    )
