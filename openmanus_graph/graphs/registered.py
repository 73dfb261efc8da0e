"""The agents and flows that other packages bring, each under its name, for a `langgraph.json`.

`"graphs": {"mine": "openmanus_graph.graphs.registered:mine"}`. Their runs are seen as ours are.
"""

from langgraph.pregel import Pregel

from openmanus_graph.graphs.catalog import brought_agents
from openmanus_graph.runtime.session_registry import SessionKeeper

for name, graph in brought_agents().items():
    if isinstance(graph, Pregel):
        globals()[name] = graph.with_config(callbacks=[SessionKeeper()])
