"""The typed context of tool calls: what the calls of one chain share, and one call's execution."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config

from openmanus_graph.backends.persistence.leases import hold_run_lease
from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger, open_ledger
from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.model_calls.budget import keeps_summary_reserve
from openmanus_graph.model_calls.run_models import run_models
from openmanus_graph.runtime.checkpoint_lineage import checkpointed_thread
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress, time_left_s
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS, max_observation_chars
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import Subagents
from openmanus_graph.state.interrupts import Decision
from openmanus_graph.state.manus import HandleState, HandleStates, PendingCall
from openmanus_graph.state.plan import Plans, no_plans
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.toolset import Toolset


@dataclass
class ToolCallContext:
    """What the calls of one chain share. They run one after another, and each may change it."""

    session: Session
    toolset: Toolset
    config: RunnableConfig
    emit: Emit
    branch: str
    """Id of the thread's history, for the ledger: another one after each fork and compaction."""
    thread: str | None
    ledger: Ledger | None
    """None without a checkpointer."""
    questions: Questions
    progress: Progress
    """How far the run had come before this agent step."""
    decisions: dict[EffectKey, Decision] = field(default_factory=dict[EffectKey, Decision])
    """What a person decided about calls before the chain began."""
    deadline: float | None = None
    """When the run's time limit is over, on the monotonic clock."""
    plans: Plans = field(default_factory=no_plans)
    """The thread's, after the calls so far."""
    handle_state: HandleStates = field(default_factory=dict[str, HandleState])
    """What is known of the session's handles, after the calls so far."""
    remembered_approvals: list[str] = field(default_factory=list[str])
    """What a person approved for the rest of the run, by these calls too."""
    approved_values: list[str] = field(default_factory=list[str])
    """Values that a person approved for the rest of the thread, by these calls too."""
    subagents: Subagents | None = None
    """The agents that a call may run inside; None where there are none."""
    updates: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What tools' `Command`s write to the state beside their messages."""
    for_our_model: bool = True
    """Whether the run's own model reads the results, not a client's."""
    serializer: StrictSerializer = field(default_factory=StrictSerializer)
    """The agent's."""

    def add_remembered_approval(self, approval: str, values: Sequence[str] = ()) -> None:
        """Keep what an approval allows beyond its call: calls of its kind, and values."""
        if approval and approval not in self.remembered_approvals:
            self.remembered_approvals.append(approval)
        self.approved_values += [one for one in values if one not in self.approved_values]


@dataclass
class CallExecution:
    """One execution of a call by `run_call`, whose steps fill in what they find out."""

    call: PendingCall
    context: ToolCallContext
    started: float = field(default_factory=time.monotonic)
    """On the monotonic clock."""
    traits: Traits = field(default_factory=Traits)
    """What is declared of the tool, for these arguments; set by validation."""
    execution_id: str = ""
    """Identifies one of several executions, where a middleware repeats or changes the call."""
    begun: bool = False
    """Whether its intent was recorded when the ledger was looked into."""
    server_task: str = ""
    """The task as which another side runs the call already; from the ledger."""
    raised: Exception | None = None
    """What the tool raised; set by executing it, or from the ledger."""
    update: dict[str, Any] | None = None
    """What the tool's `Command` writes to the state beside its message."""
    replayed: bool = False
    """Whether its outcome stood in the ledger, and nothing was run."""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.call["name"]

    @cached_property
    def key(self) -> EffectKey:
        """What the ledger knows the call by."""
        # The occurrence counts calls with the same words of the model.
        args = canonical_args(self.call.get("requested_args", self.call["args"]))
        thread = self.context.thread or ""
        occurrence = self.call["occurrence"]
        return EffectKey(
            thread, self.context.branch, self.name, args, occurrence, self.execution_id
        )

    @property
    def first_key(self) -> EffectKey:
        """The key of the call's first execution: what the other side knows the call by."""
        return replace(self.key, execution="")

    def announce(self, args: dict[str, Any]) -> None:
        """Send the event that the call begins, with these arguments."""
        self.context.emit(
            {"type": "tool_start", "call_id": self.call["id"], "tool": self.name, "args": args}
        )


async def ledger_of(session: Session, config: RunnableConfig) -> Ledger | None:
    """Open the ledger, and take the lease of the thread that it is written under.

    None without a checkpointer, and in a replay: nothing is resumed.
    """
    thread = checkpointed_thread(config)
    if thread is None or current_replay() is not None:
        return None
    await hold_run_lease(session, thread)
    url = session.settings.database
    return await session.cached_off_loop(Ledger, lambda: open_ledger(url))


async def open_call_context(
    session: Session,
    toolset: Toolset,
    emit: Emit,
    *,
    branch: str,
    progress: Progress,
    plans: Plans,
    handle_state: HandleStates,
    remembered_approvals: Sequence[str] = (),
    approved_values: Sequence[str] = (),
    for_our_model: bool = True,
    recorded: bool = True,
) -> ToolCallContext:
    """Return the context of one task's calls, with the ledger if anything is saved at all.

    The session learns how long an observation may be.

    Args:
        session: Of the run.
        toolset: The tools on offer.
        emit: Takes the events.
        branch: Of the run's history.
        progress: How far the run has come.
        plans: The thread's.
        handle_state: What its live handles held before this agent step.
        remembered_approvals: What a person approved for the rest of the run.
        approved_values: Values that a person approved for the rest of the thread.
        for_our_model: Whether the run's own model reads the results: they may be as long as its
            window allows, and the run keeps time for its final summary. For a client neither holds.
        recorded: Whether the ledger knows them; calls that change nothing just run again.
    """
    config = get_config()
    max_chars, keeps_reserve = MIN_OBSERVATION_CHARS, False
    if for_our_model:
        max_chars = max_observation_chars(await run_models(session).window())
        keeps_reserve = keeps_summary_reserve(steps=1)  # the call belongs to one
    session.max_observation_chars = max_chars  # where tools read it
    left_s = time_left_s(progress, session.settings, keeps_reserve=keeps_reserve)
    ledger = await ledger_of(session, config) if recorded else None
    return ToolCallContext(
        session=session,
        toolset=toolset,
        config=config,
        emit=emit,
        branch=session.on_fork(branch),
        thread=checkpointed_thread(config),
        ledger=ledger,
        questions=Questions(ledger, config if recorded else None),
        progress=progress,
        deadline=None if left_s is None else time.monotonic() + left_s,
        plans=plans,
        handle_state=dict(handle_state),
        remembered_approvals=list(remembered_approvals),
        approved_values=list(approved_values),
        for_our_model=for_our_model,
    )


async def open_unrecorded_context(
    session: Session, toolset: Toolset, emit: Emit, progress: Progress
) -> ToolCallContext:
    """Return the context of calls that change nothing: after a crash they run again.

    Args:
        session: Of the run.
        toolset: The tools on offer.
        emit: Takes the events.
        progress: How far the run has come.
    """
    return await open_call_context(
        session,
        toolset,
        emit,
        branch="",
        progress=progress,
        plans=no_plans(),
        handle_state={},
        recorded=False,
    )
