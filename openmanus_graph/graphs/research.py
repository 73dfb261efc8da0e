"""The research graph: an agent that reads sources and reports what they say."""

from openmanus_graph.graphs.loop import AgentBuilder, served

build_research_graph = AgentBuilder(
    "research",
    "Build the research agent: it reads the web and libraries, and reports with numbered sources.",
    "research_system",
    "research_ending",
)
graph = served(build_research_graph(), "plans")
