"""Showing a plan: as an event, and as `plan.md` in the workspace."""

import asyncio
from pathlib import Path

from openmanus_graph.events import Emit, notice
from openmanus_graph.plans import plan_markdown
from openmanus_graph.state.plan import Plan
from openmanus_graph.workspace import Workspace

PLAN_FILE = "plan.md"
_SHOWN = ("id", "text", "executor", "depends_on", "done_when", "status", "seconds", "cost_usd")


async def show_plan(plan: Plan, workspace: Workspace, emit: Emit) -> None:
    """Tell the plan as it stands, and write it down. A file that cannot be written is only said."""
    steps = [{key: value for key, value in step.items() if key in _SHOWN} for step in plan["steps"]]
    emit({"type": "plan", "steps": steps})
    try:
        await asyncio.to_thread(_write, workspace.root / PLAN_FILE, plan_markdown(plan))
    except OSError as error:
        notice(emit, f"{PLAN_FILE} could not be written: {error.strerror}.")


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
