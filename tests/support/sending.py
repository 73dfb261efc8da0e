"""An agent whose one tool sends a number outside, and what it has sent."""

from typing import Any

from openmanus_graph import build_manus_graph, manus_tool

sent: list[int] = []
"""What the tool has sent; a test empties it."""


@manus_tool(effect="external")
def send(number: int) -> str:
    """Send a number."""
    sent.append(number)
    return f"sent {number}"


def build_sending_graph(**arguments: Any) -> Any:
    return build_manus_graph(tools=[send], **arguments)
