"""The agents and flows of third parties, each under its name, for a `langgraph.json`.

`"graphs": {"mine": "openmanus_graph.graphs.registered:mine"}`. Their runs are seen as ours are.
"""

from langgraph.pregel import Pregel

from openmanus_graph.graphs.catalog import third_party_agents
from openmanus_graph.runtime.session_keeper import SessionKeeper

for name, graph in third_party_agents().items():
    if isinstance(graph, Pregel):
        globals()[name] = graph.with_config(callbacks=[SessionKeeper()])
