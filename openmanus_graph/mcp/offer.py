"""What the servers of a session offer at a step, and what is new about them."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

from openmanus_graph.events import Emit, notice
from openmanus_graph.mcp.announced import Announced, traits_for
from openmanus_graph.mcp.names import tool_name
from openmanus_graph.mcp.supervised import News, Supervised, engine
from openmanus_graph.mcp.tool import ServerTool
from openmanus_graph.sessions import Session
from openmanus_graph.state.mcp_server import MCPServer

MANY = 120
"""Tools of which some providers take no more."""


@dataclass(frozen=True)
class Offer:
    """The servers at one step."""

    servers: Sequence[Supervised]
    tools: tuple[ServerTool, ...]
    news: tuple[News, ...]

    @property
    def gone(self) -> str:
        """Why there is nothing left to work with; empty as long as there is something."""
        if self.tools or any(one.state in ("starting", "down") for one in self.servers):
            return ""
        reasons = [
            f"{one.server.name} {one.why or 'offers no tools'}".rstrip(".") for one in self.servers
        ]
        return f"No MCP server is left to work with: {'; '.join(reasons)}."

    def told(self) -> None:
        """Forget the news: the model has seen them."""
        for one in self.servers:
            one.news = [item for item in one.news if item not in self.news]


async def offer(
    servers: Sequence[MCPServer],
    session: Session,
    emit: Emit,
    *,
    fresh: bool = True,
    needed: bool = False,
) -> Offer:
    """Return what the session's servers offer, and start those that are not there yet.

    Args:
        servers: Those to use; all begin at once.
        session: Keeps them.
        emit: Hears of the news.
        fresh: Wait for lists of tools that have changed.
        needed: Wait until one of them has tools, or all are given up.
    """
    handles = await asyncio.to_thread(_handles, servers, session)
    if fresh or any(one.state == "starting" for one in handles):
        await engine.run(lambda: _all_settled(handles, needed=needed))
    news = tuple(item for one in handles for item in list(one.news))
    for item in news:
        session.cached(item, partial(_show, item, emit))
    tools = tuple(tool for one in handles for tool in _tools(one, session))
    if len(tools) > MANY:
        text = f"MCP servers offer {len(tools)} tools, which is more than some models take. "
        session.cached("many", lambda: notice(emit, text + "Choose some by `allow` or `deny`."))
    return Offer(handles, tools, news)


def _handles(servers: Sequence[MCPServer], session: Session) -> list[Supervised]:
    return [_handle(server, session) for server in servers]


def _handle(server: MCPServer, session: Session) -> Supervised:
    """Return a server's handle; one that was given up is tried again with each run."""
    name, run = _handle_name(server), session.cached("run", object)
    known = session.find(name)
    if isinstance(known, Supervised) and known.state == "gone" and known.run is not run:
        session.drop(name)
    family = session.kept("MCP servers", set[Supervised])
    handle = session.handle(name, lambda: Supervised(server, family))
    handle.run = handle.run or run
    return handle


def _handle_name(server: MCPServer) -> str:
    """Name a server as it is described: one whose key has changed is another."""
    described = json.dumps(asdict(server), sort_keys=True, default=str)
    return f"mcp {server.name} {hashlib.sha256(described.encode()).hexdigest()[:8]}"


async def _all_settled(servers: Sequence[Supervised], *, needed: bool) -> None:
    await asyncio.gather(*(one.settled() for one in servers))
    while needed and not any(one.tools for one in servers):
        trying = [asyncio.ensure_future(one.turned()) for one in servers if one.state == "down"]
        if not trying:
            return
        await asyncio.wait(trying, return_when=asyncio.FIRST_COMPLETED)
        for one in trying:
            one.cancel()


def _tools(one: Supervised, session: Session) -> list[ServerTool]:
    names: dict[tuple[str, str], str] = session.kept("MCP tools", dict[tuple[str, str], str])
    offered = one.tools
    alone = all(tool.effect == "pure" for tool in offered)
    return [_tool(one, tool, names, session, side_by_side=alone) for tool in offered]


def _tool(
    one: Supervised,
    tool: Announced,
    names: dict[tuple[str, str], str],
    session: Session,
    *,
    side_by_side: bool,
) -> ServerTool:
    """Make a tool; the same one as at the step before if nothing has changed."""
    key = (one.server.name, tool.name)
    if key not in names:
        names[key] = tool_name(*key, set(names.values()))

    def make() -> ServerTool:
        return ServerTool(
            name=names[key],
            description=tool.description,
            parameters=dict(tool.shown),
            traits=traits_for(one.server, tool, side_by_side=side_by_side),
            announced=tool,
            supervised=one,
        )

    return session.cached((ServerTool, id(one), id(tool), side_by_side), make)


def _show(item: News, emit: Emit) -> None:
    notice(emit, item.text, item.level)
