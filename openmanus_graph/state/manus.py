"""The state of the manus graph."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, Self, cast

from langchain_core.messages import AnyMessage, BaseMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import PendingWrite
from langgraph.checkpoint.serde.types import (
    _DeltaSnapshot,  # pyright: ignore[reportPrivateUsage]
)
from langgraph.graph.message import _messages_delta_reducer  # pyright: ignore[reportPrivateUsage]
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict, override

# Beta or private in LangGraph: imported here only.
__all__ = ["DeltaChannel", "DeltaSnapshot", "merge_messages"]

DeltaSnapshot: type[Any] = _DeltaSnapshot
"""What an incremental channel stores now and then: its whole value."""
merge_messages: Any = cast("Any", _messages_delta_reducer)  # its type is not the one of the channel


class Conversation(DeltaChannel[list[AnyMessage]]):
    """LangGraph's incremental channel, but faster if messages are only added, as usual.

    LangGraph's reducer indexes the whole conversation with each update.
    """

    _ids: set[str | None] | None = None
    """Ids of the messages in the channel, if they are known."""

    @override
    def copy(self) -> Self:
        new = super().copy()
        new._ids = None if self._ids is None else set(self._ids)
        return new

    @override
    def update(self, values: Sequence[Any]) -> bool:
        new = _plain_messages(values)
        if new is not None and self.is_available():
            known = {message.id for message in self.value} if self._ids is None else self._ids
            added = {message.id for message in new}
            if len(added) == len(new) and added.isdisjoint(known):
                known |= added
                self._ids = known
                self.value = [*self.value, *new]
                return bool(values)
        self._ids = None
        return super().update(values)

    @override
    def replay_writes(self, writes: Sequence[PendingWrite]) -> None:
        self._ids = None
        super().replay_writes(writes)


def _plain_messages(values: Sequence[Any]) -> list[AnyMessage] | None:
    """Return the messages of updates that only add messages; None for others."""
    if not all(isinstance(value, list) for value in values):
        return None
    new: list[Any] = [item for value in values for item in value]
    if all(isinstance(item, BaseMessage) and item.id and item.type != "remove" for item in new):
        return new
    return None


# Incremental: a checkpoint stores the new messages only, so storage grows linearly with the
# steps (`add_messages` grows with their square).
Messages = Annotated[list[AnyMessage], Conversation(merge_messages, snapshot_frequency=2500)]


class Usage(TypedDict):
    """Tokens and cost of model calls. `input_tokens` includes `cached_tokens`."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    model_calls: int
    cost_usd: float


def no_usage() -> Usage:
    return Usage(input_tokens=0, cached_tokens=0, output_tokens=0, model_calls=0, cost_usd=0.0)


def add_usage(left: Usage, right: Usage) -> Usage:
    return Usage(
        input_tokens=left["input_tokens"] + right["input_tokens"],
        cached_tokens=left["cached_tokens"] + right["cached_tokens"],
        output_tokens=left["output_tokens"] + right["output_tokens"],
        model_calls=left["model_calls"] + right["model_calls"],
        cost_usd=left["cost_usd"] + right["cost_usd"],
    )


# Reducers


def merge_usage(left: Usage | None, right: Usage | None) -> Usage:
    return add_usage(left or no_usage(), right or no_usage())


def newest(left: str, right: str) -> str:
    """Return the later value; parallel calls name the same branch."""
    return right


def furthest(left: float, right: float) -> float:
    """Return the larger value; parallel calls count once, by the slowest of them."""
    return max(left, right)


def union(left: list[str], right: list[str]) -> list[str]:
    """Return each entry once, in order; parallel calls add to the list."""
    return list(dict.fromkeys([*left, *right]))


class HandleState(TypedDict):
    """What one live handle (kernel, shell, browser) holds in addition to the files."""

    what: str
    """Description of what it holds; empty if nothing would be lost with it."""
    at: int
    """Counts the observations of the handle: the highest is the newest."""


HandleStates = dict[str, HandleState]
"""By the handle's identity: its name and, after a colon, a unique part."""


def merge_handle_states(left: HandleStates, right: HandleStates) -> HandleStates:
    """Keep the newest state of each handle that parallel calls saw."""
    newer = {
        identity: handle_state
        for identity, handle_state in right.items()
        if identity not in left or left[identity]["at"] <= handle_state["at"]
    }
    return {**left, **newer}


StepStatus = Literal["not_started", "in_progress", "completed", "blocked"]


