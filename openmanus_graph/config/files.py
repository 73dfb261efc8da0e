"""Configuration files: what may stand in them, and clear errors for what may not.

OpenManus's `config/config.toml` has the same sections (reference: section 1d), so one schema
reads both.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.context import Policy, PolicyRule, SandboxMode


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
    mcp: dict[str, Any] | None = None
    daytona: dict[str, Any] | None = None
    runflow: dict[str, Any] | None = None


@dataclass(frozen=True)
class Layer:
    """One file, read and checked."""

    path: Path
    config: ConfigFile
    llm: LlmSection
    vision: LlmSection | None
    warnings: tuple[str, ...]


def read_layer(path: Path) -> Layer:
    """Read a TOML file. ConfigError names the file and the line, or the key."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8."
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
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
    unknown += [f"[{name}]" for name in ("daytona",) if getattr(config, name)]
    warnings = tuple(f"{path}: {key} is not known here and was left out." for key in unknown)
    return Layer(path, config, llm, seeing, warnings)


def _check(schema: type[Any], raw: dict[str, Any], path: Path, prefix: str) -> Any:
    try:
        return schema.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(
            f"{prefix}{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        )
        raise ConfigError(f"{path}: {problems}.") from error


def _unknown(section: BaseModel, prefix: str) -> Iterator[str]:
    for key in section.model_extra or {}:
        yield f"{prefix}{key}"
    for key, value in section:
        if isinstance(value, BaseModel):
            yield from _unknown(value, f"{prefix}{key}.")
