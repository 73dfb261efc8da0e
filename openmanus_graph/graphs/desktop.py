"""The desktop graph: an agent that works with desktop programs."""

from openmanus_graph.graphs.loop import AgentBuilder

build_desktop_graph = AgentBuilder(
    "desktop",
    "Build the desktop agent: a screen, a mouse and a keyboard of its own, a shell and files.",
    "desktop_system",
    "desktop_ending",
    needed_tool="computer_use",
)
graph = build_desktop_graph()
