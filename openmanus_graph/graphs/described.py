"""The graphs of agents that files describe: the loop of all agents, with the file's role."""

from typing import Any

from openmanus_graph.config.claude_files import ClaudeFile
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.loop import AgentBuilder, AgentGraph
from openmanus_graph.tools import closing_tools, default_tools, optional_tools, planner_tools


def build_described_graph(described: ClaudeFile, **arguments: Any) -> AgentGraph:
    """Build the graph of an agent that a file describes. ConfigError: it names an unknown tool."""
    tools = default_tools()
    if described.tools is not None:
        known = {tool.name: tool for tool in (*planner_tools(), *optional_tools())}
        if unknown := [name for name in described.tools if name not in known]:
            raise ConfigError(
                f"{described.path} names the tools {', '.join(unknown)}, which there are not. "
                f"Available: {', '.join(known)}."
            )
        closing = closing_tools()
        named = [known[name] for name in described.tools]
        tools = [*(one for one in named if one not in closing), *closing]
    builder = AgentBuilder(
        described.name, described.about, "manus_system", "ending",
        takes_configured=described.tools is None, text=described.text,
    )  # fmt: skip
    arguments.setdefault("tools", tools)
    return builder(**arguments).with_config(metadata={"openmanus_model": described.model})
