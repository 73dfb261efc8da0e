"""The state of the planning graph, and the events that show its plan."""

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from langchain_core.messages import AnyMessage
from typing_extensions import TypedDict

from openmanus_graph.state import manus

Outcome = Literal["", "succeeded", "failed", "max_steps", "budget", "timeout"]
"""How a step's run ended. The last three are limits of the whole run: the step resumes later."""


def merge_steps(
    steps: Mapping[str, Any], updates: Sequence[Mapping[str, Mapping[str, Any] | None]]
) -> dict[str, Any]:
    """Merge changed fields of steps by id; None removes a step. A reducer."""
    merged = dict(steps)
    for update in updates:
        for step_id, fields in update.items():
            if fields is None:
                merged.pop(step_id, None)
            else:
                merged[step_id] = {**merged.get(step_id, {}), **fields}
    return merged


class PausedRun(TypedDict):
    """What a step resumes with, after a limit of the whole run stopped it."""

    message_id: str
    """Id of the message that began it; names its branch in the ledger."""
    messages: list[AnyMessage]
    """Its conversation so far."""
    state: dict[str, Any]
    """The rest of its executor's state."""


class FlowProgress(TypedDict):
    """Progress of the whole run before this parallel batch."""

    steps: int
    usage: manus.Usage
    elapsed_s: float


class StepRun(manus.Step):
    attempt: int
    """How often it was started."""
    failures: int
    """How often it failed for another reason than the budget."""
    worker: int
    """Which kernel, shell and browser it uses; steps that run at once never share one."""
    outcome: Outcome
    """How its newest run ended, until it is reviewed."""
    paused_run: PausedRun | None
    """Where it resumes, after a limit of the whole run stopped it."""
    seconds: float
    """Seconds of all its runs."""
    cost_usd: float
    """Dollars of all its runs."""
    urls: list[str]
    """Addresses in its result that it really saw; later steps may open them."""
    openings: dict[str, dict[str, int]]
    """How many links of sites that nobody named its runs opened, by attempt, then by site."""
    files: list[str]
    """Paths that its newest run may have changed, relative to the workspace."""
    written_files: list[str]
    """Those of `files` that it certainly changed."""
    evidence: str
    """What its tools and the person said in its newest run, until it is completed."""
    sources: NotRequired[list[manus.ClaimSource]]
    """Where the claims of its result come from."""
    disputed: str
    """The finding of its check that a judge must review; empty if there is none."""
    judged_attempt: int
    """The last attempt in which a judge reviewed its check; 0 if none did."""


class Replacement(TypedDict):
    number: int
    """Its number in the run, from 1: replacements are applied in this order."""
    replaced: list[str]
    """Ids of the steps that are removed."""
    new: list[StepRun]
    """The steps in the place of the first of them."""


class RunEnd(TypedDict):
    """Why the whole run ends before its plan is done: a limit, or a model that failed."""

    status: Literal["stopped", "failed"]
    stop_reason: manus.StopReason
    answer: str


class WorkerReport(TypedDict):
    steps: dict[str, dict[str, Any]]
    """The steps that it ran, or their changed fields, by id."""
    replacements: list[Replacement]
    run_end: RunEnd | None


class WorkerInput(TypedDict):
    """What one `Send` to `run_step` carries: a worker, and the step that it begins with."""

    batch: str
    """Names the workers that run at once."""
    worker: int
    """Its number. A worker without a step takes the first one that becomes ready."""
    step_run: StepRun | None
    """The step, as it begins; None if no step is left."""
    message_id: str
    """Id of the message that begins the executor's run; names its branch in the ledger."""
    prompt: str
    """What the executor is asked."""
    given: NotRequired[str]
    """The task, and what the results that it is given have found."""
    task: NotRequired[str]
    """The whole task, if the plan has only this step: its answer is then the flow's. Empty if there
    are other steps."""
    origin: manus.Origin
    """What verifies addresses in the prompt."""
    images: list[str]
    """Paths of the user's pictures, relative to the workspace."""
    before: FlowProgress


class WorkerState(WorkerInput):
    """The state of the graph inside `run_step`: one worker, which does step after step."""

    steps: Annotated[dict[str, Any], manus.DeltaChannel(merge_steps, snapshot_frequency=1000)]
    """The steps that the worker ran, by id, as they are now."""
    replacements: Annotated[list[Replacement], operator.add]
    """Parts of the plan that it replaced."""
    drafts: list[AnyMessage]
    """The conversation with the model about the part that it replaces; emptied when done."""
    run_end: RunEnd | None
    """Set if the whole run ends with one of its steps."""
    usage: Annotated[manus.Usage, manus.merge_usage]
    """What its steps' ended runs, their checks and replanning cost."""
    step_count: Annotated[int, operator.add]
    """Model calls of these runs and of replanning."""
    elapsed_s: Annotated[float, manus.furthest]
    """Seconds of the whole run."""


