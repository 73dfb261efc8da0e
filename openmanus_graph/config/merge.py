"""Merges the layers of settings, by pydantic-settings.

`config.resolve` loads it when settings are read: many commands ask for a folder or a name only.
"""

import dataclasses
from collections.abc import Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from pydantic import create_model
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from openmanus_graph.config.declared import declared, sections, setting_of
from openmanus_graph.config.files import Layer
from openmanus_graph.state.settings import Settings

_NOT_MERGED = ("mcp_servers",)
"""Settings that do not just come from the first layer that sets them: see `config.mcp`."""


def merge_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the fields of `Settings` that the layers set, a section as a dict of its fields."""
    kind = _configuration()
    sources = tuple(_LayerSource(kind, layer) for layer in layers)
    merged = kind(_build_sources=(sources, {}))
    return {name: _thawed(getattr(merged, name)) for name in merged.model_fields_set}


class _LayerSource(PydanticBaseSettingsSource):
    """The values of one layer, nested as the fields of `Settings`."""

    def __init__(self, settings_cls: type[BaseSettings], layer: Layer) -> None:
        super().__init__(settings_cls)
        self._values = _nested(layer)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return a field's value, its key, and that it is no JSON text."""
        return self._values[field_name], field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the fields that the layer sets."""
        return {
            name: self.get_field_value(field, name)[0]
            for name, field in self.settings_cls.model_fields.items()
            if name in self._values
        }


@cache
def _configuration() -> type[BaseSettings]:
    """Create the pydantic-settings model with the declared fields of `Settings`.

    The fields have no types, because each value was validated when its layer was read. Validators
    for whole sections would take longer to build than everything else here.
    """
    chosen: dict[str, Any] = {}
    for each in dataclasses.fields(Settings):
        setting = setting_of(each.type)
        mergeable = setting is not None and setting.join is None and each.name not in _NOT_MERGED
        if mergeable or each.name in sections():
            chosen[each.name] = (Any, None)
    return create_model("Configuration", __base__=BaseSettings, **chosen)


def _nested(layer: Layer) -> dict[str, Any]:
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
        else:  # pydantic-settings merges dicts, but here the first layer replaces the others
            table[one.field] = MappingProxyType(cast("dict[str, Any]", value))
    return nested


def _thawed(value: Any) -> Any:
    """Return a value with dicts in place of what `_nested` made of them."""
    if isinstance(value, dict | MappingProxyType):
        return {key: _thawed(each) for key, each in cast("dict[str, Any]", value).items()}
    return value
