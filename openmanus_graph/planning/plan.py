"""Builds and validates plans, and finds how their steps depend on each other: pure functions."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from openmanus_graph.state.manus import Plan, Step, StepStatus

MAX_STEPS = 100
MARKS: Mapping[StepStatus, str] = {
    "not_started": "[ ]",
    "in_progress": "[→]",
    "completed": "[✓]",
    "blocked": "[!]",
}
EXECUTOR_NAME = re.compile(r"[\w-]+")
_TAG = re.compile(rf"\[({EXECUTOR_NAME.pattern})\]")
_LEADING_TAG = re.compile(r"\s*\[([A-Z][A-Z0-9_-]*)\]")


class PlanError(Exception):
    """A plan is invalid; the text lists all problems."""


def make_steps(
    given: Sequence[str | Mapping[str, Any]],
    executors: Sequence[str] = (),
    *,
    kept: Iterable[Step] = (),
    prefix: str = "",
) -> list[Step]:
    """Make the steps of a plan from strings and objects.

    If no step has `depends_on`, each follows the one before, as in OpenManus. Dependencies are ids
    or indices. `[TAG]` in a step's text selects the executor with that name.

    Args:
        executors: Allowed names, the first by default; empty: names are not checked.
        kept: Steps that stay in the plan, which new ones may depend on.
        prefix: Prefix of generated ids.

    Raises:
        PlanError: The plan is invalid.
    """
    rows = [{"text": step} if isinstance(step, str) else dict(step) for step in given]
    problems: list[str] = []
    if not rows:
        problems.append("it has no steps")
    if len(rows) > MAX_STEPS:
        problems.append(
            f"it has {len(rows)} steps; at most {MAX_STEPS} are taken: make them larger"
        )
    ids = [str(row.get("id") or f"{prefix}{index}") for index, row in enumerate(rows)]
    used_ids = {step["id"] for step in kept}
    names = [*used_ids, *ids]
    repeated = sorted({name for name in names if names.count(name) > 1})
    problems += [f"two steps have the id {name!r}" for name in repeated]
    parallel = any(row.get("depends_on") is not None for row in rows)
    steps: list[Step] = []
    for index, (step_id, row) in enumerate(zip(ids, rows, strict=True)):
        before = [ids[index - 1]] if index and not parallel else []
        needs = row.get("depends_on")
        steps.append(
            Step(
                id=step_id,
                text=str(row.get("text") or "").strip(),
                executor=_executor(row, executors),
                depends_on=before if needs is None else _known_ids(needs, ids, used_ids),
                done_when=str(row.get("done_when") or "").strip(),
                status="not_started",
                notes="",
                result="",
            )
        )
    problems += _step_problems(steps, executors, used_ids)
    if problems:
        raise PlanError("; ".join(problems))
    return steps


def _executor(row: Mapping[str, Any], executors: Sequence[str]) -> str:
    """Return a step's executor: its own field, a `[TAG]` in its text, or the first of all."""
    by_name = {_normalised(name): name for name in executors}
    text = str(row.get("text") or "")
    if wanted := str(row.get("executor") or ""):
        return wanted if wanted in executors else by_name.get(_normalised(wanted), wanted)
    for tag in _TAG.findall(text):
        if _normalised(tag) in by_name:
            return tag if tag in executors else by_name[_normalised(tag)]
    leading = _LEADING_TAG.match(text)
    if leading and executors:
        return leading[1].lower()  # no executor's name, which `_step_problems` reports
    return executors[0] if executors else ""


def _normalised(name: str) -> str:
    """Normalise a name: `[DATA-ANALYSIS]` is `data_analysis`."""
    return name.lower().replace("-", "_")


def _known_ids(needs: Any, ids: Sequence[str], used_ids: Collection[str]) -> list[str]:
    """Read dependencies: ids, or indices if no step has such an id."""
    named: list[str] = []
    for need in [needs] if isinstance(needs, str | int) else needs:
        name = str(need)
        if name not in ids and name not in used_ids and name.isdecimal() and int(name) < len(ids):
            name = ids[int(name)]
        if name not in named:
            named.append(name)
    return named


def _step_problems(
    steps: Sequence[Step], executors: Sequence[str], used_ids: Collection[str]
) -> list[str]:
    known = {step["id"] for step in steps} | set(used_ids)
    problems: list[str] = []
    for step in steps:
        if not step["text"]:
            problems.append(f"step {step['id']} has no text")
        if executors and step["executor"] not in executors:
            names = ", ".join(executors)
            problems.append(
                f"step {step['id']} names executor {step['executor']!r}; known: {names}"
            )
        for need in step["depends_on"]:
            if need == step["id"]:
                problems.append(f"step {need} depends on itself")
            elif need not in known:
                problems.append(f"step {step['id']} depends on {need!r}, which does not exist")
    if cycle := _cycle(steps):
        problems.append(f"steps {', '.join(cycle)} depend on each other in a circle")
    return problems


def _cycle(steps: Sequence[Step]) -> list[str]:
    waiting = {step["id"]: {*step["depends_on"]} - {step["id"]} for step in steps}
    before = 0
    while before != len(waiting):
        before = len(waiting)
        needed = {need for needs in waiting.values() for need in needs}
        waiting = {
            name: needs & waiting.keys()
            for name, needs in waiting.items()
            if needs & waiting.keys() and name in needed
        }
    return list(waiting)


def most_at_once(steps: Sequence[Step]) -> int:
    """Return a bound of how many steps can be under way at once.

    It is the number of sequences of steps that wait for each other.
    """
    names = {step["id"] for step in steps}
    needs = {step["id"]: names.intersection(step["depends_on"]) for step in steps}
    before: dict[str, set[str]] = {}
    ends: list[str] = []
    for name in TopologicalSorter(needs).static_order():
        before[name] = needs[name].union(*(before[need] for need in needs[name]))
        sequence = next((n for n, end in enumerate(ends) if end in before[name]), len(ends))
        ends[sequence : sequence + 1] = [name]
    return len(ends)


def dependents(steps: Sequence[Step], roots: Collection[str]) -> list[str]:
    """Return the ids of all steps that depend on one of these, directly or not."""
    found: set[str] = set(roots)
    while more := {s["id"] for s in steps if s["id"] not in found and found & set(s["depends_on"])}:
        found |= more
    return [step["id"] for step in steps if step["id"] in found and step["id"] not in roots]


def ancestors_of(steps: Sequence[Step], name: str) -> list[str]:
    """Return the ids of all steps that one depends on, directly or not, in the plan's order."""
    needs = {step["id"]: step["depends_on"] for step in steps}
    found: set[str] = set()
    left = list(needs[name])
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += needs[one]
    return [step["id"] for step in steps if step["id"] in found]


def plan_text(plan: Plan) -> str:
    """Write a plan as the `planning` tool shows it."""
    steps = plan["steps"]
    counts = {status: sum(s["status"] == status for s in steps) for status in MARKS}
    done, total = counts["completed"], len(steps)
    share = f" ({100 * done / total:.1f}%)" if total else ""
    head = f"Plan: {plan['title']} (ID: {plan['plan_id']})"
    lines = [
        head,
        "=" * len(head),
        "",
        f"Progress: {done}/{total} steps completed{share}",
        f"Status: {done} completed, {counts['in_progress']} in progress, "
        f"{counts['blocked']} blocked, {counts['not_started']} not started",
        "",
        "Steps:",
    ]
    for index, step in enumerate(steps):
        lines.append(f"{index}. {MARKS[step['status']]} {step['text']}")
        if step["notes"]:
            lines.append(f"   Notes: {step['notes']}")
    return "\n".join(lines)
