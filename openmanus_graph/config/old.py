"""What becomes of an OpenManus configuration here, key by key."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from openmanus_graph.config.files import OLD_CONFIG, Layer, is_foreign, read_layer
from openmanus_graph.config.trust import is_trusted, risky_settings

OLD_FILES = (OLD_CONFIG, "config/mcp.json")
"""Where OpenManus keeps its configuration, seen from its own folder."""

RENAMED = {
    "llm.model": 'used; in openmanus.toml write model = "PROVIDER:NAME"',
    "llm.api_type": "used; here it is the PROVIDER of model (azure, bedrock, else openai)",
    "llm.api_key": "used for this file's base_url only; better in the environment (OPENAI_API_KEY)",
    "llm.max_tokens": "used; in openmanus.toml it stands in [model_options]",
    "llm.temperature": "used; in openmanus.toml it stands in [model_options]",
    "llm.vision": "used where the main model cannot see; in openmanus.toml also vision_model",
    "llm.max_input_tokens": "used as max_total_tokens: the tokens of one run, not of the process",
    "sandbox.image": 'used with [sandbox] mode = "docker" only',
    "sandbox.memory_limit": "used; here it is memory_mb, a number",
    "sandbox.timeout": "used; here it is timeout_s",
    "sandbox.network_enabled": "used; here it is network",
}
"""Keys that have another name, place or meaning in `openmanus.toml`."""

LEFT_OUT = {
    "sandbox.use_sandbox": "Python and shell always run in a sandbox; [sandbox] mode chooses which",
    "sandbox.work_dir": "the workspace is the folder; --workspace or workspace names another",
    "sandbox.cpu_limit": "there is no such limit; memory_mb, processes, disk_mb and timeout_s hold",
    "daytona": "there is no remote sandbox; remove the section and its key. Python and shell run "
    'in a sandbox of this machine, or in a container with [sandbox] mode = "docker"',
    "mcp.server_reference": "`openmanus mcp-server` is the server; --server starts any other",
    "runflow": "`openmanus plan` always has the data_analysis agent",
}
"""Keys and sections that do nothing, and what there is instead."""


@dataclass(frozen=True)
class OldFile:
    """What becomes of one file. Keys are `section.key`; values are never in it."""

    path: str
    used: tuple[str, ...]
    """Keys that mean here what they meant there."""
    renamed: Mapping[str, str]
    """Keys that count, and how they are written here."""
    left_out: Mapping[str, str]
    """Keys that do not count, and what to do instead."""
    untrusted: tuple[str, ...]
    """Keys that count only after `openmanus trust`."""


def old_files(folder: Path) -> Iterator[OldFile]:
    """Read OpenManus's files of a folder, those that exist. ConfigError as `read_layer`."""
    for name in OLD_FILES:
        path = folder / name
        if path.is_file() and not is_foreign(path):
            yield _examined(name, read_layer(path), _keys(path), folder)


def _examined(name: str, layer: Layer, keys: list[str], folder: Path) -> OldFile:
    left_out = {key: LEFT_OUT[key] for key in keys if key in LEFT_OUT}
    for key in layer.unknown:
        if key.strip("[]") not in LEFT_OUT:
            left_out[key] = _advice(key)
    plain = (key for key in keys if key not in RENAMED and key not in left_out)
    untrusted = () if is_trusted(folder, layer) else tuple(risky_settings(layer))
    return OldFile(
        path=name,
        used=tuple(plain),
        renamed={key: RENAMED[key] for key in keys if key in RENAMED},
        left_out=left_out,
        untrusted=untrusted,
    )


def _advice(key: str) -> str:
    if key.startswith("llm.") and key.count(".") == 1:
        return "not known here. If it is a model of its own, choose it by --model, or vision_model"
    return "not known here; remove it"


def _keys(path: Path) -> list[str]:
    """List a file's keys as `section.key`, sections that do nothing as one."""
    text = path.read_text(encoding="utf-8").removeprefix("\ufeff")
    raw: dict[str, Any] = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    found: list[str] = []
    for section, value in raw.items():
        if isinstance(value, dict) and section not in LEFT_OUT:
            found += [f"{section}.{key}" for key in cast("dict[str, Any]", value)]
        else:
            found.append(section)
    return found
