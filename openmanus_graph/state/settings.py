"""The settings of a run, each declared once, and the records that code reads them from.

A field with a `Setting` can be set by users; one without is computed. To add a setting, add a
field with its type, default, `Setting` and text here, and run `uv run python docs/make.py`, which
makes the fields of `Context`, the options of the command and the tables of the documentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os.path import expanduser
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, SecretStr

from openmanus_graph.state import setting_declaration as values
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import (
    AnswerCheck,
    CodeMode,
    FileServer,
    Hook,
    MCPServer,
    ModelInstance,
    ModelRole,
    NetworkAccess,
    Policy,
    PolicyRule,
    PydanticModel,
    SandboxMode,
    Skill,
)
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.search_engines import SearchSettings
from openmanus_graph.state.server_settings import ServerSettings, StorageSettings
from openmanus_graph.state.setting_declaration import ALWAYS, AlternativeKey, Rule, Setting, Trust
from openmanus_graph.state.triggers import Channel, Trigger

MAX_COST_USD = 3.0
Price = dict[Literal["input", "cached", "output"], float]
_Positive = Field(gt=0)
_TRUSTED = Setting(trust=ALWAYS)
_SSH = Setting(trust=ALWAYS, shown="decided by ssh")
_SSH_FILE = Setting(trust=ALWAYS, parse=expanduser, shown="decided by ssh")


@dataclass(frozen=True)
class SandboxSettings:
    """How Python and shell are confined."""

    mode: Annotated[
        SandboxMode,
        Setting(
            context="sandbox",
            option="--sandbox",
            label="Sandbox",
            trust=Trust(lambda mode: mode if mode == "none" else None, words="it is `none`"),
        ),
    ] = "auto"
    """How Python and shell are isolated. `auto`: bubblewrap if it is available, else nono, else no
    sandbox with a warning."""
    network: Annotated[
        NetworkAccess,
        BeforeValidator(values.network_access),
        Setting(
            context="network",
            passed=NetworkAccess | bool,
            option="--network",
            label="Network in the sandbox",
            trust=ALWAYS,
            alternative_keys=(AlternativeKey("network_enabled", moved="used; here it is network"),),
        ),
    ] = "off"
    """What Python and shell reach. `ask`, or true: you are asked about each host that neither you
    nor the configuration named. `any`: every host, this machine and private networks included."""
    image: Annotated[
        str, Setting(trust=ALWAYS, moved='used with [sandbox] mode = "docker" only')
    ] = "python:3.12-slim"
    """Docker image for the mode `docker`. The image must contain `ipykernel`."""
    ssh_host: Annotated[str, Setting(trust=ALWAYS, parse=values.ssh_name)] = ""
    """Address of the remote machine, or its name in `~/.ssh/config`. This key and the other keys
    that begin with `ssh_` apply only to the mode `ssh`."""
    ssh_user: Annotated[
        str, Setting(trust=ALWAYS, parse=values.ssh_name, shown="decided by ssh")
    ] = ""
    """User name on the remote machine."""
    ssh_port: Annotated[int, Field(ge=0, le=65535), _SSH] = 0
    """SSH port of the remote machine."""
    ssh_key: Annotated[str, _SSH_FILE] = ""
    """File that contains the private SSH key."""
    ssh_known_hosts: Annotated[str, _SSH_FILE] = ""
    """File that contains the host key of the remote machine."""
    ssh_python: Annotated[str, _TRUSTED] = "python3"
    """Python interpreter on the remote machine. `python_execute` needs one that has `ipykernel`."""
    ssh_folder: Annotated[str, _TRUSTED] = "~/.openmanus-sandboxes"
    """Folder for sandboxes on the remote machine. Each sandbox has a subfolder until it is
    closed."""
    memory_mb: Annotated[
        int,
        BeforeValidator(values.megabytes),
        _Positive,
        Setting(
            alternative_keys=(
                AlternativeKey("memory_limit", moved="used; here it is memory_mb, a number"),
            )
        ),
    ] = 4096
    """Maximum memory of each process, in MB. If OpenManus can create a control group, also the
    maximum for all processes together."""
    processes: Annotated[int, _Positive, Setting()] = 512
    """Maximum number of processes in the sandbox."""
    disk_mb: Annotated[int, _Positive, Setting()] = 4096
    """Maximum growth of the workspace and the temporary folder, in MB. Also the maximum size of one
    file."""
    timeout_s: Annotated[
        float,
        _Positive,
        Setting(alternative_keys=(AlternativeKey("timeout", moved="used; here it is timeout_s"),)),
    ] = 120
    """Time limit in seconds for a Python or shell call that does not set its own limit."""


@dataclass(frozen=True)
class ProxySettings:
    """The proxy that the browser's traffic goes through."""

    server: str = ""
    username: str = ""
    password: SecretStr = SecretStr("")


