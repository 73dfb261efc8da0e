"""The settings of a run after everything was merged: no field is left open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from pydantic import BaseModel, SecretStr

from openmanus_graph.state.context import Policy, RuleDecision, SandboxMode

MAX_COST_USD = 3.0


@dataclass(frozen=True)
class ModelSettings:
    """One model and how to reach it."""

    model: str | BaseChatModel
    """`PROVIDER:NAME` or an instance."""
    base_url: str | None = None
    api_key: SecretStr | None = None
    """None: the provider's own environment variable."""
    api_version: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Passed to the client as they are."""
    vision: bool | None = None
    """Whether the model sees pictures. None: known by its name."""
    context_window: int | None = None
    """Tokens of one request. None: known by its name."""


@dataclass(frozen=True)
class SandboxSettings:
    """How Python and shell are confined."""

    mode: SandboxMode = "auto"
    network: bool = False
    image: str = "python:3.12-slim"
    """Of the docker backend."""
    memory_mb: int = 4096
    """Of each process, and of all together where a control group can be made."""
    processes: int = 512
    disk_mb: int = 4096
    """How much the workspace and the temporary folder may grow, and the size of one file."""
    timeout_s: float = 120
    """Time limit of a call that names none."""


@dataclass(frozen=True)
class SearchSettings:
    """Which engines `web_search` asks, and how long it may take."""

    engine: str | None = None
    """The first one asked. None: what is set up, and then those that need no key."""
    fallback_engines: tuple[str, ...] | None = None
    """Those asked after it. None: all others that can be asked."""
    lang: str = "en"
    country: str = "us"
    timeout_s: float = 10
    """Of one engine."""
    total_timeout_s: float = 30
    """Of all of them, retries included."""
    max_retries: int = 1
    """Further rounds when no engine answered and waiting could help."""
    retry_delay: float = 1
    """Seconds before such a round; a few at most, whatever is set."""
    keys: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])
    """By engine."""
    google_cse_id: str | None = None
    """Google's keys search by a search engine id."""
    urls: Mapping[str, str] = field(default_factory=dict[str, str])
    """Addresses by engine, where they are not the usual ones."""


@dataclass(frozen=True)
class ProxySettings:
    """The proxy that the browser's traffic goes through."""

    server: str
    username: str = ""
    password: SecretStr = SecretStr("")


@dataclass(frozen=True)
class SiteSecret:
    """What the model types by its name only, and only on one site."""

    name: str
    value: SecretStr
    domain: str
    """A host, with a port where it matters; its subdomains count as well."""


@dataclass(frozen=True)
class BrowserSettings:
    """Which browser `browser_use` drives, and how."""

    headless: bool = True
    disable_security: bool = False
    """Pages may read each other, and certificates are not checked."""
    extra_chromium_args: tuple[str, ...] = ()
    chrome_instance_path: str | None = None
    """The program. None: the first that is found."""
    wss_url: str | None = None
    """A Playwright server to connect to instead."""
    cdp_url: str | None = None
    """A running Chromium to connect to instead; its logins are used."""
    profile: str | None = None
    """A folder in which logins last; one process at a time."""
    proxy: ProxySettings | None = None
    max_content_length: int | None = None
    """Characters of a page that `extract_content` returns. None: as any other tool."""
    observation_tokens: int = 2500
    """Of one observation, about."""
    max_download_mb: int = 200
    secrets: tuple[SiteSecret, ...] = ()


@dataclass(frozen=True)
class WebSettings:
    """Which domains web tools and browser may reach; `Guard` keeps to it."""

    allowed_domains: tuple[str, ...] = ()
    """If there are any, no others are reached. Subdomains are included."""
    denied_domains: tuple[str, ...] = ()
    """Never reached, subdomains included."""


@dataclass(frozen=True)
class Rule:
    """What is to happen with some calls of a tool; `policy.judge` says how rules combine."""

    tool: str
    """A name or pattern."""
    args: Mapping[str, str]
    """Patterns by argument."""
    decision: RuleDecision
    source: str = "Context"
    """Where it was written."""

    def __str__(self) -> str:
        """Write the rule as it can be found again."""
        patterns = "".join(f" {name}={pattern!r}" for name, pattern in self.args.items())
        return f"{self.decision} {self.tool}{patterns}, {self.source}"


@dataclass(frozen=True)
class Settings:
    """Everything a run needs to know, resolved and validated."""

    main: ModelSettings
    vision: ModelSettings | None
    workspace: Path
    home: Path
    protected: tuple[Path, ...]
    """Configuration and key files that tools must not reach."""
    sandbox: SandboxSettings
    max_steps: int = 20
    max_cost_usd: float = MAX_COST_USD
    max_total_tokens: int | None = None
    timeout_s: float | None = None
    max_parallel_steps: int = 4
    step_timeout_s: float = 3600
    review_plan: bool = False
    policy: Policy = "ask"
    rules: tuple[Rule, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    web: WebSettings = field(default_factory=WebSettings)
    tools: tuple[str, ...] | None = None
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    browser: BrowserSettings = field(default_factory=BrowserSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    prices: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    """Dollars per million tokens by model name: `input`, `cached`, `output`."""
    response_format: dict[str, Any] | type[BaseModel] | None = None
    instructions: str = ""
    """Text of AGENTS.md in the working folder."""
    warnings: tuple[str, ...] = ()
    """What was found odd while reading the configuration; each is shown once."""
