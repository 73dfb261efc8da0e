"""The MCP server itself: what it answers to a client's requests."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.context import RequestContext
from mcp.shared.exceptions import McpError

from openmanus_graph.agent import define_agent
from openmanus_graph.cli.options import RunOptions
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.mcp_server import agent_tool
from openmanus_graph.mcp_server.agent_tool import AgentTool
from openmanus_graph.mcp_server.asking import Elicitation, ElicitedQuestions
from openmanus_graph.mcp_server.calling import build_call_graph
from openmanus_graph.mcp_server.client import Client, connected
from openmanus_graph.mcp_server.offer import describe, offered_tools
from openmanus_graph.mcp_server.progress import Progress
from openmanus_graph.mcp_server.results import call_result, contents, failure, link, read_link
from openmanus_graph.prompts import manus_system_prompt
from openmanus_graph.serving.readiness import ready_for_runs, ready_for_tools
from openmanus_graph.tools.toolset import Toolset

INSTRUCTIONS = (
    "Tools that work in a folder of their own, the workspace: paths are relative to it. Python and "
    "shell keep their state between calls until you disconnect. They run in a sandbox."
)
ToolServer = Server[Client, Any]


@dataclass(frozen=True)
class Offer:
    """What the server was started with."""

    options: RunOptions
    tools: tuple[str, ...] | None = None
    """Names of the tools to offer; None is all."""
    agent: str | None = None
    """Also offer this agent as a tool."""


def build_server(offer: Offer, version: str) -> ToolServer:
    """Make the server. Blocks. ConfigError if a setting, a tool or the agent is wrong."""
    context, settings = ready_for_tools(offer.options)
    chosen = offered_tools(offer.tools, settings.tools)
    toolset = Toolset({tool.name: tool for tool in chosen}, None)
    definition = define_agent("mcp_server", chosen, None, manus_system_prompt)
    graph = build_call_graph(definition)
    agent = None
    if offer.agent is not None:
        settings = ready_for_runs(offer.options, offer.agent)
        agent = AgentTool(offer.agent, offer.options, settings.max_steps)

    @contextlib.asynccontextmanager
    async def lifespan(_: ToolServer) -> AsyncGenerator[Client]:
        async with connected(graph, context) as client:
            yield client

    server: ToolServer = Server(
        "openmanus", version=version, instructions=INSTRUCTIONS, lifespan=lifespan
    )
    _Answers(server, toolset, agent).register()
    return server


class _Answers:
    """The handlers of one server's requests."""

    def __init__(self, server: ToolServer, toolset: Toolset, agent: AgentTool | None) -> None:
        self.server, self.toolset, self.agent = server, toolset, agent

    def register(self) -> None:
        """Have the server use them. Not by its decorators, whose own checks would come first."""
        handlers: dict[type, Callable[[Any], Awaitable[types.ServerResult]]] = {
            types.ListToolsRequest: self.list_tools,
            types.CallToolRequest: self.call_tool,
            types.ListResourcesRequest: self.list_resources,
            types.ReadResourceRequest: self.read_resource,
        }
        for kind, handler in handlers.items():
            self.server.request_handlers[kind] = handler

    async def list_tools(self, _: types.ListToolsRequest) -> types.ServerResult:
        """Describe what is offered."""
        pairs = zip(self.toolset.definitions, self.toolset.tools.values(), strict=True)
        found = [describe(definition, tool) for definition, tool in pairs]
        if self.agent is not None:
            found.append(self.agent.describe())
        return types.ServerResult(types.ListToolsResult(tools=found))

    async def call_tool(self, request: types.CallToolRequest) -> types.ServerResult:
        """Run a tool and return what came of it; a failure is a result as well."""
        context: RequestContext[Any, Client, Any] = self.server.request_context
        client, name = context.lifespan_context, request.params.name
        args = request.params.arguments or {}
        progress = Progress(context)
        elicitation = Elicitation(context.session, context.request_id)
        if self.agent is not None and name == agent_tool.NAME:
            work = self.agent.call(args, client, elicitation, progress)
        else:
            work = self._run(self._find(name), args, client, elicitation)
        async with progress.told(f"Runs {name}."):
            return types.ServerResult(await work)

    async def list_resources(self, _: types.ListResourcesRequest) -> types.ServerResult:
        """List the files that the client's runs have made."""
        made = self.server.request_context.lifespan_context.files
        links = [link(thread, artifact) for thread, files in made.items() for artifact in files]
        found = [types.Resource(**one.model_dump(exclude={"type"})) for one in links]
        return types.ServerResult(types.ListResourcesResult(resources=found))

    async def read_resource(self, request: types.ReadResourceRequest) -> types.ServerResult:
        """Read a file of one of the client's threads."""
        uri = str(request.params.uri)
        thread, path = read_link(uri)
        workspace = self.server.request_context.lifespan_context.workspaces.get(thread)
        try:
            if workspace is None:
                raise ToolError(f"There is no file {uri} here.")
            found = await asyncio.to_thread(contents, uri, path, workspace)
        except (ToolError, OSError) as error:
            raise _refused(str(error)) from error
        return types.ServerResult(types.ReadResourceResult(contents=[found]))

    def _find(self, name: str) -> BaseTool:
        try:
            return self.toolset.find(name)
        except ToolError as error:
            raise _refused(str(error)) from error

    async def _run(
        self, tool: BaseTool, args: dict[str, Any], client: Client, elicitation: Elicitation
    ) -> types.CallToolResult:
        try:
            message = await client.call(tool, args, ElicitedQuestions(elicitation))
        except ConfigError as error:  # a model that is needed and missing, say
            return failure(str(error))
        if message is None:
            return failure(f"{tool.name} asked a question in a way that cannot be passed on.")
        return await asyncio.to_thread(call_result, message, client.workspace)


def _refused(words: str) -> McpError:
    return McpError(types.ErrorData(code=types.INVALID_PARAMS, message=words))
