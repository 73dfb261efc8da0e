"""The server: LangGraph's own, with our routes, its whole API behind a token, and durable threads.

`openmanus serve` and `langgraph dev` start it; it needs the extra `studio`.
"""

from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
"""The page."""


def server_config() -> dict[str, Any]:
    """Return the parts of a langgraph.json for all agents, registered ones included.

    `openmanus serve` uses it in any folder. The repository's langgraph.json is the same for
    `langgraph dev`.
    """
    from openmanus_graph.graphs.catalog import agent_names, graph_address, is_ours

    others = "openmanus_graph.graphs.registered"
    return {
        "graphs": {
            name: graph_address(name) if is_ours(name) else f"{others}:{name}"
            for name in agent_names()
        },
        "http": {"app": f"{__name__}.app:app", "disable_mcp": True, "disable_a2a": True},
        "auth": {"path": f"{__name__}.guard:auth", "disable_studio_auth": True},
        "checkpointer": {"path": f"{__name__}.store.open_server_saver"},
        "store": {"path": f"{__name__}.store.open_server_store"},
        "disable_persistence": True,
    }
