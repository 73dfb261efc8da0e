"""Reads and validates configuration files, with clear errors for invalid content."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from openmanus_graph.config.declared import Reading, declared, read
from openmanus_graph.config.read_files import read_text
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.model_settings import LlmKeys

OLD_CONFIG = "config/config.toml"
_LLM_TABLE = re.compile(r"^[ \t]*(?:\[\s*llm\b|llm\s*[.=])", re.MULTILINE)
"""Which OpenManus's own file has."""


@dataclass(frozen=True)
class Layer:
    """The settings of one source: a file, the environment, or a run's `Context`."""

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By the names of `declared`, checked."""
    path: Path | None = None
    """The file; None for another source."""
    unknown: tuple[str, ...] = ()
    """Unknown keys."""

    @property
    def llm(self) -> LlmKeys | None:
        """The keys of `[llm]`; None if there are none."""
        return self._llm_keys("llm")

    @property
    def vision(self) -> LlmKeys | None:
        """The keys of `[llm.vision]`, with those of `[llm]` as defaults."""
        return self._llm_keys("llm.vision")

    def _llm_keys(self, table: str) -> LlmKeys | None:
        named = {each.name: f"{table}.{each.name}" for each in fields(LlmKeys)}
        given = {key: self.values[name] for key, name in named.items() if name in self.values}
        return LlmKeys(**given) if given else None


def is_foreign(folder: Path) -> bool:
    """Say whether a folder's `config/config.toml` is another program's. ConfigError: unreadable."""
    text = read_text(folder / OLD_CONFIG, folder)
    return text is not None and not _LLM_TABLE.search(text)


def read_layer(path: Path, within: Path | None) -> Layer | None:
    """Read a TOML file, or an `mcp.json`.

    Args:
        path: The file.
        within: As for `read_text`.

    Returns:
        None if there is no such file, or if a `config/config.toml` is another program's.

    Raises:
        ConfigError: Names the file and the line, or the key.
    """
    text = read_text(path, within)
    if text is None or (path.match(OLD_CONFIG) and not _LLM_TABLE.search(text)):
        return None
    reading = _read_mcp_file(path, text) if path.suffix == ".json" else _read_toml(path, text)
    if reading.problems:
        raise ConfigError(f"{path}: {'; '.join(reading.problems)}.")
    return Layer(reading.values, path, tuple(reading.unknown))


def _read_toml(path: Path, text: str) -> Reading:
    try:
        reading = read(tomllib.loads(text))
    except RecursionError:  # its traceback is as deep as the text
        raise ConfigError(
            f"{path} is nested too deeply. Write fewer tables in one another."
        ) from None
    except ConfigError:
        raise
    except ValueError as error:  # also of a number with thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    if any(name.startswith("llm.vision.") for name in reading.values):
        for each in fields(LlmKeys):
            if f"llm.{each.name}" in reading.values:
                plain = reading.values[f"llm.{each.name}"]
                reading.values.setdefault(f"llm.vision.{each.name}", plain)
    return reading


def _read_mcp_file(path: Path, text: str) -> Reading:
    """Read the form that most programs share, `mcpServers`, or `servers`."""
    try:
        raw: Any = json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ConfigError(
            f"{path} is nested too deeply. Write fewer objects in one another."
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: the file: Input should be a valid dictionary.")
    reading, servers = Reading(), dict[str, Any]()
    table = cast("dict[str, Any]", raw)
    for key in ("servers", "mcpServers"):
        if key in table:
            reading.values.clear()
            reading.add(declared()["mcp.servers"], table[key], key)
            servers |= reading.values.get("mcp.servers", {})
    reading.unknown += [key for key in table if key not in ("servers", "mcpServers")]
    reading.values["mcp.servers"] = servers
    return reading
