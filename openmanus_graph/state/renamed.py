"""What version 0.1 called parts of the state that have another name now: its threads still resume.

The old channels stay in the schemas, so that LangGraph reads them. Every node gets its state
through `with_current_names`, and the first one that runs empties them (`moved`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, cast

from langgraph.types import Command, Overwrite
from typing_extensions import TypedDict

from openmanus_graph.state.reducers import HandleStates, merge_handle_states, union

CURRENT_NAMES = {
    "held": "handle_state",
    "granted": "standing_approvals",
    "remarks": "interjections",
    "unvouched": "unverified",
    "own_words": "trusted_text",
    "grant": "standing_approval",
    "mending": "replanning",
    "job": "step_run",
    "lane": "worker",
    "links": "urls",
    "wrote": "written_files",
    "paused": "paused_run",
}
"""By the name in version 0.1."""


_REDUCED = ("held", "granted")
_CHANNELS = (*_REDUCED, "remarks", "mending")
"""Whole channels, those with a reducer first; the other names stand inside of values."""


class ManusNames01(TypedDict, total=False):
    """Channels of the manus graph as version 0.1 named them; read, and emptied."""

    held: Annotated[HandleStates, merge_handle_states]
    """Now `handle_state`."""
    granted: Annotated[list[str], union]
    """Now `standing_approvals`."""
    remarks: list[str]
    """Now `interjections`."""


class PlanningNames01(TypedDict, total=False):
    """Channels of the planning graph as version 0.1 named them; read, and emptied."""

    mending: list[str]
    """Now `replanning`."""


class StepNames01(TypedDict, total=False):
    """Channels of a plan's step as version 0.1 named them; read, and emptied."""

    job: dict[str, Any]
    """Now `step_run`."""


def with_current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state, a `Send`'s payload or a ledger's outcome under today's names.

    What stands under both names counts as it stands under today's, unless that is empty: LangGraph
    gives channels with a reducer an empty value of their own.
    """
    renamed = dict(_renamed(values))
    if isinstance(steps := renamed.get("steps"), dict):
        steps_by_id = cast("dict[str, Mapping[str, Any]]", steps)
        renamed["steps"] = {name: _renamed(step) for name, step in steps_by_id.items()}
    for part in ("step_run", "origin"):
        if isinstance(value := renamed.get(part), dict):
            renamed[part] = _renamed(cast("dict[str, Any]", value))
    if isinstance(calls := renamed.get("calls"), list):
        renamed["calls"] = [_renamed(call) for call in cast("list[dict[str, Any]]", calls)]
    return renamed


def moved(saved: Mapping[str, Any], update: Any) -> Any:
    """Return a node's update that also moves what is kept under old names.

    Else it would come back when its new name is emptied: an approval that was for one run.

    Args:
        saved: The whole state, as the node found it.
        update: Of the node: a dict, or a `Command` with one.
    """
    old = {name: saved[name] for name in _CHANNELS if saved.get(name)}
    if not old:
        return update
    kept = {CURRENT_NAMES[name]: _written(name, value) for name, value in old.items()}
    emptied = {name: _written(name, type(value)()) for name, value in old.items()}
    if isinstance(update, Command):
        command = cast("Command[Any]", update)
        return replace(command, update={**kept, **emptied, **(command.update or {})})
    return {**kept, **emptied, **update}


def _written(channel: str, value: Any) -> Any:
    return Overwrite(value) if channel in _REDUCED else value


def _renamed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of a state under today's names; the part itself if it has no others."""
    if CURRENT_NAMES.keys().isdisjoint(values):
        return values
    current = {name: value for name, value in values.items() if name not in CURRENT_NAMES}
    for old, name in CURRENT_NAMES.items():
        if old in values and not current.get(name):
            current[name] = values[old] if values[old] or name not in current else current[name]
    return current
