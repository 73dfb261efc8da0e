"""The events of a plan carry what changed, and whoever merges them sees the plan as it is."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from openmanus_graph.state.manus import Plan, Step
from openmanus_graph.state.planning import ShownPlan, shown_after


def step(name: str, status: str = "not_started", **more: Any) -> Step:
    made: dict[str, Any] = {"id": name, "text": f"do {name}", "executor": "manus", "depends_on": [],
            "done_when": "", "status": status, "notes": "", "result": ""}  # fmt: skip
    return cast("Step", {**made, **more})


def plan_of(*steps: Step, title: str = "The plan", plan_id: str = "p") -> Plan:
    return Plan(plan_id=plan_id, title=title, steps=list(steps))


def lives_of(count: int) -> list[Plan]:
    """Return a plan of so many steps, as it is when each begins and when each has ended."""
    steps = [step(f"s{number}") for number in range(count)]
    plans = [plan_of(*steps)]
    for number in range(count):
        for status in ("in_progress", "completed"):
            steps[number] = step(f"s{number}", status)
            plans.append(plan_of(*steps))
    return plans


def events_of(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    shown = ShownPlan()
    return [event for plan in plans if (event := shown.next_event(plan))]


def seen(event: Mapping[str, Any], shown: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(one["id"], one["status"]) for one in shown_after(shown, event).get("steps", ())]


def size_of(events: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(json.dumps(event)) for event in events)


def test_the_events_of_a_plan_of_two_hundred_steps_grow_with_its_steps() -> None:
    fifty, two_hundred = size_of(events_of(lives_of(50))), size_of(events_of(lives_of(200)))
    assert two_hundred < 4.5 * fifty
    whole = size_of(events_of(lives_of(200)[:1]))
    assert two_hundred < 8 * whole, "each step is named a few times"


@pytest.mark.parametrize("count", [1, 2, 3, 10, 40])
def test_who_merges_the_events_sees_the_plan_after_each(count: int) -> None:
    shown: dict[str, Any] = {}
    for plan, event in zip(lives_of(count), events_of(lives_of(count)), strict=True):
        shown = shown_after(shown, event)
        assert shown["title"] == plan["title"]
        assert [one["status"] for one in shown["steps"]] == [one["status"] for one in plan["steps"]]


@pytest.mark.parametrize("missed", [0, 1, 5, 20])
def test_who_begins_to_listen_in_the_middle_gets_the_whole_of_it(missed: int) -> None:
    plans = lives_of(10)
    reported = list(zip(plans, events_of(plans), strict=True))[missed:]
    first = next(number for number, (_, event) in enumerate(reported) if event["type"] == "plan")
    assert first <= 10
    shown: dict[str, Any] = {}
    for number, (plan, event) in enumerate(reported):
        shown = shown_after(shown, event)
        now = [one["status"] for one in plan["steps"]] if number >= first else []
        assert [one["status"] for one in shown.get("steps", ())] == now


def test_the_first_and_the_last_are_whole() -> None:
    first, *between, last = events_of(lives_of(10))
    assert (first["type"], last["type"]) == ("plan", "plan")
    assert {event["type"] for event in between} == {"plan", "plan_change"}
    assert len(last["steps"]) == 10


def test_steps_that_came_went_and_moved_are_told_by_the_order() -> None:
    many = [step(f"s{number}") for number in range(9)]
    before = plan_of(*many, step("old"))
    after = plan_of(step("new"), *many[1:], many[0])
    first, change = events_of([before, after])
    assert change == {
        "type": "plan_change",
        "steps": [{key: value for key, value in step("new").items() if key != "result"}],
        "order": ["new", *(f"s{number}" for number in range(1, 9)), "s0"],
    }
    names = [name for name, _ in seen(change, shown_after({}, first))]
    assert names == change["order"]
    only_gone = events_of([before, plan_of(*many)])[1]
    assert only_gone["steps"] == []
    assert [name for name, _ in seen(only_gone, shown_after({}, first))] == only_gone["order"]


def test_nothing_is_told_twice_and_another_plan_is_told_whole() -> None:
    one = plan_of(*(step(f"s{number}") for number in range(5)))
    shown = ShownPlan()
    assert shown.next_event(one) is not None
    assert shown.next_event(one) is None
    for other in ({**one, "plan_id": "q"}, {**one, "plan_id": "q", "title": "Another"}):
        event = shown.next_event(cast("Plan", other))
        assert event == {"type": "plan", "title": other["title"], "steps": event and event["steps"]}
        assert event is not None
        assert len(event["steps"]) == 5
