"""The state of the planning graph."""

from typing import Annotated, Any, Literal

from langchain_core.messages import AnyMessage
from langgraph.channels.delta import DeltaChannel
from typing_extensions import TypedDict

from openmanus_graph.state.manus import Artifact, Status, StopReason
from openmanus_graph.state.plan import Origin, Step, merge_steps
from openmanus_graph.state.reducers import Messages, Usage, furthest, merge_usage


class Job(Step):
    """A step of the flow: what the plan says, and how far it came."""

    attempt: int
    """How often it was begun."""
    failures: int
    """How often it failed by itself, and not because the budget was used up."""
    lane: int
    """Which kernel, shell and browser it uses; steps that run at once never share one."""
    max_cost_usd: float
    """Its share of the budget."""
    max_total_tokens: int | None
    """Its share of the tokens."""
    outcome: Literal["", "succeeded", "failed", "budget"]
    """What its newest run came to, until it is reviewed; `budget`: its share was used up."""
    seconds: float
    """Of all its runs."""
    cost_usd: float
    """Of all its runs."""
    links: list[str]
    """Addresses in its result that it really saw; the steps after it may open them."""
    files: list[str]
    """Paths that its newest run changed, relative to the workspace."""


class StepInput(TypedDict):
    """What one `Send` to `run_step` carries."""

    job: Job
    message_id: str
    """Of the message that begins the executor's run; names its branch in the ledger."""
    prompt: str
    """What the executor is asked."""
    origin: Origin
    """What vouches for addresses in it."""
    images: list[str]
    """Pictures that the user gave, relative to the workspace."""
    elapsed_s: float
    """The run's time before this step."""


class StepOutput(TypedDict):
    """What `run_step` says of a step."""

    steps: dict[str, Any]
    usage: Usage
    elapsed_s: float


class StepState(StepInput, StepOutput):
    """The state of the graph that is `run_step`."""


class PlanningInput(TypedDict):
    """What callers pass."""

    messages: Messages


class PlanningOutput(TypedDict, total=False):
    """What callers get."""

    messages: Messages
    status: Status | None
    stop_reason: StopReason | None
    answer: str
    structured: Any
    usage: Annotated[Usage, merge_usage]
    artifacts: list[Artifact]


class PlanningState(TypedDict):
    """What a checkpoint holds. A run begins with a new user message, and `create_plan` resets it.

    Before the first `create_plan` only `messages` is there.
    """

    messages: Messages
    """The conversation with the user: tasks and answers. Steps have messages of their own."""
    title: str
    """Of the plan; empty while there is none. Written by `create_plan`."""
    order: list[str]
    """Ids of the plan's steps, as they are shown; written by `create_plan`."""
    steps: Annotated[dict[str, Job], DeltaChannel(merge_steps, snapshot_frequency=1000)]
    """By id. Incremental, so that storage grows linearly with the steps."""
    drafts: list[AnyMessage]
    """What was said with the model about the plan that is being made; emptied when it stands."""
    mending: list[str]
    """Ids of steps that failed for good, whose part of the plan `create_plan` is to replace."""
    replans: int
    """How often a part was replaced in this run."""
    reviewed: bool
    """Whether nobody needs to see the plan any more; written by `create_plan`, `approve_plan`."""
    run_message: str
    """Id of the user message that began the run; written by `create_plan`."""
    branch: str
    """Names the line of history this is, for the ledger: new with each user message and fork."""
    step_count: int
    """Requests for plans in this run."""
    elapsed_s: Annotated[float, furthest]
    """Seconds that the run took, over all its processes; waiting for people not counted."""
    status: Status | None
    """How the run ended; None while it goes on."""
    stop_reason: StopReason | None
    """Why it ended; whoever sets it sends the run to `finalize`."""
    answer: str
    """Text for the user; set when the run ends."""
    structured: Any
    """The validated object, if the caller gave a `response_format`; set by `finalize`."""
    usage: Annotated[Usage, merge_usage]
    """Of this run, the steps' own included."""
    artifacts: list[Artifact]
    """Files created or changed by the run; set by `finalize`."""
