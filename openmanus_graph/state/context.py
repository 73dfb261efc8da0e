"""What one run is given: its model, limits, workspace, permissions and MCP servers."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, with_config
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypedDict

SandboxMode = Literal["auto", "bwrap", "nono", "docker", "ssh", "none"]
NetworkAccess = Literal["off", "ask", "any"]
Policy = Literal["ask", "auto", "never"]
RuleDecision = Literal["allow", "ask", "deny"]
MediaKind = Literal["audio", "video"]
MEDIA_KINDS: tuple[MediaKind, ...] = ("audio", "video")
ToolCalling = Literal["auto", "native", "text", "constrained"]
ModelSize = Literal["auto", "small", "standard"]
Effort = Literal["low", "medium", "high"]
AnswerCheck = Literal["off", "mark", "ask", "fail"]
CodeMode = Literal["auto", "on", "off"]
ModelRole = Literal["compaction", "check", "extract", "plan"]
"""What models are asked for in addition to the agent's own thinking."""


def _model_instance(given: Any) -> Any:
    """Return a chat model. ValueError for anything else."""
    from langchain_core.language_models import BaseChatModel  # slow to load, and seldom needed

    if isinstance(given, BaseChatModel):
        return given
    raise ValueError("Input should be an instance of BaseChatModel")


if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    ModelInstance = BaseChatModel
else:
    ModelInstance = SkipJsonSchema[Annotated[Any, PlainValidator(_model_instance)]]
PydanticModel = SkipJsonSchema[Annotated[type[BaseModel], "not shown in a form"]]


@with_config(ConfigDict(extra="forbid"))
class PolicyRule(TypedDict):
    """What is to happen with some calls of a tool."""

    tool: str
    """Its name, or a pattern such as `github_*`."""
    args: NotRequired[Mapping[str, str | bool | int | float]]
    """Patterns by argument, `*` and `?` standing for any text; each must match."""
    decision: RuleDecision


Transport = Literal["stdio", "http", "sse"]
SERVER_TOOL_PREFIX = "mcp_"
"""The names of MCP servers' tools begin with it."""
Effect = Literal["read_only", "workspace", "external"]
"""`read_only` may run twice; `workspace` changes files or processes of the sandbox; `external`
reaches the outside world, where nothing can be undone."""
EffectName = Effect | Literal["pure"]
"""What users may write; `pure` is an older name of `read_only`."""


def as_effect(name: EffectName) -> Effect:
    return "read_only" if name == "pure" else name


