"""Converts between a thread's options (command line) and a run's context (server)."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from openmanus_graph.config.declared import declared
from openmanus_graph.config.resolve import context_field
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.runner import options_to_keep
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

_OPTION_OF = {
    name: one.setting.option.lstrip("-").replace("-", "_")
    for one in declared().values()
    if one.setting.option and (name := context_field(one)) is not None
}
"""The options by the fields of the context, where those are declared."""
_FIELD_OF = {option: name for name, option in _OPTION_OF.items()}
_CONTEXT = {field.name for field in fields(Context)}
_KEPT = {field.name for field in fields(RunOptions)} - {"secret"}


def options_of(context: Context | None, settings: Settings) -> dict[str, Any]:
    """Return the options of a run's context to store: no keys, no passwords, no live objects."""
    kept: dict[str, Any] = {}
    for field in fields(Context):
        value, option = getattr(context, field.name, None), _OPTION_OF.get(field.name, field.name)
        if value is not None and option in _KEPT:
            kept[option] = [*value] if option == "allow_host" else value
    if not isinstance(kept.get("model"), str):
        kept.pop("model", None)
    return options_to_keep(kept, settings)


def context_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a thread's options as the fields of a run's context."""
    named = {_FIELD_OF.get(option, option): value for option, value in options.items()}
    return {name: value for name, value in named.items() if name in _CONTEXT and value is not None}
