"""The swe graph: an agent that fixes and extends software."""

from openmanus_graph.graphs.loop import AgentBuilder, served

build_swe_graph = AgentBuilder(
    "swe",
    "Build the software agent: a shell and an editor; find, reproduce, fix, test.",
    "swe_system",
    "swe_ending",
)
graph = served(build_swe_graph(), "plans")
