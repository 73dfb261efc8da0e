"""The state of the manus graph."""

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from openmanus_graph.state.plan import Plans
from openmanus_graph.state.reducers import (
    HandleStates,
    Messages,
    Usage,
    furthest,
    merge_handle_states,
    merge_usage,
    newest,
    union,
)

Status = Literal["finished", "failed", "stopped", "cancelled"]
StopReason = Literal[
    "answer",
    "terminate",
    "middleware",
    "error",
    "max_steps",
    "budget",
    "stuck",
    "timeout",
    "cancelled",
]


class Artifact(TypedDict):
    """A file that the run created or changed."""

    path: str
    """Relative to the workspace."""
    size: int
    """Bytes."""
    media_type: str


class Claims(TypedDict):
    """How many figures of an answer occur in what the model knows."""

    found: int
    not_found: int
    """Also 1 if the answer was delivered although it seems to be none."""
    checked: int


def no_claims() -> Claims:
    """Return what nothing was checked of."""
    return Claims(found=0, not_found=0, checked=0)


FlowRule = Literal[
    "destination", "address", "no_destination", "destructive", "private", "page", "download"
]
"""Which rule of the information flow a value does not meet."""


class ValueSource(TypedDict):
    """The text in which a value first stood."""

    tool: str
    """Whose result it is; or, in words, which other text."""
    args: str
    """Of that call, as JSON; empty where it is no call."""
    text: str
    """The sentence around the value."""


class UnverifiedValue(TypedDict):
    """A value of a call that nobody verified, after something untrusted was read."""

    value: str
    argument: str
    """The name of the argument that holds it."""
    rule: FlowRule
    source: ValueSource | None
    """None: it stands in no result, the model composed it; or the question does not name it."""


class PendingCall(TypedDict):
    """One tool call of a reply that has no result yet."""

    id: str
    name: str
    args: dict[str, Any]
    """With the names that the tool declares."""
    requested_args: NotRequired[dict[str, Any]]
    """As the model named them, where that differs: by these the ledger knows the call."""
    occurrence: int
    """How many calls with the same tool and arguments came before in this branch."""
    problem: str | None
    """Why it cannot be run at all: its arguments were no JSON, say."""
    unverified: NotRequired[list[str]]
    """Addresses it would open that nobody named, after something untrusted was read."""
    excess: NotRequired[list[str]]
    """Links it would open of which too many are opened, after something private was read."""
    unverified_values: NotRequired[list[UnverifiedValue]]
    """Values of its arguments that need a person's approval."""
    after_foreign: NotRequired[bool]
    """Whether something foreign was read before it was made; of tools whose writing outlasts the
    thread only. Where nobody looked, it counts as true."""


class ActInput(TypedDict):
    """What one `Send` to `act` carries."""

    calls: list[PendingCall]
    """A chain: they run in this order."""
    branch: str
    elapsed_s: float
    """The run's time before this agent step."""
    handle_state: HandleStates
    """What live handles held before this agent step."""
    usage: Usage
    """What the run has cost before this agent step."""
    step_count: NotRequired[int]
    """Model calls of the agent so far in this run."""
    plans: Plans
    """The thread's plans before this agent step."""
    standing_approvals: list[str]
    """What a person approved for the rest of the run, before this agent step; sealed."""
    approved_values: NotRequired[list[str]]
    """Values that a person approved for the rest of the thread, before this agent step; sealed."""


class ManusInput(TypedDict):
    """What callers pass."""

    messages: Messages
    """The conversation; written by the caller and by nodes, shortened by compaction."""


class ManusOutput(ManusInput):
    """What callers get: how a run ended and what came of it."""

    status: Status | None
    """How the run ended; None while it goes on."""
    stop_reason: StopReason | None
    """Why it ended; setting it sends the run to its last node."""
    answer: str
    """Text for the user; set when the run ends."""
    claims: NotRequired[Claims]
    """What of the answer was found in the task and in results; set when the run ends."""
    structured: Any
    """The validated object, if the caller gave a `response_format`; set when the run ends."""
    usage: Annotated[Usage, merge_usage]
    """Of this run, sub-agents included."""
    artifacts: list[Artifact]
    """Files created or changed by the run; set when it ends."""


class ManusState(ManusOutput):
    """What a checkpoint holds. A run begins with a new user message, which resets it.

    The run's first node does: `think`, or `begin` where middleware has hooks before it. Before
    that only `messages` is there.
    """

    step_count: int
    """Model calls of the agent so far in this run; written by `think`."""
    branch: Annotated[str, newest]
    """Id of the thread's history, as the ledger knows it: new with each user message, fork and
    compaction."""
    run_message: str
    """Id of the user message that began the run; written by `think`."""
    run_date: str
    """ISO date on which the run began, for the system prompt; written by `think`."""
    elapsed_s: Annotated[float, furthest]
    """Seconds that the run's agent steps took, over all its processes; waiting for people not
    counted. Each writes the time before it plus its own, so that parallel calls count once."""
    hint: str
    """What `stuck_check` wants the next request to say; never stored in `messages`."""
    handle_state: Annotated[HandleStates, merge_handle_states]
    """What live handles hold, as each `act` leaves them. `think` reports once to the model what was
    lost with its process, and removes it."""
    standing_approvals: Annotated[list[str], union]
    """What a person approved for the rest of this run, sealed; written by `act`, emptied by
    `think`."""
    approved_values: Annotated[list[str], union]
    """Values that a person approved for the rest of the thread, sealed; written by `act`."""
    loaded_tools: Annotated[list[str], union]
    """Names of the tools that `search_tools` found, over all runs of the thread; written by it."""
    interjections: list[str]
    """Ids of the person's interjections that this run has read; written by `think`."""
    plans: Plans
    """Made with the `planning` tool, over all runs of the thread; written by `act`."""
    workspace_snapshot: str
    """Id of the newest snapshot of the workspace: as it was before the run's first call that may
    change files, then after each step that changed some; written by `think`, `stuck_check`."""
    snapshot_gap: str
    """Why files changed since are in no snapshot; empty if all are. Written with the former."""
