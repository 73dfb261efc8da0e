"""The browser graph: an agent that works on the web."""

from openmanus_graph.graphs.loop import AgentBuilder, served

build_browser_graph = AgentBuilder(
    "browser",
    "Build the web agent: browser, search and page reading, without Python or a shell.",
    "browser_system",
    "ending",
)
graph = served(build_browser_graph(), "plans")
