"""`terminate`: ends the run."""

from typing import Literal

from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool


@manus_tool(effect="pure", resource="ending")
def terminate(status: Literal["success", "failure"]) -> Observation:
    """End the run; the text of the same reply is the answer."""
    return Observation(f"The run ends with status {status}.", ends_run=status)
