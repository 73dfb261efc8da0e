"""What the calls of one sequential group share, and the execution of one call."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config

from openmanus_graph.backends.persistence.leases import hold_run_lease
from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger, open_ledger
from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.errors import RefusedDataError
from openmanus_graph.model_calls.budget import keeps_summary_reserve
from openmanus_graph.model_calls.run_models import run_models
from openmanus_graph.runtime import checkpoint_lineage, limits, output, replaying
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.hooks import NOTHING, HookResult
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import Subagents
from openmanus_graph.safety.provenance import JudgedReply
from openmanus_graph.state import manus
from openmanus_graph.state.interrupts import Decision
from openmanus_graph.state.manus import HandleState, HandleStates, PendingCall, Plans, no_plans
from openmanus_graph.state.tool_traits import Observation, Traits
from openmanus_graph.tool_calls.call_ledger import LedgerCall
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.toolset import Toolset


@dataclass
class ToolCallContext:
    """What the calls of one sequential group share; each call may change it for the next."""

    session: Session
    toolset: Toolset
    config: RunnableConfig
    emit: Emit
    branch: str
    """Id of the thread's history in the ledger. Each fork and compaction begins a new one."""
    thread: str | None
    ledger: Ledger | None
    """None without a checkpointer."""
    questions: Questions
    progress: limits.Progress
    """Of the run before this agent step."""
    decisions: dict[EffectKey, Decision] = field(default_factory=dict[EffectKey, Decision])
    """A person's decisions about calls before the group began."""
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
    hook_results: dict[EffectKey, HookResult] = field(default_factory=dict[EffectKey, HookResult])
    """What the user's hooks decided about calls of the group."""
    subagents: Subagents | None = None
    """The agents that a call may run inside; None if there are none."""
    updates: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What tools' `Command`s write to the state in addition to their messages."""
    for_our_model: bool = True
    """Whether the run's own model reads the results, not a client's."""
    serializer: StrictSerializer = field(default_factory=StrictSerializer)
    """The agent's."""

    def judged(self, messages: Sequence[AnyMessage]) -> JudgedReply:
        """Return the newest reply of a conversation, with what its calls are judged by."""
        return JudgedReply(
            messages,
            self.toolset.traits,
            self.toolset.untrusted_prompt,
            self.session.settings.sandbox.network != "off",
            self.approved_values,
        )

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
    """Of the tool, for these arguments; set by validation."""
    execution_id: str = ""
    """Tells executions of one call apart, if a middleware repeats or changes the call."""
    server_task: str = ""
    """The task as which another side runs the call already; from the ledger."""
    hooked: HookResult = NOTHING
    """What the user's hooks decided about it."""
    raised: Exception | None = None
    """The tool's exception; set by executing it, or from the ledger."""
    update: dict[str, Any] | None = None
    """What the tool's `Command` writes to the state in addition to its message."""
    ran_with: dict[str, Any] | None = None
    """The arguments that were announced: a person may have edited the model's."""
    cut_off: Observation | None = None
    """What the tool returned when the run was cancelled; it is the call's outcome."""
    replayed: bool = False
    """Whether its outcome is from the ledger, and nothing was run."""
    by_person: bool = False
    """Whether a person gave its result, and nothing was run."""

    @property
    def name(self) -> str:
        return self.call["name"]

    @cached_property
    def key(self) -> EffectKey:
        context, call = self.context, self.call
        # The occurrence counts calls with the same words of the model.
        args = canonical_args(call.get("requested_args", call["args"]))
        place = (context.thread or "", context.branch, self.name, args, call["occurrence"])
        return EffectKey(*place, self.execution_id or call.get("cell", ""))

    @cached_property
    def recorded(self) -> LedgerCall:
        """The execution in the ledger. Only after validation, which sets the traits."""
        context = self.context
        return LedgerCall(
            self.key,
            self.call["id"],
            context.ledger,
            context.questions,
            self.traits.effect_of(self.call["args"]),
            self.traits.reconcile,
            idempotency_key=replace(self.key, execution=self.call.get("cell", "")).digest,
            is_open=lambda: self.key.digest in context.session.open_calls,
        )

    def announce(self, args: dict[str, Any]) -> None:
        self.ran_with = args
        self._emit({"type": "tool_start", "args": args})

    def announce_end(self, text: str, *, ok: bool) -> None:
        seconds = round(time.monotonic() - self.started, 3)
        by = {"by_person": True} if self.by_person else {}
        self._emit({"type": "tool_end", "ok": ok, "seconds": seconds, "output": text, **by})

    def _emit(self, event: dict[str, Any]) -> None:
        call = {"call_id": self.call["id"], "tool": self.name}
        if parent := self.call.get("parent"):
            call["parent"] = parent
        self.context.emit({**event, **call})

    def written_update(self, stored: str) -> dict[str, Any]:
        """Return what the call writes to the state in addition to its message, from the ledger.

        RefusedDataError: it holds types that are not stored, or keys that are the graph's own.
        """
        update: object = self.context.serializer.from_text(stored)
        own = manus.ManusState.__annotations__.keys() - {"messages", "loaded_tools"}
        if not isinstance(update, dict) or own & cast("dict[str, Any]", update).keys():
            raise RefusedDataError(f"an update of {self.name} that no tool may write")
        return cast("dict[str, Any]", update)


async def ledger_of(session: Session, config: RunnableConfig) -> Ledger | None:
    """Open the ledger, and take the lease of its thread.

    None without a checkpointer, and in a replay: nothing is resumed.
    """
    thread = checkpoint_lineage.checkpointed_thread(config)
    if thread is None or replaying.current_replay() is not None:
        return None
    await hold_run_lease(session, thread)
    url = session.settings.database
    return await session.cached_off_loop(Ledger, lambda: open_ledger(url))


async def open_call_context(
    session: Session,
    toolset: Toolset,
    emit: Emit,
    progress: limits.Progress,
    *,
    branch: str = "",
    for_our_model: bool = True,
    recorded: bool = True,
) -> ToolCallContext:
    """Return the context of one task's calls; set how long the session's observations may be.

    Args:
        for_our_model: Whether the run's own model reads the results. They may then be as long as
            its window allows, and the run keeps time for its final summary.
        recorded: Whether the ledger records them. False for calls that change nothing: after a
            crash they run again.
    """
    config = get_config()
    max_chars, keeps_reserve = output.MIN_OBSERVATION_CHARS, False
    if for_our_model:
        max_chars = output.max_observation_chars(await run_models(session).window())
        keeps_reserve = keeps_summary_reserve(steps=1)  # the call belongs to one
    session.max_observation_chars = max_chars  # where tools read it
    left_s = limits.time_left_s(progress, session.settings, keeps_reserve=keeps_reserve)
    ledger = await ledger_of(session, config) if recorded else None
    return ToolCallContext(
        session=session,
        toolset=toolset,
        config=config,
        emit=emit,
        branch=session.on_fork(branch),
        thread=checkpoint_lineage.checkpointed_thread(config),
        ledger=ledger,
        questions=Questions(ledger, config if recorded else None),
        progress=progress,
        deadline=None if left_s is None else time.monotonic() + left_s,
        for_our_model=for_our_model,
    )
