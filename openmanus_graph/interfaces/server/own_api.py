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
    is_alone: bool
    """Whether one process does all runs, those on one thread in order. Where several do, a second
    run on a thread is refused, and what works on it is seen by its lease."""


_servers = [OwnServer(get_client, is_alone=True)]
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
