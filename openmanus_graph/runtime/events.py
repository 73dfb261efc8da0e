"""The events of a run: a closed list of types.

Nodes, `call_model` and `run_call` send them through LangGraph's custom stream; the command line
adds `thread` and `ts`, and its own events (`run_start`, `interrupt`, `final`).
`docs/events.md` is generated from these types.

The observer of this process's runs also gets the events: the server records and shows runs with it.
The command line and other programs have none.
"""

import contextlib
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Protocol, cast

from langchain_core.runnables import RunnableConfig
from langgraph.types import Interrupt
from pydantic import ConfigDict, Discriminator, TypeAdapter, with_config
from typing_extensions import TypedDict

from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import Artifact, Claims, ClaimSource, Usage
from openmanus_graph.state.settings import Settings

Emit = Callable[[dict[str, Any]], None]


@with_config(ConfigDict(extra="forbid"))
class _Event(TypedDict):
    thread: str
    ts: str
    """Time at which the event was sent (ISO 8601, UTC)."""


class _StepsEvent(_Event):
    plan_step: NotRequired[str]
    """The plan step (its id) or subagent (its name) that sent the event; `outer/inner` if
    nested."""


class RunStart(_Event):
    """A run starts or resumes."""

    type: Literal["run_start"]
    task: str
    agent: str
    model: str
    workspace: str


class ThinkStart(_StepsEvent):
    """A model call starts. Discard tokens of an earlier `think_start` of the same step."""

    type: Literal["think_start"]
    step: int


class Token(_StepsEvent):
    """A chunk of the model's text, sent while the model writes."""

    type: Literal["token"]
    text: str


class Reasoning(_StepsEvent):
    """A chunk of the model's reasoning. An `info` notice has the whole of it before `think_end`."""

    type: Literal["reasoning"]
    text: str


class EventCall(TypedDict):
    """A tool call of a reply."""

    call_id: str
    tool: str
    args: dict[str, Any]


class ThinkEnd(_StepsEvent):
    """The model's reply is complete."""

    type: Literal["think_end"]
    step: int
    text: str
    tool_calls: list[EventCall]
    usage: Usage
    seconds: float
    model: NotRequired[str]
    """The model that replied, if it is not the run's main model."""


class ToolStart(_StepsEvent):
    """A tool call starts. The same call may start again after a person answers a question."""

    type: Literal["tool_start"]
    call_id: str
    tool: str
    args: dict[str, Any]
    parent: NotRequired[str]
    """The id of the call of `python_execute` whose code makes this call."""


class ToolEnd(_StepsEvent):
    """A tool call has ended."""

    type: Literal["tool_end"]
    call_id: str
    tool: str
    ok: bool
    seconds: float
    output: str
    by_person: NotRequired[bool]
    """Whether a person gave the result, and nothing ran."""
    parent: NotRequired[str]
    """As in `tool_start`."""


class Notice(_StepsEvent):
    """A message for the user, for example about a retry, a compaction, or a warning."""

    type: Literal["notice"]
    level: Literal["info", "warning", "error"]
    text: str
    hook: NotRequired[dict[str, str]]
    """Only in notices about one of the user's hooks: its `event`, `command` and `decision`."""
    message: NotRequired[str]
    """Only in notices that the agent has read a steering message: its id."""


class InterruptEvent(_StepsEvent):
    """A question: the run waits until a person answers. Other plan steps continue."""

    type: Literal["interrupt"]
    id: str
    kind: Literal["question", "approval", "unknown_outcome"]
    question: str
    calls: list[EventCall]
    always: NotRequired[str]
    """What the answer `always` to an approval would allow."""
    browser: NotRequired[str]
    """The person should take over this browser and answer when done: the name of the plan's worker
    that has it, or empty for the thread's own."""


class PlanStep(TypedDict):
    """One step of a plan."""

    id: str
    text: str
    executor: str
    depends_on: list[str]
    done_when: str
    status: str
    notes: NotRequired[str]
    seconds: NotRequired[float]
    cost_usd: NotRequired[float]


class Plan(_StepsEvent):
    """The complete current plan. Sent at the start and end of each run, and sometimes between."""

    type: Literal["plan"]
    title: str
    steps: list[PlanStep]


class PlanChange(_StepsEvent):
    """Changes since the last `plan` or `plan_change` with the same `plan_step`.

    If you have not received a `plan` event yet, ignore changes until the next one.
    """

    type: Literal["plan_change"]
    steps: list[PlanStep]
    """New and changed steps, each with its current values."""
    order: NotRequired[list[str]]
    """Ids of all steps, if one was added, removed or moved. Steps that are not listed were
    removed."""


