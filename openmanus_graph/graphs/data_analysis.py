"""The data analysis graph: an agent that turns data into charts and a report."""

from openmanus_graph.graphs.loop import agent_builder
from openmanus_graph.prompts import data_analysis_system_prompt
from openmanus_graph.tools import data_analysis_tools

build_data_analysis_graph = agent_builder(
    "data_analysis",
    "Build the data analyst: Python, charts by a declarative grammar, reports.",
    data_analysis_tools,
    data_analysis_system_prompt,
)
graph = build_data_analysis_graph()
