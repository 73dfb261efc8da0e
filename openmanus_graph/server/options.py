"""A thread's options, as the command line keeps them, and a run's context, as the server has it."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from openmanus_graph.cli.options import RunOptions
from openmanus_graph.cli.runner import without_password
from openmanus_graph.state.context import Context

_OPTION_OF = {
    "max_total_tokens": "max_tokens",
    "timeout_s": "timeout",
    "allow_hosts": "allow_host",
}
"""Where a field of the context has another name on the command line."""
_FIELD_OF = {option: name for name, option in _OPTION_OF.items()}
_CONTEXT = {field.name for field in fields(Context)}
_KEPT = {field.name for field in fields(RunOptions)} - {"secret"}


def options_of(context: Context | None, workspace: Path) -> dict[str, Any]:
    """Return what a thread keeps of a run's context: no keys, no passwords, no live objects."""
    kept: dict[str, Any] = {}
    for field in fields(Context):
        value, option = getattr(context, field.name, None), _OPTION_OF.get(field.name, field.name)
        if value is not None and option in _KEPT:
            kept[option] = [*value] if option == "allow_host" else value
    if not isinstance(kept.get("model"), str):
        kept.pop("model", None)
    return {**without_password(kept), "workspace": str(workspace)}


def context_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context that a thread's options stand for, as the server takes it."""
    named = {_FIELD_OF.get(option, option): value for option, value in options.items()}
    return {name: value for name, value in named.items() if name in _CONTEXT and value is not None}
