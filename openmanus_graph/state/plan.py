"""A plan and its steps, as the state and the `planning` tool keep them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

StepStatus = Literal["not_started", "in_progress", "completed", "blocked"]


class Step(TypedDict):
    """One step of a plan."""

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
    """How many links of sites that nobody named were opened before, by site."""
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
    """Return the plan for commands without a `plan_id`."""
    return plans["plans"].get(plans["active"] or "")


def current_plan_step(plans: Plans) -> str | None:
    """Return the step of the active plan that is in progress, as PLAN/INDEX."""
    plan = active_plan(plans)
    for index, step in enumerate(plan["steps"] if plan else ()):
        if plan and step["status"] == "in_progress":
            return f"{plan['plan_id']}/{index}"
    return None


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


EDITABLE = ("id", "text", "executor", "depends_on", "done_when")
"""Fields of a step that a person may edit."""
_EVENT_FIELDS = (*EDITABLE, "status", "notes", "seconds", "cost_usd")


def plan_fields(plan: Plan, fields: Collection[str]) -> dict[str, Any]:
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

    def next_event(self, plan: Plan) -> dict[str, Any] | None:
        """Return the event that shows a plan; None if nothing changed.

        It shows the whole plan if the plan is new or has ended, and if the changes since the last
        whole one would name as many steps: followers that joined meanwhile get it then.
        """
        title = plan["title"]
        steps = {step["id"]: step for step in plan_fields(plan, _EVENT_FIELDS)["steps"]}
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
    """Return title and steps after a `plan` or `plan_change` event.

    Args:
        shown: The result for the event before with the same `plan_step`; empty at first.
        event: The event.
    """
    if event["type"] == "plan":
        return {"title": event["title"], "steps": event["steps"]}
    if not shown:
        return {}
    steps = {step["id"]: step for step in (*shown["steps"], *event["steps"])}
    order = event.get("order") or steps
    return {**shown, "steps": [steps[name] for name in order]}
