"""A plan as people read it: before it is carried out, and as the checklist in the workspace."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from openmanus_graph.state.plan import Plan, Step

RESULT_CHARS = 600
"""Of a step's result in the checklist; the whole is in the thread."""
EDITABLE = ("id", "text", "executor", "depends_on", "done_when")
_BOXES = {"not_started": "[ ]", "in_progress": "[→]", "completed": "[x]", "blocked": "[!]"}
"""Markdown's own box for what is done."""


def plan_for_review(plan: Plan) -> str:
    """Write what would be done: each step with who does it, after what, and how it is checked."""
    width = max((len(step["id"]) for step in plan["steps"]), default=0)
    lines = [f"Plan: {plan['title']}"]
    for step in plan["steps"]:
        lines.append(f"  {step['id']:<{width}}  {_one_line(step['text'])}")
        lines.append(f"  {'':<{width}}  └ {_terms(step)}")
    return "\n".join(lines)


def plan_as_json(plan: Plan) -> str:
    """Write a plan's title and steps as a person may edit them."""
    return json.dumps(
        {"title": plan["title"], "steps": [editable(step) for step in plan["steps"]]},
        ensure_ascii=False,
        indent=1,
    )


def editable(step: Step) -> dict[str, Any]:
    """Return the fields of a step that a person may change."""
    return {key: value for key, value in step.items() if key in EDITABLE}


def plan_document(plan: Plan) -> str:
    """Write the checklist in Markdown: marks, executors, times, and what came of each step."""
    steps = plan["steps"]
    done = sum(step["status"] == "completed" for step in steps)
    lines = [f"# {_one_line(plan['title'])}", "", f"{done} of {len(steps)} steps completed", ""]
    for index, step in enumerate(steps):
        facts = [step["status"].replace("_", " "), *_spent(step), _terms(step)]
        text = _one_line(step["text"])
        lines.append(f"- {_BOXES[step['status']]} {index}. {text} ({'; '.join(facts)})")
        if step["notes"]:
            lines.append(f"  - {_one_line(step['notes'])}")
        if step["status"] == "completed":
            lines += _result(step["result"])
    return "\n".join(lines) + "\n"


def _terms(step: Step) -> str:
    """Say who does a step, after what, and how it is checked."""
    terms = [step["executor"]]
    if step["depends_on"]:
        terms.append(f"after {', '.join(step['depends_on'])}")
    if step["done_when"]:
        terms.append(f"done when {_one_line(step['done_when'])}")
    return "; ".join(filter(None, terms))


def _spent(step: Mapping[str, Any]) -> Iterator[str]:
    """Say what a step of the flow took; the `planning` tool's have no times."""
    if step.get("seconds"):
        yield f"{step['seconds']:.1f} s"
        yield f"${step.get('cost_usd') or 0:.4f}"


def _result(text: str) -> Iterator[str]:
    """Quote a result below its step, cut where it is long."""
    shown = text.strip()
    if len(shown) > RESULT_CHARS:
        shown = f"{shown[:RESULT_CHARS]} …"
    for line in shown.splitlines():
        yield f"  > {line}".rstrip()


def _one_line(text: str) -> str:
    return " ".join(text.split())
