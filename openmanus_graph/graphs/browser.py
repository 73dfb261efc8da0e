"""The browser graph: an agent that works on the web."""

from openmanus_graph.graphs.loop import agent_builder
from openmanus_graph.prompts import browser_system_prompt
from openmanus_graph.tools import browser_tools

build_browser_graph = agent_builder(
    "browser",
    "Build the web agent: browser, search and page reading, without Python or a shell.",
    browser_tools,
    browser_system_prompt,
)
graph = build_browser_graph()
