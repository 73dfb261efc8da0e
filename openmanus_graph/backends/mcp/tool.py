"""A server's tool as a tool of the graph."""

import asyncio
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import mcp_types as types
from langgraph.errors import GraphBubbleUp
from pydantic import ConfigDict

from openmanus_graph.backends.mcp.calls import OpenCall, follow_call
from openmanus_graph.backends.mcp.connection import connect_outside_run
from openmanus_graph.backends.mcp.listed_tools import DescribedTool, ListedTool, traits_for
from openmanus_graph.backends.mcp.managed_server import ManagedServer, ServerChange, server_loop
from openmanus_graph.backends.mcp.results import is_short_text, pages, to_observation
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import CallRuntime
from openmanus_graph.state.context import SERVER_TOOL_PREFIX, MCPServer
from openmanus_graph.state.tool_traits import Observation


class ServerTool(DescribedTool):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    listed_tool: ListedTool
    managed_server: ManagedServer

    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> Observation:
        """Call the tool, or resume a call that was kept open while the user was asked."""
        session = runtime.session
        call: OpenCall | None = session.open_calls.pop(runtime.key, None)
        if call is None:
            call = OpenCall(self.listed_tool.name, dict(args), runtime.server_task)
            self.managed_server.begin_call(call)
        try:
            result, linked = await follow_call(
                call, runtime, self.name, self.managed_server.server.name
            )
        except GraphBubbleUp:
            session.open_calls[runtime.key] = call
            raise
        except BaseException:
            call.abandon()
            raise
        if is_short_text(result):  # a thread would take longer
            return to_observation(result, linked, self.name, session.workspace)
        return await asyncio.to_thread(to_observation, result, linked, self.name, session.workspace)

    def accept(self) -> None:
        """Save the tool's current description as accepted. Blocks."""
        self.managed_server.accept(self.listed_tool)

    async def knows_task(self, task_id: str) -> bool:
        """Return True if the server still knows the state of a call that it runs as a task."""
        return await server_loop.run(partial(self.managed_server.knows_task, task_id))


MAX_NAME_CHARS = 64
"""Longest name that providers allow."""
_MAX_SERVER_CHARS = 24
_DIGEST_CHARS = 6
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]+")


@dataclass(frozen=True)
class ServerTools:
    """The servers and their tools at one agent step."""

    servers: Sequence[ManagedServer]
    tools: tuple[ServerTool, ...]
    changes: tuple[ServerChange, ...]

    @property
    def fatal_reason(self) -> str:
        """Why no server can be used any more; empty if one can."""
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
    """Return the tools of servers. Start all servers that do not run yet, in parallel.

    Args:
        session: Keeps the servers.
        emit: Receives their changes as notices.
        fresh: Wait for lists of tools that have changed.
        needed: Wait until a server has tools, or all have failed for good.
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
    """Return a server's handle. A server that failed for good is started again in a new run."""
    # By the whole configuration: with another key, it is another server.
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
    """Return the tools of a server. A tool that has not changed is the same object."""
    names: dict[tuple[str, str], str] = session.cached_across_runs(
        "MCP tools", dict[tuple[str, str], str]
    )
    listed = managed.tools
    side_by_side = all(tool.effect == "read_only" for tool in listed)
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
    """Return `mcp_<server>_<tool>`, which is always the same for the same two names.

    A name that is not allowed, too long or already taken ends in a digest of both names.
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


@dataclass(frozen=True)
class ServerPrompt:
    server: MCPServer
    name: str
    description: str
    arguments: Mapping[str, bool]
    """Their names in order. True if the argument is required."""


async def list_prompts(server: MCPServer) -> list[ServerPrompt]:
    """Return the prompts of a server. ServerError: it cannot be used."""
    found: list[ServerPrompt] = []
    async with connect_outside_run(server, server.start_timeout_s) as connection:
        session = connection.session
        capabilities = session.server_capabilities
        if capabilities is None or capabilities.prompts is None:
            return []
        async for page in pages(session.list_prompts):
            for one in page.prompts:
                about = " ".join((one.description or one.title or "").split())
                arguments = {arg.name: bool(arg.required) for arg in one.arguments or ()}
                found.append(ServerPrompt(server, one.name, about, arguments))
    return found


async def get_prompt(prompt: ServerPrompt, args: Mapping[str, str]) -> str:
    """Return the text of a prompt, with other content named in brackets.

    Raises:
        ServerError: The server cannot be used, or rejected the arguments.
    """
    server = prompt.server
    async with connect_outside_run(server, server.start_timeout_s) as connection:
        result = await connection.session.get_prompt(prompt.name, dict(args))
    return "\n\n".join(_text_of(message.content) for message in result.messages)


def _text_of(content: types.ContentBlock) -> str:
    match content:
        case types.TextContent():
            return content.text
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.EmbeddedResource():
            return f"[{content.resource.uri}]"
        case types.ResourceLink():
            return f"[{content.uri}]"
        case _:
            return f"[{content.type}: not shown]"
