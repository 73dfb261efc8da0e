"""The swe graph: an agent that mends and extends software."""

from openmanus_graph.graphs.loop import agent_builder
from openmanus_graph.prompts import swe_system_prompt
from openmanus_graph.tools import swe_tools

build_swe_graph = agent_builder(
    "swe",
    "Build the software agent: a shell and an editor; find, reproduce, fix, test.",
    swe_tools,
    swe_system_prompt,
)
graph = build_swe_graph()
