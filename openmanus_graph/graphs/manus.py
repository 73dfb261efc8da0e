"""The manus graph: a general agent with every tool."""

from openmanus_graph.graphs.loop import agent_builder

build_manus_graph = agent_builder(
    "manus",
    "Build the general agent.",
    "manus_system",
    "manus_ending",
    takes_configured=True,
)
graph = build_manus_graph()
