"""What the notebooks use: runs shown live, graphs drawn offline, models that need no key."""

from openmanus_graph.interfaces.notebook.show import recorded_model, show_graph, show_run

__all__ = ["recorded_model", "show_graph", "show_run"]
