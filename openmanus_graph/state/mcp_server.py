"""What must be known of an MCP server to use it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Transport = Literal["stdio", "http", "sse"]


@dataclass(frozen=True)
class MCPServer:
    """An MCP server: a command that speaks over its pipes, or an address.

    Pass it among a builder's `extra_tools`, or in `Context.mcp_servers`.
    """

    name: str
    """Stands in the names of its tools: `mcp_<name>_<tool>`."""
    command: str | None = None
    """The program of a stdio server."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Beside an allow-listed environment; nothing else of ours is passed on."""
    cwd: str | None = None
    url: str | None = None
    """The address of a server that runs already."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transport: Transport | None = None
    """None: stdio for a command; for an address streamable HTTP, or SSE where that is refused."""
    enabled: bool = True
    allow: tuple[str, ...] | None = None
    """Its tools to offer, by their own names; `*` stands for anything. None: all."""
    deny: tuple[str, ...] = ()
    """Its tools never to offer."""
    start_timeout_s: float = 30
    """Seconds in which it must have told its tools."""
    timeout_s: float = 120
    """Seconds of one call."""
    approval: bool | None = None
    """Whether policy `ask` pauses before its calls. None: before those with external effects."""
    effects: Mapping[str, Literal["pure", "workspace", "external"]] = field(
        default_factory=dict[str, Literal["pure", "workspace", "external"]]
    )
    """By tool (`*` stands for anything), where the server's own annotations are not right."""
    sampling: bool = True
    """Whether it may ask the run's model, on the run's budget."""
