"""`planning`: plans that a thread keeps."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

from openmanus_graph.errors import ToolError
from openmanus_graph.planning.plan import PlanError, make_steps, plan_text
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.manus import Plan, Plans, Step, StepStatus
from openmanus_graph.state.tool_traits import InformationFlow, Observation
from openmanus_graph.tool_calls.agent import selected_alone
from openmanus_graph.tool_calls.declaration import manus_tool
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools import look_tools

Command = Literal["create", "update", "list", "get", "set_active", "mark_step", "delete"]
StepRows = Sequence[str | Mapping[str, Any]]
_TAKES: Mapping[Command, Collection[str]] = {
    "create": ("title", "steps"),
    "update": ("title", "steps"),
    "mark_step": ("step_status", "step_notes"),
}
"""The optional arguments that a command uses."""


class PlannedStep(BaseModel):
    """A step with more than a text."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(None, description="Short name; its index if left out.")
    text: str = Field(description="What to do.")
    executor: str | None = Field(None, description="Who does it.")
    depends_on: list[str | int] | None = Field(
        None, description="Ids of steps that must be completed before; [] if none."
    )
    done_when: str | None = Field(
        None, description="`file: PATH`, `command: SHELL COMMAND`, or a question in words."
    )


@manus_tool(effect="read_only", resource="planning", flow=InformationFlow(composed=True))
def planning(  # the model never sees `runtime`
    runtime: ToolRuntime[Any, Any],
    command: Command,
    plan_id: str | None = None,
    title: str | None = None,
    steps: list[str | PlannedStep] | None = None,
    step_index: int | None = None,
    step_status: StepStatus | None = None,
    step_notes: str | None = None,
) -> Observation:
    """Keep plans for long tasks: make them, change them, mark what is done.

    Args:
        command: create (plan_id, title, steps), update (title and/or steps), list, get, set_active,
            mark_step (step_index with step_status and/or step_notes), delete.
        plan_id: Which plan; the active one if left out, where that makes sense.
        title: Of the plan.
        steps: Texts, or objects with id, text, executor, depends_on, done_when.
        step_index: Counts from 0.
        step_status: The step's new status.
        step_notes: The step's new notes.
    """
    _refuse_unused_arguments(
        command, title=title, steps=steps, step_status=step_status, step_notes=step_notes
    )
    plans = call_runtime(runtime).plans
    rows = [s if isinstance(s, str) else s.model_dump(exclude_none=True) for s in steps or ()]
    match command:
        case "create":
            return _create(plans, plan_id, title, rows)
        case "update":
            return _update(plans, plan_id, title, rows if steps is not None else None)
        case "list":
            return Observation(_overview(plans))
        case "get":
            return Observation(plan_text(_find(plans, plan_id)))
        case "set_active":
            plan = _find(plans, _required(plan_id, "plan_id", "set_active"))
            return _changed(plans, plan, f"Plan {plan_id!r} is now the active plan.", plan_id)
        case "mark_step":
            return _mark(plans, plan_id, step_index, step_status, step_notes)
        case "delete":
            return _delete(plans, plan_id)


def _refuse_unused_arguments(command: Command, **given: Any) -> None:
    """Raise ToolError for an argument that the command would ignore."""
    for name, value in given.items():
        if value and name not in _TAKES.get(command, ()):
            takers = " and ".join(other for other, names in _TAKES.items() if name in names)
            raise ToolError(f"{command} takes no {name}; that is for {takers}. Nothing was done.")


PLANNING = Toolset({planning.name: planning}, None)
"""Only this tool, to check a plan that a person writes."""


def _plan_definition() -> dict[str, Any]:
    """Return how the tool is shown to a model that makes a plan: as if it had one command."""
    fields: dict[str, Any] = {
        name: {"type": "string", "description": field.description}
        for name, field in PlannedStep.model_fields.items()
    }
    fields["depends_on"] |= {"type": "array", "items": {"type": "string"}}
    step = {"type": "object", "properties": fields, "required": ["text"]}
    properties = {
        "title": {"type": "string", "description": "Of the plan."},
        "steps": {"type": "array", "description": "All of them.", "items": step},
    }
    parameters = {"type": "object", "properties": properties, "required": ["title", "steps"]}
    function = {"name": planning.name, "description": "Make a plan.", "parameters": parameters}
    return {"type": "function", "function": function}


