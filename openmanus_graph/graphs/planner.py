"""The planner graph: one agent that keeps a plan and works it off by itself."""

from openmanus_graph.graphs.loop import AgentBuilder, served

build_planner_graph = AgentBuilder(
    "planner",
    "Build the agent that plans with the `planning` tool; each call is linked to its step.",
    "planner_system",
    "ending",
    takes_configured=True,
)
graph = served(build_planner_graph(), "plans")
