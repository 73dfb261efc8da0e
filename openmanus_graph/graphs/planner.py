"""The planner graph: one agent that keeps a plan and works it off by itself."""

from openmanus_graph.graphs.loop import agent_builder
from openmanus_graph.prompts import planner_system_prompt
from openmanus_graph.tools import planner_tools

build_planner_graph = agent_builder(
    "planner",
    "Build the agent that plans with the `planning` tool; each call is linked to its step.",
    planner_tools,
    planner_system_prompt,
    takes_configured=True,
)
graph = build_planner_graph()
