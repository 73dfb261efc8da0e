"""The agents as aegra takes them: by the path of a file; aegra.json names them.

Agents of your own are registered, or installed by entry points, and added here and there.
"""

from openmanus_graph.interfaces.server.aegra import shared_graph

manus = shared_graph("manus")
browser = shared_graph("browser")
swe = shared_graph("swe")
data_analysis = shared_graph("data_analysis")
research = shared_graph("research")
desktop = shared_graph("desktop")
mcp = shared_graph("mcp")
planner = shared_graph("planner")
planning = shared_graph("planning")
