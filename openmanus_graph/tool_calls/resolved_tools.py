"""What a step offers the model: the agent's own tools, and those of MCP servers as they are now."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openmanus_graph.config.mcp import check_servers
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.mcp_server import MCPServer
from openmanus_graph.state.settings import Settings
from openmanus_graph.tool_calls.agent import Agent
from openmanus_graph.tool_calls.toolset import Toolset, run_tools

if TYPE_CHECKING:
    from openmanus_graph.backends.mcp.server_tools import ServerTools

    ServerToolsResolver = Callable[..., Awaitable[ServerTools]]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class ResolvedTools:
    """The tools of one step."""

    toolset: Toolset
    changes: tuple[str, ...] = ()
    """What the model should hear of the servers."""
    fatal_reason: str = ""
    """Why the run cannot go on without them; empty if it can."""
    acknowledge: Callable[[], None] = _nothing
    """To be called when the model has heard the news."""


async def resolve_tools(
    agent: Agent, session: Session, emit: Emit, *, new_step: bool = False
) -> ResolvedTools:
    """Return the tools that a step offers, or that the step under way has offered.

    Args:
        agent: Whose run it is.
        session: Of the run.
        emit: Hears what is new about servers.
        new_step: Look at the servers again.

    Raises:
        ConfigError: An agent that needs servers has none, or what they need is not installed.
    """
    known: ResolvedTools | None = None if new_step else session.resolved.get(agent)
    if known is None:
        known = session.resolved[agent] = await _look(agent, session, emit, fresh=new_step)
    return known


def servers_of(agent: Agent, settings: Settings) -> tuple[MCPServer, ...]:
    """Return the servers of a run: the graph's own, then the configured ones."""
    configured = settings.mcp_servers if agent.takes_configured else ()
    servers = (*agent.servers, *configured)
    check_servers(servers)
    return tuple(server for server in servers if server.enabled)


def load_client() -> "ServerToolsResolver":
    """Import the client, which takes most of a second. Blocks. ConfigError: it is not installed."""
    try:
        from openmanus_graph.backends.mcp.server_tools import resolve_server_tools
    except ModuleNotFoundError as error:
        raise ConfigError(
            "MCP servers are configured. Install what they need: pip install "
            "'openmanus-graph[mcp]' (in a clone: uv sync --extra mcp)."
        ) from error
    return resolve_server_tools


async def _look(agent: Agent, session: Session, emit: Emit, *, fresh: bool) -> ResolvedTools:
    servers = servers_of(agent, session.settings)
    if not servers:
        if agent.needs_servers:
            raise ConfigError(
                f"The agent {agent.name} works with the tools of MCP servers, and there is none. "
                "Name one by --server NAME, URL or COMMAND, or in mcp.json."
            )
        return ResolvedTools(run_tools(agent, session))
    resolve_server_tools = await asyncio.to_thread(load_client)
    found = await resolve_server_tools(
        servers, session, emit, fresh=fresh, needed=agent.needs_servers
    )
    return ResolvedTools(
        toolset=run_tools(agent, session, found.tools),
        changes=tuple(item.text for item in found.changes),
        fatal_reason=found.fatal_reason if agent.needs_servers else "",
        acknowledge=found.acknowledge,
    )
