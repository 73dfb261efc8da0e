"""The tools of a session's servers at one agent step, and the changes to report."""

import asyncio
import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from openmanus_graph.backends.mcp.listed_tools import ListedTool, traits_for
from openmanus_graph.backends.mcp.managed_server import ManagedServer, ServerChange, server_loop
from openmanus_graph.backends.mcp.tool import ServerTool
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.mcp_server import SERVER_TOOL_PREFIX, MCPServer

MAX_NAME_CHARS = 64
"""Characters that providers allow in a name."""
_MAX_SERVER_CHARS = 24
_DIGEST_CHARS = 6
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]+")


@dataclass(frozen=True)
class ServerTools:
    """The servers at one agent step."""

    servers: Sequence[ManagedServer]
    tools: tuple[ServerTool, ...]
    changes: tuple[ServerChange, ...]

    @property
    def fatal_reason(self) -> str:
        """Why there is nothing left to work with; empty as long as there is something."""
        if self.tools or any(one.state in ("starting", "down") for one in self.servers):
            return ""
        reasons = [
            f"{one.server.name} {one.why or 'offers no tools'}".rstrip(".") for one in self.servers
        ]
        return f"No MCP server is left to work with: {'; '.join(reasons)}."

    def acknowledge(self) -> None:
        """Remove the changes that the model has seen."""
        for one in self.servers:
            one.changes = [item for item in one.changes if item not in self.changes]


async def resolve_server_tools(
    servers: Sequence[MCPServer],
    session: Session,
    emit: Emit,
    *,
    fresh: bool = True,
    needed: bool = False,
) -> ServerTools:
    """Return the tools of the session's servers, and start servers that do not run yet.

    Args:
        servers: Those to use; all begin at once.
        session: Keeps them.
        emit: Gets the changes as notices.
        fresh: Wait for lists of tools that have changed.
        needed: Wait until one of them has tools, or all are given up.
    """
    handles = await asyncio.to_thread(lambda: [_handle(server, session) for server in servers])
    if fresh or any(one.state == "starting" for one in handles):
        await server_loop.run(lambda: _wait_until_settled(handles, needed=needed))
    changes = tuple(item for one in handles for item in list(one.changes))
    for item in changes:
        session.cached(item, partial(notice, emit, item.text, item.level))
    tools = tuple(tool for one in handles for tool in _tools(one, session))
    return ServerTools(handles, tools, changes)


def _handle(server: MCPServer, session: Session) -> ManagedServer:
    """Return a server's handle; one that was given up is tried again with each run."""
    # By its whole configuration: a server whose key has changed is another one.
    configuration = json.dumps(asdict(server), sort_keys=True, default=str)
    name = f"mcp {server.name} {hashlib.sha256(configuration.encode()).hexdigest()[:8]}"
    run = session.cached("run", object)
    known = session.find(name)
    if isinstance(known, ManagedServer) and known.state == "gone" and known.run is not run:
        session.drop(name)
    siblings = session.cached_across_runs("MCP servers", set[ManagedServer])
    handle = session.handle(name, lambda: ManagedServer(server, siblings))
    handle.run = handle.run or run
    return handle


async def _wait_until_settled(servers: Sequence[ManagedServer], *, needed: bool) -> None:
    await asyncio.gather(*(one.wait_until_settled() for one in servers))
    while needed and not any(one.tools for one in servers):
        trying = [
            asyncio.ensure_future(one.state_changed()) for one in servers if one.state == "down"
        ]
        if not trying:
            return
        await asyncio.wait(trying, return_when=asyncio.FIRST_COMPLETED)
        for one in trying:
            one.cancel()


def _tools(managed: ManagedServer, session: Session) -> list[ServerTool]:
    """Make the tools of a server; each is the same object as long as nothing has changed."""
    names: dict[tuple[str, str], str] = session.cached_across_runs(
        "MCP tools", dict[tuple[str, str], str]
    )
    listed = managed.tools
    side_by_side = all(tool.effect == "pure" for tool in listed)
    found: list[ServerTool] = []
    for tool in listed:
        key = (managed.server.name, tool.name)
        if key not in names:
            names[key] = tool_name(*key, set(names.values()))
        known_as = managed.changed.get(tool.name)
        make = partial(_make_tool, names[key], managed, tool, side_by_side, known_as)
        cache_key = (ServerTool, id(managed), id(tool), side_by_side, known_as)
        found.append(session.cached(cache_key, make))
    return found


def _make_tool(
    name: str, managed: ManagedServer, tool: ListedTool, side_by_side: bool, known_as: str | None
) -> ServerTool:
    return ServerTool(
        name=name,
        description=tool.description,
        parameters=dict(tool.model_schema),
        traits=traits_for(managed.server, tool, side_by_side=side_by_side, known_as=known_as),
        argument_schema=None if tool.argument_schema is None else dict(tool.argument_schema),
        listed_tool=tool,
        managed_server=managed,
    )


def tool_name(server: str, tool: str, taken: Collection[str] = ()) -> str:
    """Return `mcp_<server>_<tool>`, always the same for the same two.

    A name that had to be changed or cut, or that is taken, ends in a digest of both, so that no
    two tools share one.

    Args:
        server: The server's name.
        tool: The tool's own.
        taken: Names that others have.
    """
    plain = f"{SERVER_TOOL_PREFIX}{server}_{tool}"
    if len(plain) <= MAX_NAME_CHARS and not _NOT_ALLOWED.search(plain) and plain not in taken:
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()
    short_server = _NOT_ALLOWED.sub("_", server).strip("_")[:_MAX_SERVER_CHARS]
    readable = f"{SERVER_TOOL_PREFIX}{short_server}_{_NOT_ALLOWED.sub('_', tool).strip('_')}"
    for length in range(_DIGEST_CHARS, len(digest) + 1):
        name = f"{readable[: MAX_NAME_CHARS - length - 1]}_{digest[:length]}"
        if name not in taken:
            return name
    raise ValueError(f"no name is left for {tool!r} of {server!r}")
