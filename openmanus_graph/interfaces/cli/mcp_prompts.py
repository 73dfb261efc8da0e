"""Prompts of MCP servers as commands of the chat: `/mcp_SERVER_PROMPT ARGUMENTS`."""

import asyncio
import shlex
import textwrap
from typing import TYPE_CHECKING

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.chat_session import ChatSession
from openmanus_graph.interfaces.cli.safe_console import say
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.mcp_server import SERVER_TOOL_PREFIX
from openmanus_graph.tool_calls.resolve_tools import load_client

if TYPE_CHECKING:
    from openmanus_graph.backends.mcp.tool import ServerPrompt
    from openmanus_graph.state.mcp_server import MCPServer

DESCRIPTION_CHARS = 200
PROMPT_PREFIX = f"/{SERVER_TOOL_PREFIX}"


async def show_prompts(chat: ChatSession, argument: str) -> None:
    """List the prompts of the configured servers."""
    prompts = await _prompts_by_command(chat)
    for command, prompt in prompts.items():
        purpose = textwrap.shorten(prompt.description, DESCRIPTION_CHARS, placeholder=" ...")
        say(f"  {_usage(command, prompt)}  {purpose}".rstrip())
    if not prompts:
        say("The configured MCP servers have no prompts.")


async def use_prompt(command: str, chat: ChatSession, argument: str) -> None:
    """Put a prompt into the input line, for the person to read and to send.

    Raises:
        ConfigError: There is no such prompt, or its arguments are wrong.
    """
    prompt = (await _prompts_by_command(chat)).get(command)
    if prompt is None:
        raise ConfigError(f"There is no prompt {command}. /mcp lists them.")
    args = _arguments(command, prompt, argument)
    from openmanus_graph.backends.mcp.failures import ServerError
    from openmanus_graph.backends.mcp.tool import get_prompt

    try:
        text = printable(await get_prompt(prompt, args))
    except ServerError as error:
        raise ConfigError(f"The MCP server {prompt.server.name} {error}") from error
    # A server's text is never a command.
    chat.draft = f" {text}" if text.startswith("/") else text
    say("Enter sends the prompt. It comes from the server: read it first.")


async def _prompts_by_command(chat: ChatSession) -> "dict[str, ServerPrompt]":
    servers = [server for server in chat.settings.mcp_servers if server.enabled]
    if not servers:
        raise ConfigError("No MCP server is configured: mcp.json or [mcp.servers.NAME] names them.")
    await asyncio.to_thread(load_client)
    from openmanus_graph.backends.mcp.tool import tool_name

    found: dict[str, ServerPrompt] = {}
    for prompts in await asyncio.gather(*map(_prompts_of, servers)):
        for prompt in prompts:
            taken = [command.removeprefix("/") for command in found]
            found[f"/{tool_name(prompt.server.name, prompt.name, taken)}"] = prompt
    return found


async def _prompts_of(server: "MCPServer") -> "list[ServerPrompt]":
    from openmanus_graph.backends.mcp.failures import ServerError
    from openmanus_graph.backends.mcp.tool import list_prompts

    try:
        return await list_prompts(server)
    except ServerError as error:
        say(f"The MCP server {server.name} {error}")
        return []


def _arguments(command: str, prompt: "ServerPrompt", typed: str) -> dict[str, str]:
    """Give what was typed to the prompt's arguments, in their order."""
    try:
        values = shlex.split(typed)
    except ValueError as error:
        raise ConfigError(f"The arguments cannot be read: {error}.") from error
    required = sum(prompt.arguments.values())
    if not required <= len(values) <= len(prompt.arguments):
        raise ConfigError(f"Write {_usage(command, prompt)}")
    return dict(zip(prompt.arguments, values, strict=False))


def _usage(command: str, prompt: "ServerPrompt") -> str:
    given = prompt.arguments.items()
    names = [name.upper() if needed else f"[{name.upper()}]" for name, needed in given]
    return " ".join([command, *names])
