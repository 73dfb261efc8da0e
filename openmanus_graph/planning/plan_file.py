"""Publishes a plan: as an event, and as `plan.md` in the workspace."""

import asyncio
import contextlib
from typing import Any, Literal

from openmanus_graph.planning.plan_view import EDITABLE, plan_document
from openmanus_graph.runtime.contained import put_file
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.plan import Plan, Step

PLAN_FILE, OTHER_FILE = "plan.md", "openmanus-plan.md"
MADE_BY = "<!-- kept up to date by openmanus plan -->"
_SHOWN = (*EDITABLE, "status", "notes", "seconds", "cost_usd")


def plan_event(plan: Plan) -> dict[str, Any]:
    """Return the event that shows a plan as it stands."""
    steps = [{key: value for key, value in step.items() if key in _SHOWN} for step in plan["steps"]]
    return {"type": "plan", "title": plan["title"], "steps": steps}


async def show_plan(plan: Plan, session: Session, emit: Emit) -> None:
    """Send the plan's event and write its file; a file that cannot be written gives a notice.

    Nothing is shown of a plan inside a step of another plan.
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
    """Send the event of a step that starts, or that was reviewed after its run."""
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
