"""OpenManus as LangGraph graphs: agents that get a task done with real tools.

Importing this package does no I/O and pulls in no heavy library; names are loaded when used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from openmanus_graph.imports import large_import

if TYPE_CHECKING:
    from openmanus_graph.agents import register_agent
    from openmanus_graph.errors import ConfigError, ToolError
    from openmanus_graph.graphs.browser import build_browser_graph
    from openmanus_graph.graphs.data_analysis import build_data_analysis_graph
    from openmanus_graph.graphs.manus import build_manus_graph
    from openmanus_graph.graphs.planner import build_planner_graph
    from openmanus_graph.graphs.planning import build_planning_graph
    from openmanus_graph.graphs.swe import build_swe_graph
    from openmanus_graph.inbox import tell
    from openmanus_graph.registry import open_session
    from openmanus_graph.state.context import Context
    from openmanus_graph.tools.declaration import Observation, manus_tool

__all__ = [
    "ConfigError",
    "Context",
    "Observation",
    "ToolError",
    "build_browser_graph",
    "build_data_analysis_graph",
    "build_manus_graph",
    "build_planner_graph",
    "build_planning_graph",
    "build_swe_graph",
    "manus_tool",
    "open_session",
    "register_agent",
    "tell",
]

_HOMES = {
    "ConfigError": "openmanus_graph.errors",
    "Context": "openmanus_graph.state.context",
    "Observation": "openmanus_graph.tools.declaration",
    "ToolError": "openmanus_graph.errors",
    "build_browser_graph": "openmanus_graph.graphs.browser",
    "build_data_analysis_graph": "openmanus_graph.graphs.data_analysis",
    "build_planner_graph": "openmanus_graph.graphs.planner",
    "build_planning_graph": "openmanus_graph.graphs.planning",
    "build_swe_graph": "openmanus_graph.graphs.swe",
    "register_agent": "openmanus_graph.agents",
    "build_manus_graph": "openmanus_graph.graphs.manus",
    "manus_tool": "openmanus_graph.tools.declaration",
    "open_session": "openmanus_graph.registry",
    "tell": "openmanus_graph.inbox",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with large_import():
        return getattr(import_module(_HOMES[name]), name)
