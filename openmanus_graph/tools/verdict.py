"""`verdict`: how the model answers whether a step is done."""

from openmanus_graph.tools.declaration import Observation, manus_tool


@manus_tool(effect="pure")
def verdict(done: bool, reason: str) -> Observation:
    """Say whether the step is done.

    Args:
        done: Whether the evidence shows it.
        reason: What shows it, or what is missing, in one sentence.
    """
    return Observation("" if done else reason, failed=not done)
