"""The browser graph: an agent that works on the web."""

from openmanus_graph.graphs.loop import AgentBuilder

build_browser_graph = AgentBuilder(
    "browser",
    "Build the web agent: browser, search and page reading, without Python or a shell.",
    "browser_system",
    "ending",
)
graph = build_browser_graph()
