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
    """`PROVIDER:NAME`, such as `openai:gpt-5-mini`. In Python also a LangChain chat model."""
    vision_model: str | ModelInstance | None = None
    """Answers requests with pictures if `model` cannot see."""
    fallback: tuple[str | ModelInstance, ...] | None = None
    """Models or profile names to try in this order if a model is down, overloaded, out of quota, or
    unknown to its server."""
    roles: Mapping[ModelRole, str | ModelInstance] | None = None
    """Models, or names of profiles, for what is not the agent's own thinking."""
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
    """Address of the model's server. Default: the provider's."""
    model_options: Mapping[str, Any] | None = None
    """Options of the model's client: `temperature`, `max_tokens`, `timeout` (seconds to wait for a
    server that sends nothing, 300), `max_retries` (5) ... Never a key."""
    max_steps: int | None = None
    """Maximum number of model calls in a run. If you set it, it limits a whole plan. Otherwise the
    default applies to each plan step. Default 100."""
    max_cost_usd: float | None = None
    """Maximum cost of a run, in US dollars. Default 3."""
    max_total_tokens: int | None = None
    """Maximum number of input and output tokens of a run. Default: none."""
    timeout_s: float | None = None
    """Maximum duration of a run in seconds, without the time spent waiting for people. Default:
    none."""
    max_parallel_steps: int | None = None
    """Maximum number of plan steps that run in parallel. Default 4."""
    step_timeout_s: float | None = None
    """Time limit of one plan step, in seconds. Default 3600."""
    review_plan: bool | None = None
    """Whether a person sees a plan before it is carried out. Default false."""
    answer_check: AnswerCheck | None = None
    """What happens to an answer with figures that occur nowhere. `off`: nothing. `mark`: the model
    is asked once, then the answer is marked. `ask`: it is asked up to three times. `fail`: the run
    fails; the default for small models. Default: `mark`."""
    workspace: str | None = None
    """Folder of the run's files. Default: `./workspace/THREAD`."""
    sandbox: SandboxMode | None = None
    """How Python and shell are confined. `auto` is bubblewrap, else nono, else none with a warning.
    Default `auto`."""
    network: bool | None = None
    """Whether Python and shell reach the network. Default false."""
    allow_hosts: tuple[str, ...] | None = None
    """Private hosts (`HOST[:PORT]`) that web tools may access."""
    web: Mapping[str, Any] | None = None
    """The `[web]` keys of the configuration file: `allowed_domains`, `denied_domains`."""
    policy: Policy | None = None
    """What happens to calls that need approval: those with external effects, and those that a rule
    selects. Default `ask`."""
    policy_rules: tuple[PolicyRule, ...] | None = None
    """A list of rules with `tool`, `args` and `decision`: see approvals. Rules of a run take
    precedence over rules in files. A matching `deny` always denies."""
    tools: tuple[str, ...] | None = None
    """The agent's tools to offer. `+NAME` adds an optional tool. Default: all."""
    mcp_servers: tuple[str | MCPServer, ...] | None = None
    """MCP servers: names from the configuration, addresses, commands, or described in full.
    Default: all that are configured."""
    listing: bool | None = None
    """Whether a run's first message lists the workspace's files, with the first rows of tables.
    Default true."""
    search_tools_above: int | None = None
    """If MCP servers offer more tools than this, the model gets `search_tools` instead of all of
    them. Default 30."""
    prompts: Mapping[str, str] | None = None
    """A table: `system` and `next_step` replace the agent's own."""
    browser: Mapping[str, Any] | None = None
    """The `[browser]` keys of the configuration file."""
    search: Mapping[str, Any] | None = None
    """The `[search]` keys of the configuration file."""
    response_format: dict[str, Any] | PydanticModel | None = None
    """JSON schema or pydantic model of the structured answer."""
    untrusted_prompt: bool | None = None
    """Whether somebody else may have written `prompts` or `response_format`: then the rules about
    addresses and values hold from the first step. Servers set it. Default false."""
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
