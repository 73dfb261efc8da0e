"""`terminate`: ends the run."""

from typing import Literal

from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.declaration import manus_tool


@manus_tool(effect="pure", resource="ending")
def terminate(status: Literal["success", "failure"]) -> Observation:
    """End the run, once the other calls of this reply have succeeded.

    Say the answer in the text of the same reply.

    Args:
        status: success when the task is done, failure when it cannot be done.
    """
    return Observation(f"The run ends with status {status}.", ends_run=status)