def _as_text(value: Any) -> Any:
    """Return numbers and booleans as text, as other readers of `mcp.json` do."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_Text = Annotated[str, BeforeValidator(_as_text)]
_Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class OAuthClient:
    """Who we are to the authorization server of an MCP server over HTTP."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """Whether a person logs in (`openmanus mcp login`), or the client by itself."""
    client_id: str | None = None
    """None: the client registers itself."""
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    """PEM. With it a client of `client_credentials` signs instead of sending a secret."""
    issuer: str | None = None
    """The authorization server that knows this client; it is shown to no other."""
    scope: str | None = None
    """Scopes to ask for in addition to those that the server names, separated by spaces."""
    redirect_port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    """The port of `http://127.0.0.1:PORT/callback`. None: a free one."""


_OTHER_NAMES = {
    "serverUrl": "url",
    "httpUrl": "url",
    "environment": "env",
    "includeTools": "allow",
    "enabledTools": "allow",
    "tools": "allow",
    "excludeTools": "deny",
    "disabledTools": "deny",
}
"""Keys of an `mcp.json` in other programs (docs/mcp.md lists the programs), and our fields."""


@dataclass(frozen=True)
class MCPServer:
    """An MCP server: a command that speaks over its pipes, or an address.

    Pass it in a builder's `extra_tools`, or in `Context.mcp_servers`.
    """

    other_keys: ClassVar[tuple[str, ...]] = ("type", "timeout", "disabled", *_OTHER_NAMES)
    """Keys of a file that are written differently here, see `read_server`."""

    name: str
    """Part of the names of its tools: `mcp_<name>_<tool>`. In a file, the name of its table."""
    command: str | None = None
    """Program to start. It communicates over standard input and output."""
    args: tuple[_Text, ...] = ()
    """Arguments of the program."""
    env: Mapping[str, _Text] = field(default_factory=dict[str, str], repr=False)
    """Environment variables of the program, in addition to a few harmless ones."""
    cwd: str | None = None
    """Folder in which the program starts."""
    url: str | None = None
    """Address of a server that is already running."""
    headers: Mapping[str, _Text] = field(default_factory=dict[str, str], repr=False)
    """HTTP headers that are sent to `url`."""
    oauth: OAuthClient = OAuthClient()
    """Table that describes the OAuth client for a [login](mcp.md#logins), if the client does not
    register itself."""
    transport: Transport | None = None
    """Transport: `stdio`, `http` or `sse`. In files, this key is also called `type`. Default:
    `stdio` for a command. For an address, streamable HTTP, or SSE if the server refuses that."""
    enabled: bool = True
    """Whether agents use this server. Other programs write `disabled`, which is the opposite."""
    allow: tuple[str, ...] | None = None
    """Tools of the server that agents get, by name or pattern (`*` matches anything). Default:
    all."""
    deny: tuple[str, ...] = ()
    """Tools of the server that agents never get, by name or pattern."""
    start_timeout_s: _Positive = 30
    """Time limit for starting the server and listing its tools, in seconds. Default 30."""
    timeout_s: _Positive = 120
    """Time limit for one call, in seconds. In files, this key is also called `timeout`. Default
    120."""
    approval: bool | None = None
    """Whether the policy `ask` pauses before calls to this server. Default: only before calls with
    external effects."""
    effects: Mapping[str, Annotated[Effect, BeforeValidator(as_effect)]] = field(
        default_factory=dict[str, Effect]
    )
    """Maps a tool name or pattern to `read_only`, `workspace` or `external`. Default: taken from
    the tool's annotations."""
    sends_to: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Maps a tool name or pattern to the arguments that decide where something goes or whom it
    affects. Default: decided by the names of the arguments."""
    trusted: Mapping[str, bool | Sequence[str]] = field(
        default_factory=dict[str, bool | Sequence[str]]
    )
    """Maps a tool name or pattern to `true` or the JSON fields of results whose values are trusted
    as destinations."""
    private: Mapping[str, bool | Sequence[str]] = field(
        default_factory=dict[str, bool | Sequence[str]]
    )
    """Maps a tool name or pattern to `true` or the JSON fields of results that may be sent out only
    with your approval."""
    sampling: bool = True
    """Whether the server may send requests to the run's model. They use the run's budget."""


_TRANSPORTS = {"local": "stdio", "streamablehttp": "http", "httpstream": "http", "remote": None}
_MOST_SECONDS = 3600
"""A longer time limit is in milliseconds, as some programs write it."""


def read_server(given: Any) -> Any:
    """Return a server's table in a file (`[mcp.servers.NAME]`, or of an `mcp.json`) as our fields.

    ValueError: `disabled` is not a truth value, or a quote in the command is left open.
    """
    if not isinstance(given, dict):
        return given
    table = {k: v for k, v in cast("dict[str, Any]", given).items() if v is not None}
    for other in _OTHER_NAMES.keys() & table.keys():
        table.setdefault(_OTHER_NAMES[other], table.pop(other))
    transport = str(table.pop("type", table.pop("transport", None)) or "").lower()
    timeout = table.pop("timeout", None)
    disabled = table.pop("disabled", False)
    if not isinstance(disabled, bool):
        raise ValueError("disabled should be true or false")
    if disabled:
        table["enabled"] = False
    if timeout is not None:
        is_ms = isinstance(timeout, int) and timeout > _MOST_SECONDS
        table.setdefault("timeout_s", timeout / 1000 if is_ms else timeout)
    table |= _words_of(table.get("command"), table.get("args") or ())
    plain = re.sub(r"[-_ ]", "", transport)
    return {**table, "name": "", "transport": _TRANSPORTS.get(plain, transport or None)}


def _words_of(command: Any, args: Any) -> dict[str, Any]:
    """Return a command and its arguments, if it was written as a list or as a line."""
    words: list[Any] = []
    if isinstance(command, list):
        words = cast("list[Any]", command)
    elif isinstance(command, str) and not args and re.match(r"[\w.-]+\s", command):
        words = list(shlex.split(command))  # a path with spaces has slashes before them
    return {"command": words[0], "args": [*words[1:], *args]} if words else {}


FileServer = Annotated[MCPServer, BeforeValidator(read_server)]
"""A server as a file describes it; its name is the key of its table."""


@dataclass(frozen=True)
class Context:
    """Settings of one run; LangGraph's `context_schema`.

    A field that is not set gets its value from the environment, the configuration files and the
    defaults, in that order.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)
    """The fields' texts are in the schema, and so in Studio's form."""

    # fields: made from the declarations in `state.settings` by docs/make.py
    model: str | ModelInstance | None = None
    """The main model: `PROVIDER:NAME`, such as `openai:gpt-5-mini`. In Python, you can also pass a
    LangChain chat model."""
    vision_model: str | ModelInstance | None = None
    """Model for requests with pictures, if `model` does not accept pictures."""
    fallback: tuple[str | ModelInstance, ...] | None = None
    """Models or profile names to try if a model cannot answer, in this order. That is the case if
    the server is down or overloaded, the quota is used up, or the server does not know the
    model."""
    roles: Mapping[ModelRole, str | ModelInstance] | None = None
    """Models, or names of profiles, for work other than the agent's steps, by role."""
    tool_calling: ToolCalling | None = None
    """How the main model calls tools. `native`: through the provider's protocol. `text`: as text,
    for models without tool calls. `constrained`: the server forces each step to match a JSON
    schema. `auto`: `native` until a server refuses it, and `constrained` for small models. Default
    `auto`."""
    profile: ModelSize | None = None
    """How the main model is used. `small`: a short prompt, few tools, one step at a time and strict
    answer checks. `standard`: the normal prompt. `auto`: `small` below 8 billion parameters, if the
    server or the name shows the size. Default `auto`."""
    base_url: str | None = None
    """Address of the model's server. Default: the provider's address."""
    model_options: Mapping[str, Any] | None = None
    """Options of the model's client, such as `temperature`, `max_tokens`, `timeout` (seconds to
    wait for a server that sends nothing, default 300) and `max_retries` (default 5). API keys are
    not allowed here."""
    max_steps: int | None = None
    """Maximum number of model calls in a run. If you set this, it limits a whole plan. Otherwise
    the default applies to each plan step. Default 100."""
    max_cost_usd: float | None = None
    """Maximum cost of a run, in US dollars. Default 3."""
    max_total_tokens: int | None = None
    """Maximum number of input and output tokens of a run. Default: none."""
    timeout_s: float | None = None
    """Maximum duration of a run in seconds, not counting time spent waiting for people. Default:
    none."""
    max_parallel_steps: int | None = None
    """Maximum number of plan steps that run in parallel. Default 4."""
    step_timeout_s: float | None = None
    """Time limit of one plan step, in seconds. Default 3600."""
    review_plan: bool | None = None
    """Whether you review a plan before it is carried out. Default false."""
    answer_check: AnswerCheck | None = None
    """What happens if the answer contains figures that occur nowhere. `off`: nothing. `mark`: the
    answer is marked. `ask`: the model may correct it once before. `fail`: the run fails if it does
    not. Small models use `fail` by default. Default: `mark`."""
    workspace: str | None = None
    """Folder for the files of the run. Default: `./workspace/THREAD`."""
    sandbox: SandboxMode | None = None
    """How Python and shell are isolated. `auto`: bubblewrap if it is available, else nono, else no
    sandbox with a warning. Default `auto`."""
    network: NetworkAccess | bool | None = None
    """What Python and shell reach. `ask`, or true: you are asked about each host that neither you
    nor the configuration named. `any`: every host, this machine and private networks included.
    Default `off`."""
    allow_hosts: tuple[str, ...] | None = None
    """Hosts on private networks (`HOST[:PORT]`) that web tools may access."""
    web: Mapping[str, Any] | None = None
    """The `[web]` keys of the configuration file: `allowed_domains`, `denied_domains`."""
    policy: Policy | None = None
    """What happens to calls that need approval: calls with external effects, and calls that a rule
    selects. `ask`: you are asked. `auto`: they run. `never`: they are refused. Default `ask`."""
    policy_rules: tuple[PolicyRule, ...] | None = None
    """List of rules with `tool`, `args` and `decision`: see approvals. Rules of a run take
    precedence over rules in files. A call that matches a `deny` rule is always denied."""
    tools: tuple[str, ...] | None = None
    """Which of the agent's tools the model gets. `+NAME` adds an optional tool. Default: all."""
    mcp_servers: tuple[str | MCPServer, ...] | None = None
    """MCP servers to use: names from the configuration, addresses, commands, or `MCPServer`.
    Default: all that are configured."""
    listing: bool | None = None
    """Whether the first message of a run lists the workspace's files and the first rows of tables.
    Default true."""
    code_mode: CodeMode | None = None
    """Whether code in `python_execute` can call the agent's other tools. `auto`: if the agent has
    tools of MCP servers, or tools that its builder was given, and the model is not small. Default
    `auto`."""
    search_tools_above: int | None = None
    """Maximum number of MCP tools that the model gets directly. If MCP servers offer more, the
    model gets `search_tools` instead. Default 30."""
    prompts: Mapping[str, str] | None = None
    """Table of prompts. `system` and `next_step` replace the agent's prompts of the same name."""
    browser: Mapping[str, Any] | None = None
    """The `[browser]` keys of the configuration file."""
    search: Mapping[str, Any] | None = None
    """The `[search]` keys of the configuration file."""
    response_format: dict[str, Any] | PydanticModel | None = None
    """JSON schema or pydantic model of the structured answer."""
    untrusted_prompt: bool | None = None
    """Whether somebody else may have written `prompts` or `response_format`. If so, the rules about
    addresses and values apply from the first step. Servers set this. Default false."""
    config: str | None = None
    """Configuration file instead of `./openmanus.toml`."""
    library: tuple[str, ...] | None = None
    """Names of libraries. If you set this, agents get `search_library` for them. Default: none."""
    effort: Effort | None = None
    """How much the main model reasons before it replies. It has no effect on models that do not
    reason. Default: the provider's."""
    may_send_to: tuple[str, ...] | None = None
    """Destinations, such as mail addresses, that calls with external effects may use without
    asking, if the task names them too."""
    # /fields


@dataclass(frozen=True)
class Skill:
    """A folder with `SKILL.md`: instructions, scripts and references for certain tasks."""

    name: str
    description: str
    """What it does and when to use it, for the model."""
    folder: Path
    digest: str
    """Of the names and contents of all its files."""


@dataclass(frozen=True)
class Hook:
    """A command of the user's that runs at an event of a run (docs/hooks.md)."""

    event: str
    matcher: str
    """Names of tools, or a regular expression; empty for all."""
    command: tuple[str, ...]
    shown: str
    """The command as its file has it."""
    folder: Path
    """The working folder, where it runs."""
    timeout_s: float
    blocks_on_failure: bool
    files: tuple[Path, ...]
    """The files of the folder that the command names. The tools cannot change them."""
    digest: str
    """Of these files when the user trusted them."""
