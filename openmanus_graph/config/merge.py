"""Merges the layers of settings: of a value that several of them set, the first one's counts."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from openmanus_graph.config.declared import declared, sections, setting_of
from openmanus_graph.config.files import Layer
from openmanus_graph.state.settings import Settings

_NOT_MERGED = ("mcp_servers",)
"""Settings that do not just come from the first layer that sets them: see `config.mcp`."""


def merge_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the fields of `Settings` that the layers set, a section as a dict of its fields."""
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged = _overlaid(merged, _nested(layer))
    return {name: _thawed(merged[name]) for name in _merged_fields() if name in merged}


@cache
def _merged_fields() -> Sequence[str]:
    """Return the fields of `Settings` that are merged here: all sections, and single settings."""
    chosen = list(sections())
    for each in dataclasses.fields(Settings):
        setting = setting_of(each.type)
        if setting is not None and setting.join is None and each.name not in _NOT_MERGED:
            chosen.append(each.name)
    return chosen


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested dicts as one: where both hold a value that is no dict, the second one's."""
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            both[name] = _overlaid(below[name], above[name])
    return both


def _nested(layer: Layer) -> dict[str, Any]:
    """Return the values of one layer, nested as the fields of `Settings`."""
    nested: dict[str, Any] = {}
    for one in declared().values():
        if one.name not in layer.values or one.setting.join:
            continue
        table = nested.setdefault(one.table, {}) if one.table else nested
        value = layer.values[one.name]
        if one.part:
            table.setdefault(one.field, {})[one.part] = value
        elif one.setting.merged or not isinstance(value, dict):
            table[one.field] = value
        else:  # replaces those of the layers after it as a whole
            table[one.field] = MappingProxyType(cast("dict[str, Any]", value))
    return nested


def _thawed(value: Any) -> Any:
    """Return a value with dicts in place of what `_nested` made of them."""
    if isinstance(value, dict | MappingProxyType):
        return {key: _thawed(each) for key, each in cast("dict[str, Any]", value).items()}
    return value