async def drafting_toolset(session: Session) -> Toolset:
    """Return the tools of the model that makes a plan: this one, and those that read files."""

    def make() -> Toolset:
        chosen = selected_alone(session.settings.tools)
        looking = [tool for tool in look_tools() if chosen is None or tool.name in chosen]
        toolset = Toolset({tool.name: tool for tool in (planning, *looking)}, None)
        toolset.definitions[0] = _plan_definition()
        return toolset

    return await session.cached_off_loop(drafting_toolset, make)


def _create(plans: Plans, plan_id: str | None, title: str | None, rows: StepRows) -> Observation:
    plan_id = _required(plan_id, "plan_id", "create")
    title = _required(title, "title", "create")
    if plan_id in plans["plans"]:
        raise ToolError(f"A plan {plan_id!r} already exists. Use update, or another plan_id.")
    plan = Plan(plan_id=plan_id, title=title, steps=_make_steps(rows))
    return _changed(plans, plan, f"Plan created successfully with ID: {plan_id}", active=plan_id)


def _update(
    plans: Plans, plan_id: str | None, title: str | None, rows: StepRows | None
) -> Observation:
    plan = _find(plans, _required(plan_id or plans["active"], "plan_id", "update"))
    if not title and rows is None:
        raise ToolError("update needs a title or steps.")
    steps = plan["steps"] if rows is None else _with_progress(plan["steps"], _make_steps(rows))
    changed = Plan(plan_id=plan["plan_id"], title=title or plan["title"], steps=steps)
    return _changed(plans, changed, f"Plan updated successfully: {plan['plan_id']}")


def _mark(
    plans: Plans,
    plan_id: str | None,
    index: int | None,
    status: StepStatus | None,
    notes: str | None,
) -> Observation:
    plan = _find(plans, plan_id)
    if index is None:
        raise ToolError("mark_step needs step_index.")
    last = len(plan["steps"]) - 1
    if not 0 <= index <= last:
        raise ToolError(f"There is no step {index}. Steps are numbered 0 to {last}.")
    if status is None and notes is None:
        raise ToolError("mark_step needs step_status, step_notes, or both.")
    steps = list(plan["steps"])
    step = steps[index]
    steps[index] = {
        **step,
        "status": status or step["status"],
        "notes": step["notes"] if notes is None else notes,
    }
    text = f"Step {index} updated successfully in plan {plan['plan_id']!r}"
    return _changed(plans, {**plan, "steps": steps}, text)


def _delete(plans: Plans, plan_id: str | None) -> Observation:
    plan = _find(plans, _required(plan_id, "plan_id", "delete"))
    left = {name: other for name, other in plans["plans"].items() if name != plan["plan_id"]}
    active = plans["active"] if plans["active"] in left else None
    return Observation(
        f"Plan {plan_id!r} has been deleted.", plans=Plans(plans=left, active=active)
    )


def _overview(plans: Plans) -> str:
    if not plans["plans"]:
        return "No plans available. Create one with the command create."
    lines = ["Available plans:"]
    for name, plan in plans["plans"].items():
        mark = " (active)" if name == plans["active"] else ""
        done = sum(step["status"] == "completed" for step in plan["steps"])
        lines.append(f"• {name}{mark}: {plan['title']} - {done}/{len(plan['steps'])} completed")
    return "\n".join(lines)


def _find(plans: Plans, plan_id: str | None) -> Plan:
    wanted = plan_id or plans["active"]
    if wanted is None:
        raise ToolError("There is no active plan. Give a plan_id, or use set_active first.")
    if wanted not in plans["plans"]:
        known = ", ".join(plans["plans"]) or "none"
        raise ToolError(f"There is no plan {wanted!r}. Known: {known}.")
    return plans["plans"][wanted]


def _required(value: str | None, name: str, command: Command) -> str:
    if value is None or not value.strip():
        raise ToolError(f"{command} needs {name}.")
    return value


def _make_steps(rows: StepRows) -> list[Step]:
    try:
        return make_steps(rows)
    except PlanError as error:
        raise ToolError(f"That is not a plan: {error}.") from error


def _with_progress(old: Sequence[Step], new: Sequence[Step]) -> list[Step]:
    """Return new steps with status and notes of old ones that have the same text and index."""
    kept: list[Step] = []
    for index, step in enumerate(new):
        same = index < len(old) and old[index]["text"] == step["text"]
        kept.append(
            {**step, "status": old[index]["status"], "notes": old[index]["notes"]} if same else step
        )
    return kept


def _changed(plans: Plans, plan: Plan, said: str, active: str | None = None) -> Observation:
    text = f"{said}\n\n{plan_text(plan)}"
    changed = Plans(
        plans={**plans["plans"], plan["plan_id"]: plan}, active=active or plans["active"]
    )
    return Observation(text, plans=changed)
