"""The server that our routes are part of, as its clients see it.

Any server that speaks the Agent Protocol will do: routes start and stop runs through it only.
"""

from collections.abc import Callable
from dataclasses import dataclass

from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient


@dataclass(frozen=True)
class OwnServer:
    """What routes need to know of the server."""

    connect: Callable[[], LangGraphClient]
    """Returns a client of its API, with the token."""
    queues_runs: bool
    """Whether a run on a thread waits for the one before; else it is refused meanwhile."""


_servers = [OwnServer(get_client, queues_runs=True)]
"""LangGraph's SDK finds LangGraph's own server in the process."""


def own_server() -> OwnServer:
    """Return the server."""
    return _servers[0]


def own_api() -> LangGraphClient:
    """Return a client of the server's own API."""
    return own_server().connect()


def set_own_server(server: OwnServer) -> None:
    """Name the server, where it is not LangGraph's."""
    _servers[:] = [server]
