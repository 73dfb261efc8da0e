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
"""What models are asked for beside the agent's own thinking."""


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

    Every field may be left unset: `resolve_run_settings` then takes the value from the
    environment, the configuration files and the defaults, in that order. Defaults and limits of
    values are declared in `state.settings`, not here: a test holds the two lists together.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)
    """The fields' texts stand in the schema, and so in Studio's form."""

    model: str | ModelInstance | None = None
    """`PROVIDER:NAME`, or a LangChain chat model."""
    vision_model: str | ModelInstance | None = None
    """Answers requests that hold pictures when `model` cannot see."""
    fallback: tuple[str | ModelInstance, ...] | None = None
    """Models, or names of profiles, that are asked in this order where a model is down,
    overloaded, out of quota or unknown."""
    roles: Mapping[ModelRole, str | ModelInstance] | None = None
    """Models, or names of profiles, for what is not the agent's own thinking."""
    tool_calling: ToolCalling | None = None
    """How the model calls tools. Default `auto`: by the provider's protocol, or as text where a
    server refuses that."""
    profile: ModelSize | None = None
    """Whether the model is asked as small ones are. Default `auto`: by its size, where that is
    known."""
    base_url: str | None = None
    """Address of the model's server."""
    model_options: Mapping[str, Any] | None = None
    """Passed to the model's client as it is: `temperature`, `max_tokens` ... Never a key."""
    max_steps: int | None = None
    """Model calls of the agent in one run; set, it bounds a whole plan, its planner and all steps
    together. Default 100, of a plan for each step."""
    max_cost_usd: float | None = None
    """Dollars of one run. Default 3."""
    max_total_tokens: int | None = None
    """Input and output tokens of one run, together. Default: no limit."""
    timeout_s: float | None = None
    """Seconds of one run, waiting for people not counted. Default: no limit."""
    max_parallel_steps: int | None = None
    """Steps of a plan that run at once. Default 4."""
    step_timeout_s: float | None = None
    """Seconds of one step of a plan. Default 3600."""
    review_plan: bool | None = None
    """Whether a person sees a plan before it is carried out. Default no."""
    answer_check: AnswerCheck | None = None
    """What happens to an answer whose figures occur neither in the task nor in any result. `mark`
    (default): after one correction it is marked. `ask`: after three. `fail`: the run fails."""
    workspace: str | None = None
    """Folder of the run's files. Default `./workspace/<thread>`."""
    sandbox: SandboxMode | None = None
    """How Python and shell are confined. Default `auto`: the best that works here."""
    network: bool | None = None
    """Whether the sandbox reaches the network. Default no."""
    allow_hosts: tuple[str, ...] | None = None
    """`HOST[:PORT]`s that web tools may reach although the guard refuses their kind."""
    web: Mapping[str, Any] | None = None
    """The `[web]` keys of the configuration file: `allowed_domains`, `denied_domains`."""
    policy: Policy | None = None
    """What happens to calls that would be asked about: those with external effects, and those that
    a rule says. Default `ask`."""
    policy_rules: tuple[PolicyRule, ...] | None = None
    """Come before the rules of the configuration files; a `deny` of any of them denies."""
    tools: tuple[str, ...] | None = None
    """Names of the tools to offer, out of those the graph was built with. Default all."""
    mcp_servers: tuple[str | MCPServer, ...] | None = None
    """MCP servers: names out of the configuration, addresses, commands, or described in full.
    Default: all that are configured."""
    listing: bool | None = None
    """Whether the first message of a run lists the workspace's files. Default true."""
    search_tools_above: int | None = None
    """How many tools of MCP servers the model is sent at most; above it, it searches for them.
    Default 30."""
    prompts: Mapping[str, str] | None = None
    """Texts that replace the agent's own: `system`, `next_step`."""
    browser: Mapping[str, Any] | None = None
    """The `[browser]` keys of the configuration file."""
    search: Mapping[str, Any] | None = None
    """The `[search]` keys of the configuration file."""
    response_format: dict[str, Any] | PydanticModel | None = None
    """JSON schema or pydantic model of the structured answer."""
    untrusted_prompt: bool | None = None
    """Whether somebody else may have written `prompts` or `response_format`: then the rules about
    addresses and values hold from the first step. Default no; servers set it."""
    config: str | None = None
    """Configuration file to read instead of `./openmanus.toml`."""


@dataclass(frozen=True)
class Skill:
    """A folder with `SKILL.md`: instructions, scripts and references for certain tasks."""

    name: str
    description: str
    """What it does and when to use it, for the model."""
    folder: Path
    digest: str
    """Of the names and contents of all its files."""
