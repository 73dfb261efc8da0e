"""The mcp graph: an agent that has the tools of MCP servers, and no others."""

from openmanus_graph.graphs.loop import AgentBuilder, served

build_mcp_graph = AgentBuilder(
    "mcp",
    "Build the agent of MCP servers: those configured, and each `MCPServer` in `extra_tools`. "
    "A run ends when no server is left.",
    "mcp_system",
    "ending",
    takes_configured=True,
    needs_servers=True,
)
graph = served(build_mcp_graph(), "plans")
