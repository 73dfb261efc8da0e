"""Prompts of servers: messages that a person chooses, and may change before sending them.

They are fetched outside of runs, over a connection that is closed again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import mcp_types as types

from openmanus_graph.backends.mcp.connection import connect_outside_run
from openmanus_graph.backends.mcp.listed_tools import pages
from openmanus_graph.state.mcp_server import MCPServer


@dataclass(frozen=True)
class ServerPrompt:
    """A prompt that a server offers."""

    server: MCPServer
    name: str
    description: str
    arguments: Mapping[str, bool]
    """Their names in order, and whether each is required."""


async def list_prompts(server: MCPServer) -> list[ServerPrompt]:
    """Return the prompts of a server.

    Raises:
        ServerError: It cannot be used, and why.
    """
    found: list[ServerPrompt] = []
    async with connect_outside_run(server, server.start_timeout_s) as connection:
        session = connection.session
        capabilities = session.server_capabilities
        if capabilities is None or capabilities.prompts is None:
            return []
        async for page in pages(session.list_prompts):
            found += [_described(server, one) for one in page.prompts]
    return found


async def get_prompt(prompt: ServerPrompt, args: Mapping[str, str]) -> str:
    """Return the text of a prompt; what is no text is named in brackets.

    Raises:
        ServerError: The server cannot be used, or refused the arguments.
    """
    server = prompt.server
    async with connect_outside_run(server, server.start_timeout_s) as connection:
        result = await connection.session.get_prompt(prompt.name, dict(args))
    return "\n\n".join(_text_of(message.content) for message in result.messages)


def _described(server: MCPServer, prompt: types.Prompt) -> ServerPrompt:
    arguments = {one.name: bool(one.required) for one in prompt.arguments or ()}
    about = prompt.description or prompt.title or ""
    return ServerPrompt(server, prompt.name, " ".join(about.split()), arguments)


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
