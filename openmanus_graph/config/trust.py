"""Folders whose configuration may start commands or loosen safety.

A cloned repository must not be able to switch the sandbox off, or to send the person's key to
its own server. Such settings count only after the person trusted them, once per folder; when
they change, the person is asked again.
"""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from openmanus_graph.config.declared import declared
from openmanus_graph.config.files import Layer
from openmanus_graph.config.home_files import changed_object, config_home, read_object
from openmanus_graph.state.setting_declaration import ALWAYS
from openmanus_graph.state.settings import ProxySettings


def risky_settings(layer: Layer) -> dict[str, Any]:
    """Return a file's settings that start commands, loosen safety or send data elsewhere."""
    risky: dict[str, Any] = {}
    for name, found in _risky_values(layer).items():
        table, _, key = name.partition(".")
        if table == "browser":
            risky.setdefault(table, {})[key] = (
                asdict(found) if isinstance(found, ProxySettings) else found
            )
        elif table == "mcp":
            risky[table] = {
                server: keys.model_dump(exclude_defaults=True) for server, keys in found.items()
            }
        else:
            risky[name] = found
    return risky


def _risky_values(layer: Layer) -> dict[str, Any]:
    """Return what needs trust by the names of `declared`, in their order."""
    needing = {name: one.setting.trust for name, one in declared().items() if one.setting.trust}
    found = {
        name: trust.risky(layer.values[name])
        for name, trust in needing.items()
        if name in layer.values
    }
    return {name: value for name, value in found.items() if value}


def is_trusted(folder: Path, layer: Layer) -> bool:
    """Return whether the person has trusted exactly these settings of this folder."""
    return is_trusted_content(folder, _name(folder, layer), _digest(risky_settings(layer)))


def is_trusted_content(folder: Path, name: str, digest: str) -> bool:
    """Return whether the person has trusted what is in a folder by this name and digest."""
    known = read_object(_store())  # a damaged file trusts no folder
    return bool(known.get(str(folder), {}).get(name) == digest)


def trust(folder: Path, layer: Layer) -> None:
    """Store that the person trusts the risky settings of this folder."""
    trust_content(folder, _name(folder, layer), _digest(risky_settings(layer)))


def trust_content(folder: Path, name: str, digest: str) -> None:
    """Store that the person trusts what is in a folder by this name and digest."""
    with changed_object(_store(), mode=0o644) as known:
        known.setdefault(str(folder), {})[name] = digest


def without_risks(layer: Layer) -> Layer:
    """Return the layer without its risky settings."""
    values = dict(layer.values)
    for name in _risky_values(layer):
        one = declared()[name]
        trust = one.setting.trust or ALWAYS
        values[name] = trust.harmless(values[name])
        values |= {f"{one.table}.{key}".lstrip("."): None for key in trust.also_left_out}
    return replace(layer, values={key: value for key, value in values.items() if value is not None})


def _store() -> Path:
    return config_home() / "trusted.json"


def _name(folder: Path, layer: Layer) -> str:
    """Name a file within its folder: there may be two `mcp.json`."""
    assert layer.path is not None  # only files need trust
    return layer.path.absolute().relative_to(folder).as_posix()


def _digest(settings: dict[str, Any]) -> str:
    plain = json.dumps(settings, sort_keys=True, default=_plain)
    return hashlib.sha256(plain.encode()).hexdigest()


def _plain(value: object) -> str:
    """Write out what JSON cannot: a server's variable that changes needs trust again."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
