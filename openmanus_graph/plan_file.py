"""Showing a plan: as an event, and as `plan.md` in the workspace."""

import asyncio
import contextlib
from typing import Any, Literal

from openmanus_graph.events import Emit, notice
from openmanus_graph.files.contained import put_file
from openmanus_graph.plan_view import EDITABLE, plan_document
from openmanus_graph.sessions import Session
from openmanus_graph.state.plan import Plan, Step
from openmanus_graph.workspace import Workspace

PLAN_FILE, OTHER_FILE = "plan.md", "openmanus-plan.md"
MADE_BY = "<!-- kept up to date by openmanus plan -->"
_SHOWN = (*EDITABLE, "status", "notes", "seconds", "cost_usd")


def plan_event(plan: Plan) -> dict[str, Any]:
    """Return the event that shows a plan as it stands."""
    steps = [{key: value for key, value in step.items() if key in _SHOWN} for step in plan["steps"]]
    return {"type": "plan", "title": plan["title"], "steps": steps}


async def show_plan(plan: Plan, session: Session, emit: Emit) -> None:
    """Tell the plan as it stands, and write it down. A file that cannot be written is only said.

    The plan of a flow that does a step of another plan is nobody's to see.
    """
    if session.is_inner:
        return
    emit(plan_event(plan))
    try:
        await asyncio.to_thread(_write, session.workspace, plan_document(plan))
    except OSError as error:
        notice(emit, f"{PLAN_FILE} could not be written: {error.strerror}.")


def tell_step(
    session: Session, emit: Emit, kind: Literal["step_start", "step_end"], step: Step, status: str
) -> None:
    """Tell that a step begins, or that it was looked at after its run."""
    if session.is_inner:
        return
    event = {"type": kind, "id": step["id"], "executor": step["executor"], "status": status}
    ended = kind == "step_end"
    spent = {key: value for key, value in step.items() if ended and key in ("seconds", "cost_usd")}
    emit(event | spent)


def _write(workspace: Workspace, text: str) -> None:
    path = workspace.root / PLAN_FILE
    with contextlib.suppress(FileNotFoundError):
        if MADE_BY not in path.read_text("utf-8", errors="replace"):
            path = workspace.root / OTHER_FILE  # the person has a plan.md of their own
    data = f"{text}\n{MADE_BY}\n".encode("utf-8", "replace")
    put_file(workspace, path, data, synced=False)  # it is written again at the next change
