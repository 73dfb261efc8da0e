"""The runtime of a tool call: its session, the person, the model and the plans."""

import math
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolRuntime

from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress, TimeLimit, declared_limit_s
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.urls import Domain
from openmanus_graph.state.manus import Plans, no_plans
from openmanus_graph.state.tool_traits import Observation, Traits

AskModel = Callable[[str, str], Awaitable[str]]
"""Asks the run's model: system prompt, question -> text. ToolError: not allowed, or it failed."""
Converse = Callable[[str, Sequence[AnyMessage]], Awaitable[AIMessage]]
"""Continues a conversation: system prompt, messages -> the model's reply."""


class AskPerson(Protocol):
    """Asks a person and waits for the answer; the run may pause meanwhile."""

    async def __call__(self, request: Mapping[str, Any], name: str = "question") -> Any:
        """Return the answer to a request. The name identifies it among those of one call."""


async def _without_run(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("There is no run whose person or model could be asked.")


async def _no_ledger(task_id: str) -> None:
    """Do nothing: without a run there is no ledger."""


@dataclass(frozen=True)
class Subagents:
    graphs: Callable[[], Mapping[str, Any]]
    """Returns the available agents by name. May block."""
    config: RunnableConfig
    """Of the call's node: a graph in it uses the checkpoints of the node's task."""
    progress: Progress
    """How far the run had come before this agent step."""


class CellCalls(Protocol):
    """Runs the calls that a program makes while its own call runs: `tool_calls.cell.Cell`."""

    stopped: str
    """Why the program is being stopped; empty while it may make calls."""

    @property
    def described(self) -> Sequence[Mapping[str, Any]]: ...
    def admit(self, tool: str, args: dict[str, Any]) -> Awaitable[Mapping[str, Any] | None] | None:
        """Return the work that runs a call and returns its result; None: the program is stopped."""

    async def observed(self, observation: Observation, *, complete: bool) -> Observation: ...


@dataclass(frozen=True)
class CallRuntime:
    """What a tool of ours may use during one call. In a test without a run: only the session."""

    session: Session
    key: str = ""
    """The call's unique key in the ledger; the same after a crash."""
    idempotency_key: str = ""
    """The same also when a middleware repeats the call."""
    emit: Emit = lambda event: None
    plans: Plans = field(default_factory=no_plans)
    """The thread's plans before the call."""
    ask_person: AskPerson = _without_run
    ask_model: AskModel | None = None
    """None without a run."""
    converse: Converse = _without_run
    subagents: Subagents | None = None
    """None if the call cannot run an agent."""
    tainted: bool = True
    """Whether untrusted content was read before the call; True if this was not checked. For tools
    with `outlasts_thread`."""
    untrusted_prompt: bool = False
    """Whether the run's prompt holds untrusted text."""
    time_limit: TimeLimit | None = None
    """The limit that the harness enforces; None without a run."""
    server_task: str = ""
    """Id of the remote task that already runs this call."""
    record_server_task: Callable[[str], Awaitable[None]] = _no_ledger
    """Saves the id of the remote task that runs this call: after a crash the call waits for it, and
    does not run again."""
    repeats: Mapping[str, Any] | None = None
    """The `repeatable` of a recorded call, if this call repeats it."""
    hosts: Collection[Domain] | None = None
    """The hosts that the person named or approved, for programs. None: they are not asked about."""
    cell: CellCalls | None = None
    """Runs the calls of a program. None if it may make none."""
    keep_cut_off: Callable[[Observation], None] = lambda observation: None
    """Keeps what a call returned that was cancelled with its run: the call's outcome."""


@dataclass
class ManusToolRuntime(ToolRuntime[Any, Any]):
    """LangGraph's runtime of a tool call, with the `CallRuntime` for our own tools."""

    call: CallRuntime | None = None

    @classmethod
    def of(cls, runtime: ToolRuntime[Any, Any], call: CallRuntime) -> "ManusToolRuntime":
        known: dict[str, Any] = {one.name: getattr(runtime, one.name) for one in fields(runtime)}
        return cls(**known, call=call)


def call_runtime(runtime: ToolRuntime[Any, Any]) -> CallRuntime:
    """Return what a tool may use. RuntimeError: it was called outside of our graphs."""
    if isinstance(runtime, ManusToolRuntime) and runtime.call is not None:
        return runtime.call
    raise RuntimeError(
        "This tool was called outside of a graph of openmanus_graph. In a test, pass "
        "`runtime=tool_runtime(session)` of openmanus_graph.testing."
    )


def time_limit_of(
    runtime: ToolRuntime[Any, Any], traits: Traits, named_s: float | None = None
) -> TimeLimit:
    """Return the limit that the harness enforces; without one, the call's or the tool's own."""
    call = call_runtime(runtime)
    if call.time_limit is not None:
        return call.time_limit
    declared_s = declared_limit_s(traits, call.session.settings.sandbox)
    return TimeLimit(declared_s if named_s is None else max(1.0, named_s), math.inf)


class JsonSchemaTool(BaseTool, defer_build=True):
    """A tool whose arguments are described by a JSON schema from elsewhere; they may have any name.

    LangChain does not parse the schema, and does not pass the arguments as keywords.
    """

    parameters: dict[str, Any]
    traits: Traits

    @abstractmethod
    def problems(self, args: Mapping[str, Any]) -> list[str]:
        """Return the problems of a call's arguments."""

    @abstractmethod
    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> Observation:
        """Run the call. ToolError says what the model should try instead."""

    def accept(self) -> None:
        """Accept a changed tool, because a person allowed a call of it. Blocks."""

    async def knows_task(self, task_id: str) -> bool:
        """Return True if the server can still report on a task that it began."""
        return False

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} runs in a graph of openmanus_graph only")
