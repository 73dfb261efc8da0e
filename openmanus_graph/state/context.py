"""What one run is given: its model, limits, workspace and permissions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, PlainValidator, with_config
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypedDict

from openmanus_graph.state.mcp_server import MCPServer

SandboxMode = Literal["auto", "bwrap", "nono", "docker", "ssh", "none"]
Policy = Literal["ask", "auto", "never"]
RuleDecision = Literal["allow", "ask", "deny"]
MediaKind = Literal["audio", "video"]
MEDIA_KINDS: tuple[MediaKind, ...] = ("audio", "video")
ToolCalling = Literal["auto", "native", "text", "constrained"]
ModelSize = Literal["auto", "small", "standard"]
AnswerCheck = Literal["off", "mark", "ask", "fail"]
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
    model is asked once, then the answer is marked. `ask`: the model is asked up to three times.
    `fail`: the run fails. Small models use `fail` by default. Default: `mark`."""
    workspace: str | None = None
    """Folder for the files of the run. Default: `./workspace/THREAD`."""
    sandbox: SandboxMode | None = None
    """How Python and shell are isolated. `auto`: bubblewrap if it is available, else nono, else no
    sandbox with a warning. Default `auto`."""
    network: bool | None = None
    """Whether Python and shell have network access. Default false."""
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
