"""What may stand in a configuration file.

OpenManus's `config/config.toml` has the same sections (reference: section 1d), so one schema
reads both.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

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
from openmanus_graph.schemas import validation_problems
from openmanus_graph.state.context import Policy, PolicyRule, SandboxMode

S = TypeVar("S", bound=BaseModel)


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


def section_of(kind: type[S], name: str, given: Mapping[str, Any] | None) -> S:
    """Read what a caller gives for a section. ConfigError names each value that is wrong."""
    try:
        return kind.model_validate(dict(given or {}))
    except ValidationError as error:
        problems = "; ".join(f"{name}.{problem}" for problem in validation_problems(error))
        raise ConfigError(f"The run's settings are wrong: {problems}.") from error
