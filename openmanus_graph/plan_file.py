"""Showing a plan: as an event, and as `plan.md` in the workspace."""

import asyncio
import contextlib
from typing import Any

from openmanus_graph.events import Emit, notice
from openmanus_graph.files.contained import put_file
from openmanus_graph.plans import plan_markdown
from openmanus_graph.state.plan import Plan
from openmanus_graph.workspace import Workspace

PLAN_FILE, OTHER_FILE = "plan.md", "openmanus-plan.md"
MADE_BY = "<!-- kept up to date by openmanus plan -->"
_SHOWN = ("id", "text", "executor", "depends_on", "done_when", "status", "seconds", "cost_usd")


def plan_event(plan: Plan) -> dict[str, Any]:
    """Return the event that shows a plan as it stands."""
    steps = [{key: value for key, value in step.items() if key in _SHOWN} for step in plan["steps"]]
    return {"type": "plan", "steps": steps}


async def show_plan(plan: Plan, workspace: Workspace, emit: Emit) -> None:
    """Tell the plan as it stands, and write it down. A file that cannot be written is only said."""
    emit(plan_event(plan))
    try:
        await asyncio.to_thread(_write, workspace, plan_markdown(plan))
    except OSError as error:
        notice(emit, f"{PLAN_FILE} could not be written: {error.strerror}.")


def _write(workspace: Workspace, text: str) -> None:
    path = workspace.root / PLAN_FILE
    with contextlib.suppress(FileNotFoundError):
        if MADE_BY not in path.read_text("utf-8", errors="replace"):
            path = workspace.root / OTHER_FILE  # the person has a plan.md of their own
    put_file(workspace, path, f"{text}\n{MADE_BY}\n".encode("utf-8", "replace"))
