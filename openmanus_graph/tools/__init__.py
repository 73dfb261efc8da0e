"""The tools, one family per file, and those that each agent has by default.

Nodes and graphs may import it; `tool_calls` runs the calls.
"""

from functools import cache
from typing import TYPE_CHECKING

from openmanus_graph.config.entry_points import installed, load

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from openmanus_graph.state.tool_traits import Traits


def default_tools() -> "list[BaseTool]":
    """Return manus's tools, those of installed packages included."""
    from openmanus_graph.tools.execution import bash, python_execute
    from openmanus_graph.tools.files import read_file, str_replace_editor

    return [
        python_execute,
        bash,
        str_replace_editor,
        read_file,
        *web_tools(),
        *closing_tools(),
        *installed_tools(),
    ]


def optional_tools() -> "list[BaseTool]":
    """Return the tools that any agent of ours gets by `tools = ["+NAME"]`.

    `create_chat_completion` is offered by itself where the caller gave a response format.
    """
    from openmanus_graph.tools.closing import create_chat_completion
    from openmanus_graph.tools.delegate import delegate
    from openmanus_graph.tools.memory import memory
    from openmanus_graph.tools.read_untrusted import read_untrusted

    return [read_untrusted, delegate, memory, create_chat_completion]


def tool_names() -> set[str]:
    """Return the names of the tools that our agents have, or may get."""
    every = (planner_tools, swe_tools, data_analysis_tools, desktop_tools, optional_tools)
    return {tool.name for tools in every for tool in tools()}


def browser_tools() -> "list[BaseTool]":
    """Return the browser agent's tools."""
    return [*web_tools(), *closing_tools()]


def desktop_tools() -> "list[BaseTool]":
    """Return the desktop agent's tools."""
    from openmanus_graph.tools.computer_use import computer_use
    from openmanus_graph.tools.execution import bash
    from openmanus_graph.tools.files import read_file, str_replace_editor

    return [computer_use, bash, str_replace_editor, read_file, *closing_tools()]


def planner_tools() -> "list[BaseTool]":
    """Return the planner's tools: manus's, and `planning`."""
    from openmanus_graph.tools.planning import planning

    return [planning, *default_tools()]


def look_tools() -> "list[BaseTool]":
    """Return the planner's tools that read files and change nothing."""
    from openmanus_graph.tool_calls.declaration import traits_of

    traits = ((tool, traits_of(tool)) for tool in default_tools())
    return [tool for tool, known in traits if known.reads_files and known.effect == "read_only"]


def mcp_tools() -> "list[BaseTool]":
    """Return the MCP agent's only tool in addition to those of its servers."""
    from openmanus_graph.tools.closing import terminate

    return [terminate]


def swe_tools() -> "list[BaseTool]":
    """Return the software agent's tools."""
    from openmanus_graph.tools.execution import bash
    from openmanus_graph.tools.files import str_replace_editor

    return [bash, str_replace_editor, *closing_tools()]


def data_analysis_tools() -> "list[BaseTool]":
    """Return the data analyst's tools."""
    from openmanus_graph.tools.data_visualization import (
        data_visualization,
        visualization_preparation,
    )
    from openmanus_graph.tools.execution import python_execute
    from openmanus_graph.tools.files import read_file, str_replace_editor

    return [
        python_execute,
        visualization_preparation,
        data_visualization,
        read_file,
        str_replace_editor,
        *closing_tools(),
    ]


def web_tools() -> "list[BaseTool]":
    """Return the tools that reach the web."""
    from openmanus_graph.tools.browser_use import browser_use
    from openmanus_graph.tools.web import crawl4ai, fetch_page, web_search

    return [browser_use, web_search, crawl4ai, fetch_page]


@cache
def web_traits() -> "dict[str, Traits]":
    """Return the traits of the tools whose links one run may hand to another."""
    from openmanus_graph.tool_calls.declaration import traits_of

    return {tool.name: traits_of(tool) for tool in web_tools()}


def closing_tools() -> "list[BaseTool]":
    """Return the tools by which every agent asks the person and ends the run."""
    from openmanus_graph.tools.closing import ask_human, terminate

    return [ask_human, terminate]


def installed_tools() -> "list[BaseTool]":
    """Return the tools that other packages bring. ConfigError names one that is broken."""
    found: list[BaseTool] = []
    for point in installed("tools"):
        loaded = load(point, "tool")
        found += loaded if isinstance(loaded, list | tuple) else [loaded]
    return found
