"""The MCP graph: an agent that has the tools of MCP servers, and no others."""

from collections.abc import Iterable, Mapping

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from openmanus_graph.agent import ToolLike, define_agent
from openmanus_graph.graphs.loop import AgentGraph, compile_loop
from openmanus_graph.prompts import mcp_system_prompt
from openmanus_graph.tools import mcp_tools


def build_mcp_graph(
    *,
    tools: Iterable[ToolLike] | None = None,
    extra_tools: Iterable[ToolLike] = (),
    prompts: Mapping[str, str] | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
    name: str = "mcp",
) -> AgentGraph:
    """Build the agent of MCP servers: those configured, and each `MCPServer` in `extra_tools`.

    Takes what `build_manus_graph` takes, and raises what it raises. A run ends when no server is
    left.
    """
    chosen = mcp_tools() if tools is None else tools
    agent = define_agent(
        name,
        [*chosen, *extra_tools],
        prompts,
        mcp_system_prompt,
        takes_configured=True,
        needs_servers=True,
    )
    return compile_loop(agent, checkpointer=checkpointer, store=store)


graph = build_mcp_graph()
