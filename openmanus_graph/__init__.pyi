# The list of public names: type checkers read it, and so does `__init__.py` at run time.

from .backends.persistence.steering import tell as tell
from .errors import ConfigError as ConfigError
from .errors import ToolError as ToolError
from .graphs.browser import build_browser_graph as build_browser_graph
from .graphs.catalog import register_agent as register_agent
from .graphs.data_analysis import build_data_analysis_graph as build_data_analysis_graph
from .graphs.desktop import build_desktop_graph as build_desktop_graph
from .graphs.manus import build_manus_graph as build_manus_graph
from .graphs.mcp import build_mcp_graph as build_mcp_graph
from .graphs.planner import build_planner_graph as build_planner_graph
from .graphs.planning import build_planning_graph as build_planning_graph
from .graphs.research import build_research_graph as build_research_graph
from .graphs.swe import build_swe_graph as build_swe_graph
from .interfaces.service.stream_events import stream_events as stream_events
from .runtime.process import close as close
from .runtime.process import invoke as invoke
from .runtime.session_registry import open_session as open_session
from .state.context import Context as Context
from .state.context import MCPServer as MCPServer
from .state.tool_traits import Observation as Observation
from .tool_calls.declaration import manus_tool as manus_tool
