"""The manus graph: a general agent with every tool."""

from openmanus_graph.graphs.loop import AgentBuilder, served

build_manus_graph = AgentBuilder(
    "manus",
    "Build the general agent.",
    "manus_system",
    "ending",
    takes_configured=True,
)
graph = served(build_manus_graph(), "plans")
