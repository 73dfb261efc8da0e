"""A plan and its steps, as the state and the `planning` tool keep them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

StepStatus = Literal["not_started", "in_progress", "completed", "blocked"]


class Step(TypedDict):
    """One step of a plan."""

    id: str
    text: str
    executor: str
    """Name of the graph that does it; empty where nobody asked."""
    depends_on: list[str]
    """Ids of the steps that must be completed before."""
    done_when: str
    """What must hold: `file: PATH`, `command: SHELL COMMAND`, or a question in words."""
    status: StepStatus
    notes: str
    result: str
    """What its run answered."""


class Plan(TypedDict):
    """Steps in the order in which they are shown; indices count from 0."""

    plan_id: str
    title: str
    steps: list[Step]


class Origin(TypedDict):
    """What verifies values in a message that holds more than what a person typed."""

    words: str
    """The person's own."""
    urls: list[str]
    """Seen by the steps before, word for word."""
    tainted: bool
    """Whether these steps may have read anything, or the message holds untrusted text."""
    private: NotRequired[bool]
    """Whether they may have read what is not of the public web; where it lacks, as `tainted`."""
    openings: NotRequired[dict[str, int]]
    """How many links of sites that nobody named were opened before, by site."""
    names: NotRequired[bool]
    """Whether it names files: names arm the rules about values, but not the leak rule."""


class Plans(TypedDict):
    """The plans of one thread, made with the `planning` tool."""

    plans: dict[str, Plan]
    active: str | None
    """Id of the plan that commands without a `plan_id` mean."""


def no_plans() -> Plans:
    """Return the plans of a new thread."""
    return Plans(plans={}, active=None)


def active_plan(plans: Plans) -> Plan | None:
    """Return the plan that commands without a `plan_id` mean."""
    return plans["plans"].get(plans["active"] or "")


def current_plan_step(plans: Plans) -> str | None:
    """Name the step of the active plan that is under way, as PLAN/INDEX."""
    plan = active_plan(plans)
    if plan is None:
        return None
    under_way = (i for i, step in enumerate(plan["steps"]) if step["status"] == "in_progress")
    index = next(under_way, None)
    return None if index is None else f"{plan['plan_id']}/{index}"


StepUpdate = Mapping[str, Any]
"""Fields of a step that change."""


def merge_steps(
    steps: Mapping[str, Any], updates: Sequence[Mapping[str, StepUpdate | None]]
) -> dict[str, Any]:
    """Reducer of steps by id: fields are merged, None removes a step."""
    merged = dict(steps)
    for update in updates:
        for step_id, fields in update.items():
            if fields is None:
                merged.pop(step_id, None)
            else:
                merged[step_id] = {**merged.get(step_id, {}), **fields}
    return merged
