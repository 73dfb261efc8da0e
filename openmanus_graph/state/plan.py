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
