"""The manus graph: a general agent with every tool."""

from openmanus_graph.graphs.loop import agent_builder
from openmanus_graph.prompts import manus_system_prompt
from openmanus_graph.tools import default_tools

build_manus_graph = agent_builder(
    "manus",
    "Build the general agent.",
    default_tools,
    manus_system_prompt,
    takes_configured=True,
)
graph = build_manus_graph()