class Step(TypedDict):
    id: str
    text: str
    executor: str
    """Name of the graph that does it; empty if none was asked for."""
    depends_on: list[str]
    """Ids of the steps that must be completed before."""
    done_when: str
    """The condition: `file: PATH`, `command: SHELL COMMAND`, or a question in words."""
    status: StepStatus
    notes: str
    result: str
    """The answer of its run."""


class Plan(TypedDict):
    """Steps in the order in which they are shown; indices count from 0."""

    plan_id: str
    title: str
    steps: list[Step]


class Origin(TypedDict):
    """What verifies values in a message that does not come only from a person."""

    words: str
    """The text that the person wrote."""
    urls: list[str]
    """Addresses that earlier steps saw, word for word."""
    tainted: bool
    """Whether these steps may have read anything, or the message holds untrusted text."""
    private: NotRequired[bool]
    """Whether they may have read what is not on the public web. Missing: as `tainted`."""
    openings: NotRequired[dict[str, int]]
    """How many links of sites that the person did not name were opened before, by site."""
    names: NotRequired[bool]
    """Whether it names files. Names arm the rules about values, but not the leak rule."""


class Plans(TypedDict):
    """The plans of one thread, made with the `planning` tool."""

    plans: dict[str, Plan]
    active: str | None
    """Id of the plan for commands without a `plan_id`."""


def no_plans() -> Plans:
    return Plans(plans={}, active=None)


def active_plan(plans: Plans) -> Plan | None:
    return plans["plans"].get(plans["active"] or "")


def current_plan_step(plans: Plans) -> str | None:
    """Return the step of the active plan that is in progress, as PLAN/INDEX."""
    plan = active_plan(plans)
    for index, step in enumerate(plan["steps"] if plan else ()):
        if plan and step["status"] == "in_progress":
            return f"{plan['plan_id']}/{index}"
    return None


Status = Literal["finished", "failed", "stopped", "cancelled"]
StopReason = Literal[
    "answer", "terminate", "middleware", "error", "max_steps", "budget", "stuck", "timeout",
    "cancelled",
]  # fmt: skip


class Artifact(TypedDict):
    """A file that the run created or changed."""

    path: str
    """Path relative to the workspace."""
    size: int
    """Size in bytes."""
    media_type: str


class Claims(TypedDict):
    """Counts of what an answer claims: figures, dates, quotations, addresses, files, tests."""

    found: int
    not_found: int
    """Also 1 if the answer was delivered although it does not look like an answer."""
    checked: int


def no_claims() -> Claims:
    return Claims(found=0, not_found=0, checked=0)


def add_claims(claims: Claims, sources: Sequence["ClaimSource"]) -> Claims:
    """Return the counts with those of further claims."""
    missing = sum(one["kind"] == "not_found" for one in sources)
    return Claims(
        found=claims["found"] + len(sources) - missing,
        not_found=claims["not_found"] + missing,
        checked=claims["checked"] + len(sources),
    )


class ClaimSource(TypedDict):
    """One claim of an answer, or of a report that the run wrote, and where it comes from."""

    text: str
    """As it is written."""
    kind: Literal["quoted", "same_value", "computed", "derived", "not_found"]
    """`quoted`: a source says the same. `same_value`: it has the value in another notation.
    `computed`: a program printed it. `derived`: it follows from numbers of a source."""
    start: int
    """Its place in the answer, or in the report's text."""
    end: int
    file: str
    """The report; empty for the answer."""
    call_id: str
    """The call whose result is the source; empty if it is no result."""
    source: str
    """The address or path of the source; or the tool, or `user`."""
    source_start: int
    """The place in the source's whole text."""
    source_end: int
    excerpt: str
    """The line of the source, or how it is derived."""


FlowRule = Literal[
    "destination", "address", "no_destination", "destructive", "private", "page", "download"
]
"""Which rule of the information flow a value does not meet."""


class ValueSource(TypedDict):
    """The text in which a value first occurred."""

    tool: str
    """The tool whose result it is; or, in words, which other text."""
    args: str
    """Arguments of that call, as JSON; empty if it is not a call."""
    text: str
    """The sentence around the value."""


class UnverifiedValue(TypedDict):
    """A value of a call that is not verified, after untrusted content was read."""

    value: str
    argument: str
    """The name of the argument that holds it."""
    rule: FlowRule
    source: ValueSource | None
    """None: it occurs in no result, so the model composed it; or the question does not name it."""


