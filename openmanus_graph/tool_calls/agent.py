"""What makes one agent differ from another: name, tools and prompts."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import packages_distributions
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.config.mcp import check_servers
from openmanus_graph.conversation.replies import ResponseFormat
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.session_keeper import guard_tool_system_exit
from openmanus_graph.state.context import MCPServer

if TYPE_CHECKING:
    from openmanus_graph.runtime.middleware import Middleware

ToolLike = BaseTool | Callable[..., Any] | MCPServer
PROMPTS = ("system", "next_step")


@dataclass(frozen=True, eq=False)
class Agent:
    """The definition that the nodes of one graph share; `with_tools` completes it."""

    name: str
    system_prompt: str
    """Name of the agent's own prompt, see `prompts`."""
    ending: str
    """Name of its part that says how a run ends: a step of a plan has another one."""
    tools: Mapping[str, BaseTool] = field(default_factory=dict[str, BaseTool])
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The texts that the builder's caller replaced."""
    servers: tuple[MCPServer, ...] = ()
    """MCP servers that the builder's caller passed."""
    takes_configured: bool = False
    """Whether it also uses the servers of the configuration."""
    needs_servers: bool = False
    """Whether its run is over when no server is left."""
    needed_tool: str = ""
    """The tool without which it cannot work; empty if there is none."""
    structured_tool: Callable[[ResponseFormat], BaseTool] | None = None
    """Makes the tool that delivers an answer in the caller's format."""
    optional: Callable[[], Sequence[BaseTool]] = tuple[BaseTool, ...]
    """Returns the tools that a run's settings may add."""
    subagents: Callable[[], Mapping[str, Any]] | None = None
    """Returns the agents to which it may delegate, as graphs by name. May block."""
    middleware: tuple["Middleware", ...] = ()
    """LangChain's `AgentMiddleware`s around and between the agent steps, the outermost first."""
    serializer: StrictSerializer = field(default_factory=StrictSerializer)
    """Stores calls' `Command`s in the ledger; it knows the app's own types."""


def with_tools(
    agent: Agent, tools: Iterable[ToolLike], prompts: Mapping[str, str] | None = None
) -> Agent:
    """Return the agent with these tools, those of its middleware, and these prompts.

    Raises:
        ConfigError: Two tools with one name, something that is not a tool, or an unknown prompt.
    """
    found: dict[str, BaseTool] = {}
    given = [*tools, *(tool for one in agent.middleware for tool in getattr(one, "tools", ()))]
    servers = tuple(server for server in given if isinstance(server, MCPServer))
    check_servers(servers)
    own = (tool for tool in given if not isinstance(tool, MCPServer))
    for tool in map(guard_tool_system_exit, map(_as_tool, own)):
        if tool.name in found:
            origins = " and ".join(map(_origin, (found[tool.name], tool)))
            raise ConfigError(
                f"Two tools are named {tool.name!r}, from {origins}. Rename one of them, or "
                "uninstall the package that brings it."
            )
        found[tool.name] = tool
    if unknown := set(prompts or {}) - set(PROMPTS):
        raise ConfigError(f"There is no prompt {sorted(unknown)}. Available: {', '.join(PROMPTS)}.")
    return replace(agent, tools=found, prompts=dict(prompts or {}), servers=servers)


def _as_tool(tool: BaseTool | Callable[..., Any]) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if not callable(tool):
        raise ConfigError(
            f"{tool!r} is not a tool. Pass a LangChain tool, a documented function or an MCPServer."
        )
    is_async = inspect.iscoroutinefunction(tool)
    try:
        return StructuredTool.from_function(
            func=None if is_async else tool, coroutine=tool if is_async else None
        )
    except ValueError as error:
        raise ConfigError(f"{tool!r} cannot be a tool: {error}.") from error


def _origin(tool: BaseTool) -> str:
    """Return the package that a tool comes from, or its module."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    module = str(getattr(inspect.unwrap(function) if function else type(tool), "__module__", ""))
    packages = packages_distributions().get(module.partition(".")[0], [])
    return f"the package {' or '.join(dict.fromkeys(packages))}" if packages else module
