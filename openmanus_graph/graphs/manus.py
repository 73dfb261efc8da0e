"""The manus graph: a general agent with every tool."""

from openmanus_graph.graphs.loop import AgentBuilder

build_manus_graph = AgentBuilder(
    "manus",
    "Build the general agent.",
    "manus_system",
    "ending",
    takes_configured=True,
)
graph = build_manus_graph()
