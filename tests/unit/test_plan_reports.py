"""What workers report is merged into the plan in any order, and as often as one likes."""

from itertools import permutations
from typing import Any, cast

import pytest

from openmanus_graph.planning.flow import (
    MAX_ATTEMPTS,
    begun_step_updates,
    merge_reports,
    new_step_run,
    next_node,
)
from openmanus_graph.planning.plan import make_steps, most_at_once
from openmanus_graph.state.planning import PlanningState, Replacement, StepRun, WorkerReport


def step_runs(*names: str, **fields: Any) -> list[StepRun]:
    steps = make_steps([{"id": name, "text": "x", "depends_on": []} for name in names])
    return [cast("StepRun", {**new_step_run(step), **fields}) for step in steps]


def plan(*names: str) -> PlanningState:
    made = {one["id"]: one for one in step_runs(*names)}
    return cast("PlanningState", {"order": list(made), "steps": made, "replans": 0})


def report(steps: dict[str, dict[str, Any]], *replacements: Replacement) -> WorkerReport:
    return WorkerReport(steps=steps, replacements=list(replacements), run_end=None)


def replace(number: int, replaced: list[str], *new: str, attempt: int = 0) -> Replacement:
    made = step_runs(*new, attempt=attempt)
    return Replacement(number=number, replaced=replaced, new=made)


def test_reports_count_in_any_order() -> None:
    reports = [
        report({"a": {"attempt": 1, "status": "not_started", "failures": 1}}),
        report({"a": {"attempt": 2, "status": "completed", "result": "ok"}}),
        report({"n": {"attempt": 1, "status": "in_progress", "outcome": "failed"}},
               replace(1, ["b", "c"], "n", "m")),
        report({}, replace(2, ["n", "m"], "o")),
    ]  # fmt: skip
    for ordered in permutations(reports):
        order, steps, replans = merge_reports(plan("a", "b", "c"), ordered)
        assert (order, list(steps), replans) == (["a", "o"], ["a", "o"], 2)
        assert (steps["a"]["status"], steps["a"]["result"]) == ("completed", "ok")


def test_a_report_that_was_merged_changes_nothing() -> None:
    reported = [report({"a": {"attempt": 1, "status": "completed"}}, replace(1, ["b"], "n"))]
    state = plan("a", "b")
    order, steps, replans = merge_reports(state, reported)
    again: PlanningState = {**state, "order": order, "steps": steps, "replans": replans}
    assert merge_reports(again, reported) == (order, steps, replans)


def test_what_is_known_of_a_step_is_not_true_of_one_under_its_old_name() -> None:
    older = report({"a": {"attempt": 1, "status": "not_started", "failures": 1}})
    newer = report({}, replace(1, ["a"], "a", attempt=2))
    _, steps, _ = merge_reports(plan("a"), [older, newer])
    assert (steps["a"]["failures"], steps["a"]["attempt"]) == (0, 2)


@pytest.mark.parametrize(
    ("fields", "node"),
    [
        ({}, "manus"),
        ({"outcome": "succeeded"}, "check_step"),
        ({"outcome": "failed", "failures": 1}, "check_step"),
        ({"outcome": "failed", "failures": MAX_ATTEMPTS}, "replan_step"),
        ({"executor": "gone"}, "missing_executor"),
        ({"executor": "gone", "outcome": "succeeded"}, "check_step"),
    ],
)
def test_a_worker_goes_on_where_its_step_is(fields: dict[str, Any], node: str) -> None:
    (step_run,) = step_runs("a", **{"executor": "manus", **fields})
    assert next_node(step_run, ["manus"]) == node
    assert next_node(None, ["manus"]) == "next_step"


def test_what_had_begun_comes_first_and_keeps_its_worker() -> None:
    begun = {"status": "in_progress", "attempt": 1}
    first, *later = step_runs("a", "b", "c", "d")
    running = [cast("StepRun", {**one, **begun, "worker": 2}) for one in later[1:2]]
    updates = begun_step_updates([first, later[0], *running, later[2]], 3)
    assert updates == {
        "c": {"status": "in_progress", "attempt": 1, "worker": 2},
        "a": {"status": "in_progress", "attempt": 1, "worker": 0},
        "b": {"status": "in_progress", "attempt": 1, "worker": 1},
    }
    fewer = begun_step_updates(step_runs("a", "b", **begun), 1)
    assert (fewer["a"]["status"], fewer["b"]["status"]) == ("in_progress", "not_started")


CHAIN: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}
DIAMONDS: dict[str, list[str]] = {
    "a": [],
    "b": [],
    "c": ["b", "a"],
    "d": ["c"],
    "e": ["c"],
    "f": ["e", "d"],
}


AT_ONCE: list[tuple[dict[str, list[str]], int]] = [
    ({}, 0),
    ({"a": []}, 1),
    (CHAIN, 1),
    ({**CHAIN, "long": []}, 2),
    (DIAMONDS, 2),
    ({name: [] for name in "abcd"}, 4),
    ({"end": [*"abc"], "a": [], "b": [], "c": []}, 3),
    ({"a": ["gone"], "b": ["gone", "a"]}, 1),
]


@pytest.mark.parametrize(("needs", "count"), AT_ONCE)
def test_no_more_steps_are_at_once_than_there_are_chains(
    needs: dict[str, list[str]], count: int
) -> None:
    made = step_runs(*needs) if needs else []
    steps = [cast("StepRun", {**one, "depends_on": needs[one["id"]]}) for one in made]
    assert most_at_once(steps) == count