class PendingCall(TypedDict):
    """One tool call of a reply that has no result yet."""

    id: str
    name: str
    args: dict[str, Any]
    """Under the names that the tool declares."""
    requested_args: NotRequired[dict[str, Any]]
    """As the model named them, if that differs: the ledger uses these."""
    occurrence: int
    """How many calls with the same tool and arguments came before in this branch."""
    problem: str | None
    """Why it cannot be run: for example, its arguments are not JSON."""
    unverified: NotRequired[list[str]]
    """Addresses it would open that nobody named, after untrusted content was read."""
    excess: NotRequired[list[str]]
    """Links it would open beyond the limit, after private content was read."""
    unverified_values: NotRequired[list[UnverifiedValue]]
    """Values of its arguments that need a person's approval."""
    cell: NotRequired[str]
    """The program that made the call, in the ledger. Missing: the model made it."""
    parent: NotRequired[str]
    """The id of the program's call, for events."""
    tainted: NotRequired[bool]
    """Whether untrusted content was read before; only for tools whose writing outlasts the thread.
    Missing: true."""


class ActInput(TypedDict):
    """What one `Send` to `act` carries: a sequential group, and the state before its agent step.

    The keys of the state that it names are copied from there.
    """

    calls: list[PendingCall]
    """A sequential group: they run in this order."""
    branch: str
    usage: Usage
    elapsed_s: NotRequired[float]
    step_count: NotRequired[int]
    handle_state: NotRequired[HandleStates]
    plans: NotRequired[Plans]
    remembered_approvals: NotRequired[list[str]]
    approved_values: NotRequired[list[str]]


_DESCRIBED = with_config(ConfigDict(use_attribute_docstrings=True))
"""Puts the fields' texts into the schema, and so into Studio's form."""


@_DESCRIBED
class ManusInput(TypedDict):
    """What callers pass."""

    messages: Messages
    """The conversation; written by the caller and by nodes, shortened by compaction."""


@_DESCRIBED
class ManusOutput(TypedDict):
    """What callers get: how a run ended, and its results."""

    messages: Messages
    """The conversation so far."""
    status: Status | None
    """How the run ended; None while it is running."""
    stop_reason: StopReason | None
    """Why it ended; setting it sends the run to its last node."""
    answer: str
    """Text for the user; set when the run ends."""
    claims: NotRequired[Claims]
    """How many claims of the answer were found in the task and in results; set when the run
    ends."""
    sources: NotRequired[list[ClaimSource]]
    """Where each claim of the answer comes from; set when the run ends."""
    structured: Any
    """The validated object, if the caller gave a `response_format`; set when the run ends."""
    usage: Annotated[Usage, merge_usage]
    """Cost of this run, subagents included."""
    artifacts: list[Artifact]
    """Files created or changed by the run; set when it ends."""


class ManusState(ManusOutput):
    """What a checkpoint holds.

    A run begins with a new user message. Its first node resets the state: `think`, or `begin` if
    middleware has hooks before it. Before that only `messages` is there.
    """

    step_count: int
    """Model calls of the agent so far in this run; written by `think`."""
    branch: Annotated[str, newest]
    """Id of the thread's history in the ledger: new with each user message, fork and compaction."""
    run_message: str
    """Id of the user message that began the run; written by `think`."""
    run_date: str
    """ISO date on which the run began, for the system prompt; written by `think`."""
    elapsed_s: Annotated[float, furthest]
    """Seconds of the run's agent steps, over all its processes, without waiting for people. Each
    writes the time before it plus its own, so that parallel calls count once."""
    hint: str
    """Text that `stuck_check` adds to the next request; never stored in `messages`."""
    handle_state: Annotated[HandleStates, merge_handle_states]
    """What live handles hold after each `act`. `think` reports to the model once what was lost with
    its process, and removes it."""
    remembered_approvals: Annotated[list[str], union]
    """What a person approved for the rest of the thread, sealed; written by `act`."""
    approved_values: Annotated[list[str], union]
    """Values that a person approved for the rest of the thread, sealed; written by `act`."""
    loaded_tools: Annotated[list[str], union]
    """Names of the tools that `search_tools` found, over all runs of the thread; written by it."""
    steering: list[str]
    """Ids of the person's steering messages that this run has read; written by `think`."""
    plans: Plans
    """Plans of the `planning` tool, over all runs of the thread; written by `act`."""
    workspace_snapshot: str
    """Id of the newest snapshot of the workspace: before the run's first call that may change
    files, then after each step that changed some; written by `think`, `stuck_check`."""
    snapshot_gap: str
    """Why later changes are in no snapshot; empty if all are. Written with the snapshot's id."""