class PlanningState(manus.ManusOutput):
    """What a checkpoint holds. A run begins with a new user message, and `create_plan` resets it.

    Before the first `create_plan` only `messages` is there.
    """

    title: str
    """The plan's title; empty while there is none. Written by `create_plan`."""
    order: list[str]
    """Ids of the plan's steps, as they are shown; written by `create_plan`, `review_step`."""
    steps: Annotated[dict[str, StepRun], manus.DeltaChannel(merge_steps, snapshot_frequency=1000)]
    """The steps by id. Incremental, so that storage grows linearly with the steps."""
    drafts: list[AnyMessage]
    """The conversation with the model about a new plan; emptied when the plan is made."""
    planned_from_files: bool
    """Whether the model that made the plan read files, which may have influenced the steps; written
    by `create_plan`."""
    replans: int
    """How often a part of the plan was replaced in this run."""
    batch: str
    """Names the workers that run at once; written by `schedule`."""
    workers: int
    """How many workers run at once; written by `schedule`."""
    reports: Annotated[dict[str, WorkerReport], operator.or_]
    """Reports of this parallel batch, by the worker's number; emptied by `review_step`."""
    reviewed: bool
    """Whether the plan needs no approval; written by `create_plan`, `approve_plan`."""
    run_message: str
    """Id of the user message that began the run; written by `create_plan`."""
    branch: str
    """Id of the thread's history in the ledger: new with each user message and fork."""
    step_count: Annotated[int, operator.add]
    """Model calls of the planner and of the steps in this run."""
    elapsed_s: Annotated[float, manus.furthest]
    """Seconds that the run took, over all its processes; waiting for people not counted."""
    workspace_snapshot: str
    """Id of the newest snapshot of the workspace, before and after each parallel batch; written by
    `schedule`, `review_step`."""
    snapshot_gap: str
    """Why later changes are in no snapshot; empty if all are. Written with the snapshot's id."""


EDITABLE = ("id", "text", "executor", "depends_on", "done_when")
"""Fields of a step that a person may edit."""
EVENT_FIELDS = (*EDITABLE, "status", "notes", "seconds", "cost_usd")


def plan_fields(plan: manus.Plan, fields: Collection[str]) -> dict[str, Any]:
    """Return a plan's title, and these fields of its steps."""
    steps = [{key: value for key, value in step.items() if key in fields} for step in plan["steps"]]
    return {"title": plan["title"], "steps": steps}


class ShownPlan:
    """A plan as the followers of a run have seen it, so that its events carry only changes.

    The events of a run of n steps name O(n) steps, although some of them show the whole plan.
    """

    def __init__(self) -> None:
        self._plan_id = ""
        self._title = ""
        self._steps: dict[str, dict[str, Any]] = {}
        self._named = 0
        """How many steps were named since the whole plan was shown."""

    def next_event(self, plan: manus.Plan) -> dict[str, Any] | None:
        """Return the event that shows a plan; None if nothing changed.

        It shows the whole plan if the plan is new or has ended, and if the changes since the last
        whole one would name as many steps: followers that joined meanwhile get it then.
        """
        title = plan["title"]
        steps = {step["id"]: step for step in plan_fields(plan, EVENT_FIELDS)["steps"]}
        changed = [step for name, step in steps.items() if step != self._steps.get(name)]
        is_new = (self._plan_id, self._title) != (plan["plan_id"], title) or not self._steps
        same_order = list(steps) == list(self._steps)
        if not (is_new or changed) and same_order:
            return None
        self._plan_id, self._title, self._steps = plan["plan_id"], title, steps
        self._named += len(changed)
        ended = all(step["status"] in ("completed", "blocked") for step in steps.values())
        if is_new or ended or self._named >= len(steps):
            self._named = 0
            return {"type": "plan", "title": title, "steps": list(steps.values())}
        order = {} if same_order else {"order": list(steps)}
        return {"type": "plan_change", "steps": changed, **order}


def shown_after(shown: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
    """Return title and steps after a `plan` or `plan_change` event with the same `plan_step`.

    `shown` is the result for the event before, and empty at first.
    """
    if event["type"] == "plan":
        return {"title": event["title"], "steps": event["steps"]}
    if not shown:
        return {}
    steps = {step["id"]: step for step in (*shown["steps"], *event["steps"])}
    order = event.get("order") or steps
    return {**shown, "steps": [steps[name] for name in order]}