class StepEvent(_StepsEvent):
    """A plan step starts, or was checked after it ran. `status` is the step's status at that time.

    Also sent for a subagent (an agent that another agent delegates to). Then `id` is its name.
    """

    type: Literal["step_start", "step_end"]
    id: str
    namespace: NotRequired[str]
    """The namespace of a subagent's graph, as LangGraph names it."""
    call_id: NotRequired[str]
    """The call that runs a subagent."""
    executor: str
    status: str
    seconds: NotRequired[float]
    """Duration of all runs of the step so far. Only in `step_end`."""
    cost_usd: NotRequired[float]
    """Cost of all runs of the step so far. Only in `step_end`."""


class Limit(_Event):
    """A limit ends the run."""

    type: Literal["limit"]
    reason: Literal["max_steps", "budget", "timeout", "stuck"]
    setting: NotRequired[str]
    """Name of the limit's setting."""
    limit: NotRequired[float]
    """Value of the setting."""
    higher: NotRequired[float]
    """A value with which the run can continue."""


class Final(_Event):
    """The run ends, or waits for a person. Always the last event."""

    type: Literal["final"]
    status: Literal["finished", "failed", "stopped", "waiting", "cancelled"]
    stop_reason: str | None
    answer: str
    resume: str | None
    """The command that continues it, if it was run by a command and is not over."""
    claims: Claims
    sources: NotRequired[list[ClaimSource]]
    """Only with `--sources`: where each claim comes from."""
    structured: Any
    usage: Usage
    artifacts: list[Artifact]


Event = Annotated[
    RunStart | ThinkStart | Token | Reasoning | ThinkEnd | ToolStart | ToolEnd | Notice
    | InterruptEvent | Plan | PlanChange | StepEvent | Limit | Final,
    Discriminator("type"),
]  # fmt: skip


def notice(emit: Emit, text: str, level: Literal["info", "warning", "error"] = "warning") -> None:
    emit({"type": "notice", "level": level, "text": text})


CHUNKS = ("token", "reasoning")
"""Events that the end of a reply replaces; they are not stored."""
GRAPH_EVENTS = (
    "think_start", "token", "reasoning", "think_end", "tool_start", "tool_end", "notice", "plan",
    "plan_change", "step_start", "step_end", "limit", "interrupt",
)  # fmt: skip
"""The events that a graph sends. The command line sends the others, and the questions that no plan
step asks."""


def interrupt_event(waiting: Interrupt) -> dict[str, Any]:
    asked = waiting.value  # a user's tool may ask with any value
    value = cast("Mapping[str, Any]", asked) if isinstance(asked, Mapping) else {"question": asked}
    step = {"plan_step": str(value["plan_step"])} if value.get("plan_step") else {}
    return {
        "type": "interrupt",
        "id": waiting.id,
        "kind": value.get("kind", "question"),
        "question": str(value.get("question", "")),
        "calls": value.get("calls", []),
        **{key: value[key] for key in ("always", "browser") if key in value},
        **step,
    }


def event_schema() -> dict[str, Any]:
    return TypeAdapter[Any](Event).json_schema()


PLAN_STEP_KEY = "openmanus_step"
"""Metadata of a run inside a plan's step: the step's id, `outer/inner` in a plan within a step."""


@dataclass(frozen=True)
class ObservedRun:
    """One run of a graph on a thread."""

    id: str
    thread: str
    agent: str
    """The graph's name if known; servers pass it in the metadata."""
    given: Any
    """The graph's input."""
    checkpoint: str = ""
    """Id of the checkpoint it starts from; empty for the newest."""
    trigger: str = "api"
    """What started it, for its usage."""


class RunObserver(Protocol):
    """Is called about runs on threads. Only `on_start` may refuse a run, by raising."""

    async def on_start(self, run: ObservedRun, settings: Settings, context: Context | None) -> None:
        """Called when a run's settings are known, before its first node works."""

    def on_event(self, run: str, thread: str, plan_step: str, event: dict[str, Any]) -> None:
        """Called with each event of a run, on the event loop or on a tool's thread.

        `plan_step` is the id of the plan step that sent it; empty outside of plans.
        """

    async def on_end(self, run: ObservedRun, error: BaseException | None) -> None:
        """Called when a run has ended and its state is saved."""


_observers: list[RunObserver] = []
_hidden: ContextVar[bool] = ContextVar("hidden", default=False)


def observe_runs(run_observer: RunObserver) -> None:
    _observers[:] = [run_observer]


@contextlib.contextmanager
def observing_runs(run_observer: RunObserver) -> Generator[None]:
    before = list(_observers)
    observe_runs(run_observer)
    try:
        yield
    finally:
        _observers[:] = before


@contextlib.contextmanager
def unobserved() -> Generator[None]:
    """Hide the runs of a block from the observer: who starts them records them."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


def run_observer() -> RunObserver | None:
    return _observers[0] if _observers and not _hidden.get() else None


def plan_step_of(config: RunnableConfig) -> str:
    """Return the id of the plan step that a node runs in; empty outside of plans."""
    return str((config.get("metadata") or {}).get(PLAN_STEP_KEY, ""))
