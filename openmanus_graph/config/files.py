"""Configuration files, read and checked: clear errors for what may not stand in them."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from openmanus_graph.config.sections import ConfigFile, LlmSection, McpFile, McpSection
from openmanus_graph.errors import ConfigError
from openmanus_graph.schemas import validation_problems

OLD_CONFIG = "config/config.toml"
_LLM_TABLE = re.compile(r"^[ \t]*(?:\[\s*llm\b|llm\s*[.=])", re.MULTILINE)


@dataclass(frozen=True)
class Layer:
    """One file, read and checked."""

    path: Path
    config: ConfigFile
    llm: LlmSection
    vision: LlmSection | None
    unknown: tuple[str, ...]
    """Keys that mean nothing here."""


def is_foreign(path: Path) -> bool:
    """Say whether a `config/config.toml` is another program's: OpenManus's has an [llm] table."""
    if not path.match(OLD_CONFIG):
        return False
    try:
        return not _LLM_TABLE.search(path.read_text("utf-8", "replace"))
    except OSError:
        return False  # reading it will say why


def read_layer(path: Path) -> Layer:
    """Read a TOML file, or an `mcp.json`. ConfigError names the file and the line, or the key."""
    if path.suffix == ".json":
        return _read_mcp_file(path)
    try:
        raw = tomllib.loads(_read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    config = _check(ConfigFile, raw, path, "")
    plain = {key: value for key, value in config.llm.items() if not isinstance(value, dict)}
    named = [key for key in config.llm if key not in plain and key != "vision"]
    if "vision" in plain:
        raise ConfigError(f"{path}: llm.vision: Input should be a table, [llm.vision].")
    llm = _check(LlmSection, plain, path, "llm.")
    vision: Any = config.llm.get("vision")
    seeing = _check(LlmSection, {**plain, **vision}, path, "llm.vision.") if vision else None
    unknown = [*_unknown(config, ""), *_unknown(llm, "llm."), *(f"llm.{key}" for key in named)]
    unknown += [f"llm.vision.{key}" for key in vision or () if key not in LlmSection.model_fields]
    unknown += [f"[{name}]" for name in ("daytona",) if getattr(config, name)]
    return Layer(path, config, llm, seeing, tuple(unknown))


def _read_mcp_file(path: Path) -> Layer:
    try:
        raw = json.loads(_read_text(path).removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    file: McpFile = _check(McpFile, raw, path, "")
    config = ConfigFile(mcp=McpSection(servers={**file.servers, **file.mcp_servers}))
    return Layer(path, config, LlmSection(), None, tuple(_unknown(file, "")))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8."
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def _check(schema: type[Any], raw: dict[str, Any], path: Path, prefix: str) -> Any:
    try:
        return schema.model_validate(raw)
    except ValidationError as error:
        found = validation_problems(error, "the file")
        problems = "; ".join(f"{prefix}{problem}" for problem in found)
        raise ConfigError(f"{path}: {problems}.") from error


def _unknown(section: BaseModel, prefix: str) -> Iterator[str]:
    fields = type(section).model_fields
    for key in section.model_extra or {}:
        yield f"{prefix}{key}"
    for key, value in section:
        name = fields[key].alias or key if key in fields else key
        parts = cast("dict[str, Any]", value) if isinstance(value, dict) else {"": value}
        for part, inner in parts.items():
            if isinstance(inner, BaseModel):
                yield from _unknown(
                    inner, f"{prefix}{name}.{part}." if part else f"{prefix}{name}."
                )
