"""The state of the planning graph."""

import operator
from typing import Annotated, Any, Literal, NotRequired

from langchain_core.messages import AnyMessage
from typing_extensions import TypedDict

from openmanus_graph.state.manus import (
    DeltaChannel,
    ManusOutput,
    StopReason,
    Usage,
    furthest,
    merge_usage,
)
from openmanus_graph.state.plan import Origin, Step, merge_steps

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
    openings: dict[str, dict[str, int]]
    """Links that its runs opened of sites that nobody named: by attempt, then by site."""
    files: list[str]
    """Paths that its newest run may have changed, relative to the workspace."""
    written_files: list[str]
    """Those of them that it certainly changed."""
    evidence: str
    """What its tools and the person said in its newest run, until it is completed."""
    disputed: str
    """What its check said that a judge is to look at; empty if none is."""
    judged_attempt: int
    """The last attempt in which a judge looked at its check; 0 if none did."""


class Replacement(TypedDict):
    """A part of the plan that was planned again."""

    number: int
    """Of the run's replacements, from 1: they are applied in this order."""
    replaced: list[str]
    """Ids of the steps that are gone."""
    new: list[StepRun]
    """What stands in the place of the first of them."""


class RunEnd(TypedDict):
    """Why the whole run ends before its plan is done: a limit, or a model that failed."""

    status: Literal["stopped", "failed"]
    stop_reason: StopReason
    answer: str


class WorkerReport(TypedDict):
    """What a worker's steps came to."""

    steps: dict[str, dict[str, Any]]
    """The steps that it ran, or their fields that changed, by id."""
    replacements: list[Replacement]
    run_end: RunEnd | None


class WorkerInput(TypedDict):
    """What one `Send` to `run_step` carries: a worker, and the step that it begins with."""

    batch: str
    """Names the workers that run at once."""
    worker: int
    """Its number. One without a step takes the first that another worker makes ready."""
    step_run: StepRun | None
    """The step, as it begins; None when there is none to do any more."""
    message_id: str
    """Of the message that begins the executor's run; names its branch in the ledger."""
    prompt: str
    """What the executor is asked."""
    task: NotRequired[str]
    """The whole task, if the step is all of the plan: then its run ends as any other does, and its
    answer is the flow's. Empty if there are other steps."""
    origin: Origin
    """What verifies addresses in it."""
    images: list[str]
    """Pictures that the user gave, relative to the workspace."""
    before: FlowProgress


class WorkerState(WorkerInput):
    """The state of the graph inside `run_step`: of one worker, which does step after step."""

    steps: Annotated[dict[str, Any], DeltaChannel(merge_steps, snapshot_frequency=1000)]
    """The steps that it ran, by id, as they are now."""
    replacements: Annotated[list[Replacement], operator.add]
    """Parts of the plan that it planned again."""
    drafts: list[AnyMessage]
    """The conversation about the part that it plans again; emptied when that is done."""
    run_end: RunEnd | None
    """Set where the whole run ends with one of its steps."""
    usage: Annotated[Usage, merge_usage]
    """Of its steps' runs that have ended, their checks and replanning."""
    step_count: Annotated[int, operator.add]
    """Model calls of these runs and of replanning."""
    elapsed_s: Annotated[float, furthest]
    """Of the whole run."""


class PlanningState(ManusOutput):
    """What a checkpoint holds. A run begins with a new user message, and `create_plan` resets it.

    Before the first `create_plan` only `messages` is there.
    """

    title: str
    """Of the plan; empty while there is none. Written by `create_plan`."""
    order: list[str]
    """Ids of the plan's steps, as they are shown; written by `create_plan`, `review_step`."""
    steps: Annotated[dict[str, StepRun], DeltaChannel(merge_steps, snapshot_frequency=1000)]
    """By id. Incremental, so that storage grows linearly with the steps."""
    drafts: list[AnyMessage]
    """What was said with the model about the plan that is being made; emptied when it stands."""
    planned_from_files: bool
    """Whether files were shown to the model that made the plan, so that one may have written what
    the steps say; written by `create_plan`."""
    replans: int
    """How often a part was replaced in this run."""
    batch: str
    """Names the workers that run at once; written by `schedule`."""
    workers: int
    """How many there are; written by `schedule`."""
    reports: Annotated[dict[str, WorkerReport], operator.or_]
    """What the workers of this parallel batch did, by their number; emptied by `review_step`."""
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
    workspace_snapshot: str
    """Id of the newest snapshot of the workspace, before and after each parallel batch; written by
    `schedule`, `review_step`."""
    snapshot_gap: str
    """Why files changed since are in no snapshot; empty if all are. Written with the former."""
