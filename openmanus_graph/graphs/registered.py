"""The agents and flows that other packages bring, each under its name, for a `langgraph.json`.

`"graphs": {"mine": "openmanus_graph.graphs.registered:mine"}`
"""

from openmanus_graph.agents import brought_agents

globals().update(brought_agents())
