"""The configuration of LangGraph's server: langgraph.json as data, registered agents included.

`openmanus serve` uses it in any folder; the repository's langgraph.json holds the same for
`langgraph dev`.
"""

from typing import Any

from openmanus_graph.graphs.catalog import agent_names, graph_address, is_ours

APP = "openmanus_graph.interfaces.server.app:app"
AUTH = "openmanus_graph.interfaces.server.guard:auth"
CHECKPOINTER = "openmanus_graph.interfaces.server.checkpoints.open_server_saver"
STORE = "openmanus_graph.interfaces.server.checkpoints.open_server_store"
OTHERS = "openmanus_graph.graphs.registered"


def server_config() -> dict[str, Any]:
    """Return the parts of a langgraph.json."""
    return {
        "graphs": {
            name: graph_address(name) if is_ours(name) else f"{OTHERS}:{name}"
            for name in agent_names()
        },
        "http": {"app": APP, "disable_mcp": True, "disable_a2a": True},
        "auth": {"path": AUTH, "disable_studio_auth": True},
        "checkpointer": {"path": CHECKPOINTER},
        "store": {"path": STORE},
        "disable_persistence": True,
    }
