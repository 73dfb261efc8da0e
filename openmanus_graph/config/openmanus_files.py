"""Reports how the keys of an OpenManus configuration are used here."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from openmanus_graph.config.declared import LEFT_OUT, moved_keys
from openmanus_graph.config.files import OLD_CONFIG, Layer, read_layer
from openmanus_graph.config.read_files import read_text
from openmanus_graph.config.trust import is_trusted, risky_settings

OLD_FILES = (OLD_CONFIG, "config/mcp.json")
"""OpenManus's configuration files, relative to its folder."""


@dataclass(frozen=True)
class OldFile:
    """How the keys of one file are used. Keys are `section.key`; it contains no values."""

    path: str
    used: tuple[str, ...]
    """Keys with the same meaning here."""
    renamed: Mapping[str, str]
    """Keys that are used, with their names here."""
    left_out: Mapping[str, str]
    """Keys that are ignored, and what to do instead."""
    untrusted: tuple[str, ...]
    """Keys that are used only after `openmanus trust`."""


def old_files(folder: Path) -> Iterator[OldFile]:
    """Read OpenManus's files of a folder, those that exist. ConfigError as `read_layer`."""
    for name in OLD_FILES:
        path = folder / name
        if (layer := read_layer(path, folder)) is not None:
            yield _report(name, layer, _keys(path, folder), folder)


def _report(name: str, layer: Layer, keys: list[str], folder: Path) -> OldFile:
    left_out = {key: LEFT_OUT[key] for key in keys if key in LEFT_OUT}
    for key in layer.unknown:
        if key.strip("[]") not in LEFT_OUT:
            left_out[key] = _advice(key)
    moved = moved_keys()
    unchanged = (key for key in keys if key not in moved and key not in left_out)
    untrusted = () if is_trusted(folder, layer) else tuple(risky_settings(layer))
    return OldFile(
        path=name,
        used=tuple(unchanged),
        renamed={key: moved[key] for key in keys if key in moved},
        left_out=left_out,
        untrusted=untrusted,
    )


def _advice(key: str) -> str:
    if key.startswith("llm.") and key.count(".") == 1:
        return "not known here. If it is a model of its own, choose it by --model, or vision_model"
    return "not known here; remove it"


def _keys(path: Path, folder: Path) -> list[str]:
    """List a file's keys as `section.key`; ignored sections count as one key."""
    text = (read_text(path, folder) or "").removeprefix("\ufeff")
    raw: dict[str, Any] = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    found: list[str] = []
    for section, value in raw.items():
        if isinstance(value, dict) and section not in LEFT_OUT:
            found += [f"{section}.{key}" for key in cast("dict[str, Any]", value)]
        else:
            found.append(section)
    return found
