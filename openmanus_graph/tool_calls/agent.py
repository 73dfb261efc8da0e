"""What makes one agent differ from another: name, tools and prompts."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.config.mcp import check_servers
from openmanus_graph.conversation.outcome import ResponseFormat
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.runtime.system_exit import guard_tool_system_exit
from openmanus_graph.state.mcp_server import MCPServer

if TYPE_CHECKING:
    from openmanus_graph.runtime.middleware import Middleware

ToolLike = BaseTool | Callable[..., Any] | MCPServer
PROMPTS = ("system", "next_step")


@dataclass(frozen=True, eq=False)
class Agent:
    """The definition that the nodes of one graph share."""

    name: str
    tools: Mapping[str, BaseTool]
    prompts: Mapping[str, str]
    """The texts that the builder's caller replaced."""
    system_prompt: str
    """Name of its own, see `prompts`."""
    ending: str
    """Name of the text in it that says how a run ends: a step of a plan has another one."""
    servers: tuple[MCPServer, ...] = ()
    """MCP servers that the builder's caller passed."""
    takes_configured: bool = False
    """Whether it uses the servers of the configuration as well."""
    needs_servers: bool = False
    """Whether its run is over when no server is left."""
    needed_tool: str = ""
    """The tool without which it has nothing to do; empty if there is none."""
    structured_tool: Callable[[ResponseFormat], BaseTool] | None = None
    """Makes the tool that delivers an answer in the format a caller wants."""
    optional: Callable[[], Sequence[BaseTool]] = tuple[BaseTool, ...]
    """Returns the tools that a run's settings may add."""
    subagents: Callable[[], Mapping[str, Any]] | None = None
    """Returns the agents to which it may delegate, as graphs by name. May block."""
    middleware: tuple["Middleware", ...] = ()
    """LangChain's `AgentMiddleware`s around and between the agent steps, the outermost first."""
    serializer: StrictSerializer = field(default_factory=StrictSerializer)
    """Of what the ledger keeps of a call's `Command`; it knows the app's own types."""


def define_agent(
    name: str,
    tools: Iterable[ToolLike],
    prompts: Mapping[str, str] | None,
    system_prompt: str,
    ending: str,
    *,
    takes_configured: bool = False,
    needs_servers: bool = False,
    needed_tool: str = "",
    structured_tool: Callable[[ResponseFormat], BaseTool] | None = None,
    optional: Callable[[], Sequence[BaseTool]] = tuple[BaseTool, ...],
    subagents: Callable[[], Mapping[str, Any]] | None = None,
    middleware: Sequence["Middleware"] = (),
    stored_types: Iterable[type[Any]] = (),
) -> Agent:
    """Collect an agent's tools.

    Args:
        name: Of the graph.
        tools: LangChain tools, functions with a docstring, or MCP servers.
        prompts: Texts that replace the agent's own: `system`, `next_step`.
        system_prompt: Name of the agent's own.
        ending: Name of its part that says how a run ends.
        takes_configured: Whether it uses the configured MCP servers.
        needs_servers: Whether it has nothing to do without any.
        needed_tool: The tool without which it has nothing to do.
        structured_tool: Makes the tool that delivers a structured answer.
        optional: Returns the tools that a run's settings may add.
        subagents: Returns the agents to which it may delegate, by name.
        middleware: LangChain's, with further tools.
        stored_types: Types of the app's that its state may hold.

    Raises:
        ConfigError: Two tools with one name, something that is no tool, or an unknown prompt.
    """
    found: dict[str, BaseTool] = {}
    given = [*tools, *(tool for one in middleware for tool in getattr(one, "tools", ()))]
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
    unknown = set(prompts or {}) - set(PROMPTS)
    if unknown:
        raise ConfigError(f"There is no prompt {sorted(unknown)}. There are: {', '.join(PROMPTS)}.")
    return Agent(
        name=name,
        tools=found,
        prompts=dict(prompts or {}),
        system_prompt=system_prompt,
        ending=ending,
        servers=servers,
        takes_configured=takes_configured,
        needs_servers=needs_servers,
        needed_tool=needed_tool,
        structured_tool=structured_tool,
        optional=optional,
        subagents=subagents,
        middleware=tuple(middleware),
        serializer=StrictSerializer(stored_types),
    )


def _as_tool(tool: BaseTool | Callable[..., Any]) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if not callable(tool):
        raise ConfigError(
            f"{tool!r} is no tool. Pass a LangChain tool, a documented function or an MCPServer."
        )
    try:
        if inspect.iscoroutinefunction(tool):
            return StructuredTool.from_function(coroutine=tool)
        return StructuredTool.from_function(func=tool)
    except ValueError as error:
        raise ConfigError(f"{tool!r} cannot be a tool: {error}.") from error


def _origin(tool: BaseTool) -> str:
    """Name the package that a tool comes from; its module where no package has it."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    module = str(getattr(inspect.unwrap(function) if function else type(tool), "__module__", ""))
    packages = packages_distributions().get(module.partition(".")[0], [])
    return f"the package {' or '.join(dict.fromkeys(packages))}" if packages else module
