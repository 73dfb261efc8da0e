"""The data analysis graph: an agent that turns data into charts and a report."""

from openmanus_graph.graphs.loop import AgentBuilder, served

build_data_analysis_graph = AgentBuilder(
    "data_analysis",
    "Build the data analyst: Python, charts by a declarative grammar, reports.",
    "data_analysis_system",
    "data_analysis_ending",
)
graph = served(build_data_analysis_graph(), "plans")
