"""The tools, one family per file, and those that each agent has by default.

Nodes and graphs may import it; `tool_calls` runs the calls.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from openmanus_graph.config.entry_points import installed, load

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from openmanus_graph.state.tool_traits import Traits

_FAMILIES = {
    "browser_use": "browser_use",
    "closing": "ask_human terminate create_chat_completion",
    "computer_use": "computer_use",
    "data_visualization": "visualization_preparation data_visualization",
    "delegate": "delegate",
    "execution": "python_execute bash reach_host",
    "files": "read_file str_replace_editor",
    "library": "search_library",
    "memory": "memory",
    "planning": "planning",
    "read_untrusted": "read_untrusted",
    "web": "web_search crawl4ai fetch_page",
}
"""The tools of each file. A file is loaded when one of its tools is needed."""
_FILE_OF = {tool: file for file, tools in _FAMILIES.items() for tool in tools.split()}


def _tools(names: str) -> "list[BaseTool]":
    return [getattr(import_module(f"{__name__}.{_FILE_OF[name]}"), name) for name in names.split()]


def default_tools() -> "list[BaseTool]":
    """Return manus's tools, those of installed packages included."""
    own = _tools("python_execute bash str_replace_editor read_file")
    return [*own, *web_tools(), *closing_tools(), *installed_tools()]


def optional_tools() -> "list[BaseTool]":
    """Return the tools that any agent of ours gets by `tools = ["+NAME"]`.

    `create_chat_completion` is offered by itself where the caller gave a response format, and
    `search_library` where a library is named. `reach_host` is called for programs.
    """
    return _tools("read_untrusted delegate memory search_library create_chat_completion reach_host")


def tool_names() -> set[str]:
    """Return the names of the tools that our agents have, or may get."""
    every = (planner_tools, swe_tools, data_analysis_tools, desktop_tools, optional_tools)
    return {tool.name for tools in every for tool in tools()}


def browser_tools() -> "list[BaseTool]":
    return [*web_tools(), *closing_tools()]


def desktop_tools() -> "list[BaseTool]":
    return [*_tools("computer_use bash str_replace_editor read_file"), *closing_tools()]


def planner_tools() -> "list[BaseTool]":
    return [*_tools("planning"), *default_tools()]


def look_tools() -> "list[BaseTool]":
    """Return the planner's tools that read files and change nothing."""
    from openmanus_graph.tool_calls.declaration import traits_of

    traits = ((tool, traits_of(tool)) for tool in default_tools())
    return [tool for tool, known in traits if known.reads_files and known.effect == "read_only"]


def research_tools() -> "list[BaseTool]":
    reading = "web_search fetch_page crawl4ai search_library read_file str_replace_editor delegate"
    return [*_tools(reading), *closing_tools()]


def mcp_tools() -> "list[BaseTool]":
    """Return the MCP agent's only tool in addition to those of its servers."""
    return _tools("terminate")


def swe_tools() -> "list[BaseTool]":
    return [*_tools("bash str_replace_editor"), *closing_tools()]


def data_analysis_tools() -> "list[BaseTool]":
    charts = "visualization_preparation data_visualization"
    return [*_tools(f"python_execute {charts} read_file str_replace_editor"), *closing_tools()]


def web_tools() -> "list[BaseTool]":
    return _tools("browser_use web_search crawl4ai fetch_page")


@cache
def web_traits() -> "dict[str, Traits]":
    """Return the traits of the tools whose links one run may hand to another."""
    from openmanus_graph.tool_calls.declaration import traits_of

    return {tool.name: traits_of(tool) for tool in web_tools()}


def closing_tools() -> "list[BaseTool]":
    """Return the tools by which every agent asks the person and ends the run."""
    return _tools("ask_human terminate")


def installed_tools() -> "list[BaseTool]":
    """Return the tools that other packages bring. ConfigError names one that is broken."""
    found: list[BaseTool] = []
    for point in installed("tools"):
        loaded = load(point, "tool")
        found += loaded if isinstance(loaded, list | tuple) else [loaded]
    return found
