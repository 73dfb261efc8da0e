"""Configuration files: what may stand in them, and clear errors for what may not.

OpenManus's `config/config.toml` has the same sections (reference: section 1d), so one schema
reads both.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.context import Policy, PolicyRule, SandboxMode

S = TypeVar("S", bound=BaseModel)
OLD_CONFIG = "config/config.toml"
_LLM_TABLE = re.compile(r"^[ \t]*(?:\[\s*llm\b|llm\s*[.=])", re.MULTILINE)


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)


class LlmSection(_Section):
    """`[llm]`, `[llm.vision]`: OpenManus's keys; `model` is a plain name there."""

    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    api_type: str = ""
    api_version: str | None = None
    max_tokens: int | None = None
    max_input_tokens: int | None = None
    temperature: float | None = None
    context_window: int | None = None
    sees_images: bool | None = None


class SandboxSection(_Section):
    """`[sandbox]`: ours, and OpenManus's `use_sandbox`, `memory_limit`, `network_enabled` ..."""

    mode: SandboxMode | None = None
    network: bool | None = Field(default=None, alias="network_enabled")
    image: str | None = None
    memory_mb: int | None = Field(default=None, gt=0)
    processes: int | None = Field(default=None, gt=0)
    disk_mb: int | None = Field(default=None, gt=0)
    timeout_s: float | None = Field(default=None, gt=0, alias="timeout")
    memory_limit: str | None = None
    use_sandbox: bool | None = None
    cpu_limit: float | None = None
    work_dir: str | None = None


class SearchSection(_Section):
    """`[search]`: OpenManus's keys, then ours; the names of engines are checked later."""

    engine: str | None = None
    fallback_engines: tuple[str, ...] | None = None
    retry_delay: float | None = Field(default=None, ge=0)
    max_retries: int | None = Field(default=None, ge=0)
    lang: str | None = None
    country: str | None = None
    timeout_s: float | None = Field(default=None, gt=0)
    total_timeout_s: float | None = Field(default=None, gt=0, le=100)
    searxng_url: str | None = None
    urls: dict[Literal["searxng", "tavily", "brave", "google", "bing", "baidu"], str] | None = None
    google_cse_id: str | None = None
    tavily_api_key: SecretStr | None = None
    brave_api_key: SecretStr | None = None
    google_api_key: SecretStr | None = None
    bing_api_key: SecretStr | None = None
    baidu_api_key: SecretStr | None = None


class WebSection(_Section):
    """`[web]`: which domains web tools and browser may reach."""

    allowed_domains: tuple[str, ...] | None = None
    denied_domains: tuple[str, ...] | None = None


class ProxySection(_Section):
    """`[browser.proxy]`."""

    server: str = ""
    username: str = ""
    password: SecretStr = SecretStr("")


class BrowserSection(_Section):
    """`[browser]`: OpenManus's keys, then ours."""

    headless: bool | None = None
    disable_security: bool | None = None
    extra_chromium_args: tuple[str, ...] | None = None
    chrome_instance_path: str | None = None
    wss_url: str | None = None
    cdp_url: str | None = None
    max_content_length: int | None = Field(default=None, gt=0)
    proxy: ProxySection | None = None
    profile: str | None = None
    observation_tokens: int | None = Field(default=None, ge=200)
    max_download_mb: int | None = Field(default=None, gt=0)
    secrets: tuple[SecretStr, ...] | dict[str, SecretStr] | None = None


class PolicySection(_Section):
    """`[policy]`; `policy = "ask"` is short for a `mode` alone."""

    mode: Policy | None = None
    rules: tuple[PolicyRule, ...] = ()


def _as_table(value: Any) -> Any:
    return {"mode": value} if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    """Take numbers and truth values for text, as other readers of `mcp.json` do."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_Secret = Annotated[SecretStr, BeforeValidator(_as_text)]
_TRANSPORTS = {"streamable-http": "http", "streamable_http": "http", "streamableHttp": "http"}


class McpServerSection(_Section):
    """`[mcp.servers.NAME]`, or an entry of `mcpServers` in `mcp.json`."""

    type: Annotated[
        Literal["stdio", "http", "sse"] | None,
        BeforeValidator(lambda value: _TRANSPORTS.get(value, value) if value else None),
    ] = Field(default=None, validation_alias=AliasChoices("type", "transport"))
    command: str | None = None
    args: list[Annotated[str, BeforeValidator(_as_text)]] = Field(default_factory=list)
    env: dict[str, _Secret] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, _Secret] = Field(default_factory=dict)
    enabled: bool = True
    disabled: bool = False
    allow: list[str] | None = None
    deny: list[str] = Field(default_factory=list)
    start_timeout_s: float | None = Field(default=None, gt=0)
    timeout_s: float | None = Field(
        default=None, gt=0, validation_alias=AliasChoices("timeout_s", "timeout")
    )
    approval: bool | None = None
    effects: dict[str, Literal["pure", "workspace", "external"]] = Field(default_factory=dict)
    sampling: bool = True


class McpSection(_Section):
    """`[mcp]`; `server_reference` is OpenManus's, for a server of its own."""

    servers: dict[str, McpServerSection] = Field(default_factory=dict)
    server_reference: str | None = None


class McpFile(_Section):
    """`mcp.json`, in the form that most programs share, or with `servers`."""

    mcp_servers: dict[str, McpServerSection] = Field(default_factory=dict, alias="mcpServers")
    servers: dict[str, McpServerSection] = Field(default_factory=dict)


class ConfigFile(_Section):
    """A whole configuration file."""

    model: str | None = None
    vision_model: str | None = None
    base_url: str | None = None
    model_options: dict[str, Any] | None = None
    max_steps: int | None = Field(default=None, gt=0)
    max_parallel_steps: int | None = Field(default=None, gt=0)
    step_timeout_s: float | None = Field(default=None, gt=0)
    review_plan: bool | None = None
    max_cost_usd: float | None = Field(default=None, gt=0)
    max_total_tokens: int | None = Field(default=None, gt=0)
    timeout_s: float | None = Field(default=None, gt=0)
    workspace: str | None = None
    policy: Annotated[PolicySection, BeforeValidator(_as_table)] = PolicySection()
    allow_hosts: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    prompts: dict[Literal["system", "next_step"], str] | None = None
    prices: dict[str, dict[Literal["input", "cached", "output"], float]] | None = None
    llm: dict[str, Any] = Field(default_factory=dict)
    sandbox: SandboxSection = SandboxSection()
    browser: BrowserSection = BrowserSection()
    search: SearchSection = SearchSection()
    web: WebSection = WebSection()
    mcp: McpSection = McpSection()
    daytona: dict[str, Any] | None = None
    runflow: dict[str, Any] | None = None


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
        problems = "; ".join(
            f"{prefix}{'.'.join(str(part) for part in item['loc']) or 'the file'}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        )
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


def section_of(kind: type[S], name: str, given: Mapping[str, Any] | None) -> S:
    """Read what a caller gives for a section. ConfigError names each value that is wrong."""
    try:
        return kind.model_validate(dict(given or {}))
    except ValidationError as error:
        problems = "; ".join(
            f"{name}.{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        )
        raise ConfigError(f"The run's settings are wrong: {problems}.") from error
