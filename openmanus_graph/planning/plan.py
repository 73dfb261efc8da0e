"""Builds and validates plans, and shows them: as text, as a review request, in `plan.md`."""

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, cast

from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.output import money
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, put_file
from openmanus_graph.safety.open_beneath import read_beneath
from openmanus_graph.state.interrupts import decision_request
from openmanus_graph.state.manus import Plan, Step, StepStatus
from openmanus_graph.state.planning import EDITABLE, ShownPlan, plan_fields

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
    """Make the steps of a plan from strings and objects. PlanError lists what is wrong.

    If no step has `depends_on`, each follows the one before, as in OpenManus. Dependencies are ids
    or indices. `[TAG]` in a step's text selects the executor with that name. The first of the
    `executors` is the default; without any, names are not checked. New steps may depend on those
    that are `kept`. Generated ids begin with `prefix`.
    """
    rows = [{"text": step} if isinstance(step, str) else dict(step) for step in given]
    problems: list[str] = []
    if not rows:
        problems.append("it has no steps")
    if len(rows) > MAX_STEPS:
        problems.append(
            f"it has {len(rows)} steps; at most {MAX_STEPS} are allowed: make them larger"
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
    return name.lower().replace("-", "_")  # `[DATA-ANALYSIS]` is `data_analysis`


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
    needs = {step["id"]: {*step["depends_on"]} - {step["id"]} for step in steps}
    for circle in _circles(needs):
        problems.append(f"steps {', '.join(circle)} depend on each other in a circle")
    return problems


def _circles(needs: Mapping[str, set[str]]) -> Iterator[list[str]]:
    while True:
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            yield (circle := [name for name in needs if name in error.args[1]])
            needs = {name: need.difference(circle) for name, need in needs.items()}
        else:
            return


def most_at_once(steps: Sequence[Step]) -> int:
    """Return how many steps can be under way at once: the sequences that wait for each other."""
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


SHOWN_CHARS = 600
"""Limit of a step's result in the checklist; the thread has all of it."""
_PLAN_TOOL = "planning"
"""The tool name in a review request; calls of that tool never need approval."""
PLAN_FILE, FALLBACK_PLAN_FILE = "plan.md", "openmanus-plan.md"
PLAN_FILE_MARK = (
    "<!-- OpenManus keeps this file up to date. Delete this line to keep it as it is. -->"
)
"""In the files that we wrote; a `plan.md` without it is the user's own."""
_MOST_BYTES = 10 * 1024**2
_BOXES = {**MARKS, "completed": "[x]"}  # Markdown's checkbox


def plan_as_json(plan: Plan) -> str:
    return json.dumps(plan_fields(plan, EDITABLE), ensure_ascii=False, indent=1)


def plan_request(plan: Plan, problem: str) -> dict[str, Any]:
    """Return the interrupt request that asks to approve a plan."""
    again = f"That cannot be done: {problem}. " if problem else ""
    choice = "Carry out this plan? Approve, edit its steps, reject, or say what to change."
    width = max((len(step["id"]) for step in plan["steps"]), default=0)
    lines = [f"{again}{choice}", "", f"Plan: {plan['title']}"]
    for step in plan["steps"]:
        lines.append(f"  {step['id']:<{width}}  {_one_line(step['text'])}")
        lines.append(f"  {'':<{width}}  └ {_terms(step)}")
    question = "\n".join(lines)
    allowed = ("approve", "edit", "reject", "respond")
    args = plan_fields(plan, EDITABLE)
    return decision_request("approval", question, _PLAN_TOOL, args, plan["plan_id"], allowed)


def is_plan_request(request: Mapping[str, Any]) -> bool:
    """Return True if an interrupt request, or its event, asks to review a plan."""
    calls = request.get("calls") or ()
    return request.get("kind") == "approval" and [c["tool"] for c in calls] == [_PLAN_TOOL]


def plan_of_request(request: Mapping[str, Any]) -> str:
    return json.dumps(request["calls"][0]["args"], ensure_ascii=False, indent=1) + "\n"


def plan_document(plan: Plan) -> str:
    """Render the checklist in Markdown: marks, executors, times and results."""
    steps = plan["steps"]
    done = sum(step["status"] == "completed" for step in steps)
    lines = [f"# {_one_line(plan['title'])}", "", f"{done} of {len(steps)} steps completed", ""]
    for step in steps:
        spent = cast("Mapping[str, Any]", step)  # steps of the `planning` tool have no time
        facts = [step["status"].replace("_", " ")]
        if spent.get("seconds"):
            facts += [f"{spent['seconds']:.1f} s", money(spent.get("cost_usd") or 0)]
        shown = "; ".join(filter(None, [*facts, _terms(step)]))
        lines.append(
            f"- {_BOXES[step['status']]} **{step['id']}**: {_one_line(step['text'])} ({shown})"
        )
        if step["notes"]:
            lines.append(f"  - {_one_line(step['notes'])}")
        if step["status"] == "completed":
            result = step["result"].strip()
            if len(result) > SHOWN_CHARS:
                result = f"{result[:SHOWN_CHARS]} …"
            lines += [f"  > {line}".rstrip() for line in result.splitlines()]
    return "\n".join(lines) + "\n"


def _terms(step: Step) -> str:
    terms = [step["executor"]]
    if step["depends_on"]:
        terms.append(f"after {', '.join(step['depends_on'])}")
    if step["done_when"]:
        terms.append(f"done when {_one_line(step['done_when'])}")
    return "; ".join(filter(None, terms))


def _one_line(text: str) -> str:
    return " ".join(text.split())


async def publish_plan(plan: Plan, session: Session, emit: Emit) -> None:
    """Send the plan's event and write its file; a file that cannot be written gives a notice.

    Does nothing for a plan inside a step of another plan.
    """
    if session.is_nested:
        return
    if event := session.cached(ShownPlan, ShownPlan).next_event(plan):
        emit(event)
    try:
        await asyncio.to_thread(_write_plan_file, session.workspace, plan_document(plan))
    except OSError as error:
        notice(emit, f"{PLAN_FILE} could not be written: {error.strerror}.")


def emit_step_event(
    session: Session, emit: Emit, kind: Literal["step_start", "step_end"], step: Step, status: str
) -> None:
    """Send the event of a step that starts, or that was reviewed after its run."""
    if session.is_nested:
        return
    event = {"type": kind, "id": step["id"], "executor": step["executor"], "status": status}
    ended = kind == "step_end"
    spent = {key: value for key, value in step.items() if ended and key in ("seconds", "cost_usd")}
    emit(event | spent)


def plan_files(workspace: Workspace) -> list[str]:
    """Return the names of the files that hold our plan. Blocks."""
    names = (PLAN_FILE, FALLBACK_PLAN_FILE)
    return [name for name in names if PLAN_FILE_MARK.encode() in (_content(workspace, name) or b"")]


def _write_plan_file(workspace: Workspace, text: str) -> None:
    data = f"{text}\n{PLAN_FILE_MARK}\n".encode("utf-8", "replace")
    name, found = PLAN_FILE, _content(workspace, PLAN_FILE)
    if found is not None and PLAN_FILE_MARK.encode() not in found:
        name = FALLBACK_PLAN_FILE  # the user has another plan.md
        found = _content(workspace, name)
    if found != data:  # it is written again at the next change
        put_file(workspace, workspace.root / name, data, synced=False)


def _content(workspace: Workspace, name: str) -> bytes | None:
    """Return a file's content; empty if it cannot be read; None if there is none."""
    try:
        return read_beneath(workspace.root, name, _MOST_BYTES, follow=False)
    except FileNotFoundError:
        return None
    except OSError:
        return b""
