"""`terminate`: ends the run."""

from typing import Literal

from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool


@manus_tool(effect="pure", resource="ending")
def terminate(status: Literal["success", "failure"], answer: str = "") -> Observation:
    """End the run with an answer."""
    del answer  # read from the call; where it lacks, the text of the same reply is the answer
    return Observation(f"The run ends with status {status}.", ends_run=status)