@dataclass(frozen=True)
class BrowserSettings:
    """Which browser `browser_use` drives, and how."""

    headless: Annotated[bool, Setting()] = True
    """Whether the browser runs without a window."""
    profile: Annotated[str | None, _TRUSTED] = None
    """Folder of a persistent browser profile that keeps logins. Only one process can use it at a
    time."""
    chrome_instance_path: Annotated[
        str | None, Setting(shown="found automatically", trust=ALWAYS)
    ] = None
    """Path of the browser program to start."""
    cdp_url: Annotated[str | None, _TRUSTED] = None
    """Address of a running Chromium to use instead of starting one. The agent gets its own window
    and uses the existing logins. Only one of `cdp_url`, `wss_url` and `profile` can be set."""
    wss_url: Annotated[str | None, _TRUSTED] = None
    """Address of a Playwright server to use instead of starting a browser."""
    extra_chromium_args: Annotated[tuple[str, ...], _TRUSTED] = ()
    """Additional command-line arguments for the browser program."""
    disable_security: Annotated[bool, _TRUSTED] = False
    """Whether to disable web security: pages may read other pages, and certificates are not
    checked."""
    proxy: Annotated[
        ProxySettings | None,
        Setting(
            shown="from the environment",
            trust=ALWAYS,
            parse=lambda proxy: proxy if proxy.server else None,
        ),
    ] = None
    """Proxy for the browser: a table with `server`, `username` and `password`."""
    max_content_length: Annotated[
        int | None, _Positive, Setting(shown="same as for other output")
    ] = None
    """Maximum number of characters that `extract_content` returns for a page."""
    observation_tokens: Annotated[int, Field(ge=200), Setting()] = 2500
    """Approximate number of tokens in one page observation."""
    max_download_mb: Annotated[int, _Positive, _TRUSTED] = 200
    """Maximum size of one download, in MB."""
    secrets: Annotated[
        tuple[values.SiteSecret, ...],
        Setting(
            written=tuple[SecretStr, ...] | dict[str, SecretStr],
            option="--secret",
            help="NAME=VALUE@DOMAIN, typed by the browser on that site only. Repeatable; other "
            "users see it in the process list, so set OPENMANUS_SECRET_NAME=VALUE@DOMAIN instead.",
            env_prefix="OPENMANUS_SECRET_",
            trust=ALWAYS,
            join=values.site_secrets,
        ),
    ] = ()
    """Secrets that the browser types on one site only: `name = "VALUE@DOMAIN"`, or a list of
    `"NAME=VALUE@DOMAIN"`. Prefer the variable `OPENMANUS_SECRET_NAME`. For a site with HTTP
    authentication, name the secret `http_auth` and set it to `USER:PASSWORD`."""


@dataclass(frozen=True)
class WebSettings:
    """Which domains web tools and browser may reach; `Guard` keeps to it."""

    allowed_domains: Annotated[tuple[str, ...], Setting(trust=ALWAYS, parse=values.domains)] = ()
    """If you set this, web tools and the browser can access only these domains and their
    subdomains."""
    denied_domains: Annotated[tuple[str, ...], Setting(join=values.all_domains)] = ()
    """Domains that are always blocked, with their subdomains, whatever else is set."""


