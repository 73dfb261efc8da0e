"""Shows a plan to users: the review request before it runs, its events, and `plan.md`."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Literal, cast

from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, put_file
from openmanus_graph.safety.open_beneath import read_beneath
from openmanus_graph.state.interrupts import decision_request
from openmanus_graph.state.manus import Plan, Step
from openmanus_graph.state.planning import EDITABLE, ShownPlan, plan_fields

SHOWN_CHARS = 600
"""Limit of a step's result in the checklist; the thread has all of it."""
_PLAN_TOOL = "planning"
"""The tool name in a review request; calls of that tool never need approval."""
PLAN_FILE, FALLBACK_PLAN_FILE = "plan.md", "openmanus-plan.md"
PLAN_FILE_MARK = "<!-- kept up to date by openmanus plan -->"
"""In the files that we wrote; a `plan.md` without it is the user's own."""
_MOST_BYTES = 10 * 1024**2
"""Of a file that may be ours."""
_BOXES = {"not_started": "[ ]", "in_progress": "[→]", "completed": "[x]", "blocked": "[!]"}
"""Markdown's checkboxes."""


def plan_for_review(plan: Plan) -> str:
    width = max((len(step["id"]) for step in plan["steps"]), default=0)
    lines = [f"Plan: {plan['title']}"]
    for step in plan["steps"]:
        lines.append(f"  {step['id']:<{width}}  {_one_line(step['text'])}")
        lines.append(f"  {'':<{width}}  └ {_terms(step)}")
    return "\n".join(lines)


def plan_as_json(plan: Plan) -> str:
    return json.dumps(plan_fields(plan, EDITABLE), ensure_ascii=False, indent=1)


def plan_request(plan: Plan, problem: str) -> dict[str, Any]:
    """Return the interrupt request that asks to approve a plan."""
    again = f"That cannot be done: {problem}. " if problem else ""
    question = (
        f"{again}Carry out this plan? Approve, edit its steps, reject, or say what to change."
        f"\n\n{plan_for_review(plan)}"
    )
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
    for index, step in enumerate(steps):
        spent = cast("Mapping[str, Any]", step)  # steps of the `planning` tool have no time
        facts = [step["status"].replace("_", " ")]
        if spent.get("seconds"):
            facts += [f"{spent['seconds']:.1f} s", f"${spent.get('cost_usd') or 0:.4f}"]
        shown = "; ".join(filter(None, [*facts, _terms(step)]))
        lines.append(f"- {_BOXES[step['status']]} {index}. {_one_line(step['text'])} ({shown})")
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
    return [name for name in names if _is_ours(_content(workspace, name))]


def _is_ours(content: bytes | None) -> bool:
    return content is not None and PLAN_FILE_MARK.encode() in content


def _write_plan_file(workspace: Workspace, text: str) -> None:
    data = f"{text}\n{PLAN_FILE_MARK}\n".encode("utf-8", "replace")
    name, found = PLAN_FILE, _content(workspace, PLAN_FILE)
    if found is not None and not _is_ours(found):
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
