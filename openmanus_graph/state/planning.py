"""The state of the planning graph."""

import operator
from typing import Annotated, Any, Literal

from langchain_core.messages import AnyMessage
from typing_extensions import TypedDict

from openmanus_graph.state.manus import ManusOutput
from openmanus_graph.state.plan import Origin, Step, merge_steps
from openmanus_graph.state.reducers import DeltaChannel, Usage, furthest
from openmanus_graph.state.renamed import PlanningNames01, StepNames01

Outcome = Literal["", "succeeded", "failed", "max_steps", "budget", "timeout"]
"""How a step's run ended. The last three are limits of the whole run: the step resumes later."""


class PausedRun(TypedDict):
    """What a step resumes with, after a limit of the whole run ended its run."""

    message_id: str
    """Under which its messages were said; names its branch in the ledger."""
    messages: list[AnyMessage]
    """Its conversation so far."""
    state: dict[str, Any]
    """What else its executor keeps."""


class FlowProgress(TypedDict):
    """How far the whole run had come before the steps that run at once."""

    steps: int
    usage: Usage
    elapsed_s: float


class StepRun(Step):
    """A step of the plan with its progress."""

    attempt: int
    """How often it was begun."""
    failures: int
    """How often it failed by itself, and not because the budget was used up."""
    worker: int
    """Which kernel, shell and browser it uses; steps that run at once never share one."""
    outcome: Outcome
    """How its newest run ended, until it is reviewed."""
    paused_run: PausedRun | None
    """Where it goes on, after a limit of the whole run ended it."""
    seconds: float
    """Of all its runs."""
    cost_usd: float
    """Of all its runs."""
    urls: list[str]
    """Addresses in its result that it really saw; the steps after it may open them."""
    files: list[str]
    """Paths that its newest run may have changed, relative to the workspace."""
    written_files: list[str]
    """Those of them that it certainly changed."""


class StepInput(TypedDict):
    """What one `Send` to `run_step` carries."""

    step_run: StepRun
    message_id: str
    """Of the message that begins the executor's run; names its branch in the ledger."""
    prompt: str
    """What the executor is asked."""
    origin: Origin
    """What verifies addresses in it."""
    images: list[str]
    """Pictures that the user gave, relative to the workspace."""
    before: FlowProgress


class StepOutput(TypedDict):
    """What `run_step` writes to the plan's state."""

    steps: dict[str, Any]
    usage: Usage
    step_count: int
    elapsed_s: float


class StepState(StepInput, StepOutput, StepNames01):
    """The state of the graph that is `run_step`."""


class PlanningState(ManusOutput, PlanningNames01):
    """What a checkpoint holds. A run begins with a new user message, and `create_plan` resets it.

    Before the first `create_plan` only `messages` is there.
    """

    title: str
    """Of the plan; empty while there is none. Written by `create_plan`."""
    order: list[str]
    """Ids of the plan's steps, as they are shown; written by `create_plan`."""
    steps: Annotated[dict[str, StepRun], DeltaChannel(merge_steps, snapshot_frequency=1000)]
    """By id. Incremental, so that storage grows linearly with the steps."""
    drafts: list[AnyMessage]
    """What was said with the model about the plan that is being made; emptied when it stands."""
    replanning: list[str]
    """Ids of steps that failed for good, whose part of the plan `create_plan` is to replace."""
    replans: int
    """How often a part was replaced in this run."""
    reviewed: bool
    """Whether nobody needs to see the plan any more; written by `create_plan`, `approve_plan`."""
    run_message: str
    """Id of the user message that began the run; written by `create_plan`."""
    branch: str
    """Id of this line of the thread's history, as the ledger knows it: new with each user message
    and fork."""
    step_count: Annotated[int, operator.add]
    """Model calls of the planner and of the steps in this run."""
    elapsed_s: Annotated[float, furthest]
    """Seconds that the run took, over all its processes; waiting for people not counted."""