@dataclass(frozen=True)
class Settings:
    """Everything a run needs to know, resolved and validated."""

    main: ModelSettings
    vision: ModelSettings | None
    workspace: Annotated[
        Path,
        Setting(
            written=str | None,
            option="--workspace",
            shown="`./workspace/THREAD`",
            trust=Trust(values.outside_folder, words="it is outside the working folder"),
        ),
    ]
    """Folder for the files of the run."""
    home: Path
    database: DatabaseUrl
    """Of threads, checkpoints, ledger and events: `storage.database_url`, or a file in the home."""
    private: Path
    """The thread's private folder: our own files, outside of the workspace."""
    protected: tuple[Path, ...]
    """Configuration and key files that tools must not reach."""
    sandbox: SandboxSettings
    max_steps: Annotated[int, _Positive, Setting(option="--max-steps", label="Steps")] = 100
    """Maximum number of model calls in a run. If you set this, it limits a whole plan. Otherwise
    the default applies to each plan step."""
    own_workspace: bool = False
    """Whether the workspace is the thread's default one: nobody has named it."""
    max_steps_set: bool = False
    """Whether somebody set it: then it bounds a whole plan, else each of its steps."""
    max_cost_usd: Annotated[
        float,
        _Positive,
        Setting(
            option="--max-cost-usd",
            label="Dollars",
            trust=Trust(
                lambda dollars: dollars if dollars > MAX_COST_USD else None,
                words=f"it is above {MAX_COST_USD:g}",
            ),
        ),
    ] = MAX_COST_USD
    """Maximum cost of a run, in US dollars."""
    max_total_tokens: Annotated[
        int | None, _Positive, Setting(option="--max-tokens", label="Tokens", shown="none")
    ] = None
    """Maximum number of input and output tokens of a run."""
    timeout_s: Annotated[
        float | None, _Positive, Setting(option="--timeout", label="Seconds", shown="none")
    ] = None
    """Maximum duration of a run in seconds, not counting time spent waiting for people."""
    max_parallel_steps: Annotated[int, _Positive, Setting()] = 4
    """Maximum number of plan steps that run in parallel."""
    step_timeout_s: Annotated[float, _Positive, Setting()] = 3600
    """Time limit of one plan step, in seconds."""
    review_plan: Annotated[
        bool, Setting(option="--review-plan", label="Show me the plan before it is carried out")
    ] = False
    """Whether you review a plan before it is carried out."""
    answer_check: Annotated[AnswerCheck | None, Setting(shown="`mark`")] = None
    """What happens if the [answer contains figures that occur
    nowhere](runs.md#answers-are-checked). `off`: nothing. `mark`: the answer is marked. `ask`:
    the model may correct it once before. `fail`: the run fails if it does not. Small models use
    `fail` by default."""
    policy: Annotated[
        Policy,
        Setting(
            option="--policy",
            label="Calls with effects outside",
            help="Calls with external effects: ask, auto (allow) or never. Default ask.",
            alternative_keys=(AlternativeKey("policy.mode"),),
            trust=Trust(lambda mode: mode if mode == "auto" else None, words="it is `auto`"),
        ),
    ] = "ask"
    """What happens to calls that need approval: calls with external effects, and calls that a rule
    selects. `ask`: you are asked. `auto`: they run. `never`: they are refused."""
    rules: Annotated[
        tuple[Rule, ...],
        Setting(
            key="policy.rules",
            context="policy_rules",
            written=tuple[PolicyRule, ...],
            trust=Trust(
                lambda rules: [rule for rule in rules if rule["decision"] == "allow"],
                lambda rules: tuple(rule for rule in rules if rule["decision"] != "allow"),
                words="a rule has the decision `allow`",
            ),
            join=values.policy_rules,
        ),
    ] = ()
    """List of rules with `tool`, `args` and `decision`: see [approvals](approvals.md). Rules of a
    run take precedence over rules in files. A call that matches a `deny` rule is always denied."""
    may_send_to: Annotated[tuple[str, ...], Setting(trust=ALWAYS)] = ()
    """Destinations, such as mail addresses, that calls with external effects may use without
    asking, if the task names them too."""
    allow_hosts: Annotated[
        tuple[str, ...], Setting(option="--allow-host", trust=ALWAYS, parse=values.checked_hosts)
    ] = ()
    """Hosts on private networks (`HOST[:PORT]`) that web tools may access."""
    web: WebSettings = field(default_factory=WebSettings)
    tools: Annotated[tuple[str, ...] | None, Setting(shown="all")] = None
    """Which of the agent's tools the model gets. `+NAME` adds an
    [optional tool](tools.md#optional-tools)."""
    library: Annotated[
        tuple[str, ...], Setting(option="--library", trust=ALWAYS, shown="none")
    ] = ()
    """Names of [libraries](library.md). If you set this, agents get `search_library` for them."""
    mcp_servers: Annotated[
        tuple[MCPServer, ...],
        Setting(
            key="mcp.servers",
            written=dict[str, FileServer],
            context=None,  # says which servers, not what they are
            trust=ALWAYS,
        ),
    ] = ()
    """MCP servers: one table for each, by name."""
    listing: Annotated[bool, Setting()] = True
    """Whether the first message of a run lists the workspace's files and the first rows of
    tables."""
    code_mode: Annotated[CodeMode, Setting()] = "auto"
    """Whether code in `python_execute` can [call the agent's other tools](code-mode.md). `auto`: if
    the agent has tools of MCP servers, or tools that its builder was given, and the model is not
    small."""
    search_tools_above: Annotated[int, Field(ge=0), Setting(key="mcp.search_tools_above")] = 30
    """Maximum number of MCP tools that the model gets directly. If MCP servers offer more, the
    model gets `search_tools` instead."""
    prompts: Annotated[
        Mapping[str, str],
        Setting(written=dict[Literal["system", "next_step"], str], passed=Mapping[str, str]),
    ] = field(default_factory=dict[str, str])
    """Table of prompts. `system` and `next_step` replace the agent's prompts of the same name."""
    browser: BrowserSettings = field(default_factory=BrowserSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    prices: Annotated[
        Mapping[str, Mapping[str, float]],
        Setting(
            written=dict[str, Price], context=None, shown="known for most models", trust=ALWAYS
        ),
    ] = field(default_factory=dict[str, Mapping[str, float]])
    """Prices of models in US dollars per million tokens: tables `[prices."NAME"]` with the keys
    `input`, `cached` and `output`."""
    triggers: Annotated[
        Mapping[str, Trigger],
        Setting(written=dict[str, Trigger], context=None, trust=ALWAYS, merged=True, shown="none"),
    ] = field(default_factory=dict[str, Trigger])
    """What starts runs without a person: one table for each [trigger](triggers.md), by name."""
    channels: Annotated[
        Mapping[str, Channel],
        Setting(written=dict[str, Channel], context=None, trust=ALWAYS, merged=True, shown="none"),
    ] = field(default_factory=dict[str, Channel])
    """Where people talk to the agent, and answers are sent: one table for each
    [channel](channels.md), by name."""
    fallback: tuple[ModelSettings, ...] = ()
    """Asked in this order where another model cannot answer."""
    roles: Mapping[ModelRole, ModelSettings] = field(default_factory=dict[ModelRole, ModelSettings])
    """The models of roles that have one of their own."""
    response_format: dict[str, Any] | type[BaseModel] | None = None
    instructions: str = ""
    """Texts of the `AGENTS.md` of the person, the working folder and its subfolders."""
    untrusted_instructions: bool = False
    """Whether one of them is of a folder whose `AGENTS.md` the user has not trusted, or other text
    of the prompt is somebody else's."""
    skills: tuple[Skill, ...] = ()
    """What the model may read and run for certain tasks."""
    hooks: tuple[Hook, ...] = ()
    """The user's commands at events of the run."""
    packages: Mapping[type[Any], Any] = field(default_factory=dict[type[Any], Any])
    """The settings that installed packages add, by their class."""
    warnings: tuple[str, ...] = ()
    """What was found odd while reading the configuration; each is shown once."""

    @property
    def has_several_models(self) -> bool:
        """Whether one conversation can hold replies of different models."""
        return bool(self.fallback or self.roles or self.vision)


@dataclass(frozen=True)
class RunKeys:
    """What only a run can be given, and no file: fields of `Context` and options."""

    roles: Annotated[Mapping[ModelRole, str | ModelInstance] | None, Setting(key=None)] = None
    """Models, or names of profiles, for work other than the agent's steps, by role."""
    web: Annotated[Mapping[str, Any] | None, Setting(key=None)] = None
    """The `[web]` keys of the configuration file: `allowed_domains`, `denied_domains`."""
    mcp_servers: Annotated[
        tuple[str | MCPServer, ...] | None,
        Setting(
            key=None,
            option="--mcp-server",
            help="MCP server to use instead of all that are configured: NAME, URL or COMMAND. "
            "Repeatable; ${NAME} means an environment variable.",
            shown="all that are configured",
        ),
    ] = None
    """MCP servers to use: names from the configuration, addresses, commands, or `MCPServer`."""
    browser: Annotated[Mapping[str, Any] | None, Setting(key=None)] = None
    """The `[browser]` keys of the configuration file."""
    search: Annotated[Mapping[str, Any] | None, Setting(key=None)] = None
    """The `[search]` keys of the configuration file."""
    response_format: Annotated[dict[str, Any] | PydanticModel | None, Setting(key=None)] = None
    """JSON schema or pydantic model of the structured answer."""
    untrusted_prompt: Annotated[bool, Setting(key=None)] = False
    """Whether somebody else may have written `prompts` or `response_format`. If so, the rules about
    addresses and values apply from the first step. Servers set this."""
    config: Annotated[str | None, Setting(key=None, option="--config")] = None
    """Configuration file instead of `./openmanus.toml`."""
