"""The desktop graph: an agent that works with desktop programs."""

from openmanus_graph.graphs.loop import AgentBuilder, served

build_desktop_graph = AgentBuilder(
    "desktop",
    "Build the desktop agent: its own screen, mouse and keyboard, a shell and files.",
    "desktop_system",
    "ending",
    needed_tool="computer_use",
)
graph = served(build_desktop_graph(), "plans")
