"""`openmanus mcp`: lists and tests the configured MCP servers, and calls their tools."""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from openmanus_graph.config.mcp import configured_servers
from openmanus_graph.config.resolve import read_layers, resolve_settings, safe_name
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings
from openmanus_graph.tool_calls.resolve_tools import load_client

if TYPE_CHECKING:
    from openmanus_graph.backends.mcp.tool import ServerTools
    from openmanus_graph.runtime.session import Session
    from openmanus_graph.state.mcp_server import MCPServer

THREAD = "mcp"
"""Names the workspace of calls from the command line."""


def list_servers(config: str | None, *, as_json: bool) -> int:
    """Start all configured servers in parallel and list their tools; 1 if one does not work."""
    layers, warnings = read_layers(config)
    servers, problems = configured_servers(layers)
    for text in (*warnings, *problems.values()):
        sys.stderr.write(f"{printable(text)}\n")
    for server in servers.values():
        if not server.enabled:
            sys.stderr.write(f"{printable(server.name)} is switched off.\n")
    enabled = [server for server in servers.values() if server.enabled]
    if not enabled:
        sys.stderr.write(
            "No MCP server is configured: mcp.json or [mcp.servers.NAME] names them.\n"
        )
        return 1 if problems else 0
    rows = asyncio.run(_inspect(enabled, config))
    for row in rows:
        sys.stdout.write(f"{json.dumps(row, ensure_ascii=False)}\n" if as_json else _shown(row))
    return 0 if all(row["ok"] for row in rows) and not problems else 1


def test_server(name: str, config: str | None, *, as_json: bool) -> int:
    """Start one server, and show how long that took and what each of its tools is for."""
    server = named_server(name, config)
    (row,) = asyncio.run(_inspect([server], config))
    if as_json:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        return 0 if row["ok"] else 1
    sys.stdout.write(_shown(row))
    for tool in row["tools"]:
        about = printable(tool["description"]).partition("\n")[0]
        sys.stdout.write(f"    {tool['name']} ({tool['effect']}): {about}\n")
    return 0 if row["ok"] else 1


def call_tool(name: str, tool: str, arguments: str, config: str | None) -> int:
    """Call one tool as an agent would, and write its result; 1 if it failed."""
    server = named_server(name, config)
    try:
        args: Any = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The arguments are not JSON: {error}.") from error
    if not isinstance(args, dict):
        raise ConfigError('The arguments must be a JSON object, {"name": "value"}.')
    return asyncio.run(_call_and_print(server, tool, cast("dict[str, Any]", args), config))


def named_server(name: str, config: str | None) -> "MCPServer":
    """Return the server of this name, URL or command. ConfigError: there is none."""
    (server,) = _settings(config, (name,)).mcp_servers
    return server


def _settings(config: str | None, servers: Sequence[Any] | None) -> Settings:
    """Resolve the settings; a model is only needed if a server asks for it."""
    named = None if servers is None else tuple(servers)
    context = Context(config=config, mcp_servers=named, policy="auto")
    try:
        return resolve_settings(context, THREAD)
    except ConfigError:
        return resolve_settings(context, THREAD, without_model=True)


async def _inspect(servers: Sequence["MCPServer"], config: str | None) -> list[dict[str, Any]]:
    started = time.monotonic()
    session = await asyncio.to_thread(_session, servers, config)
    try:
        found = await _resolve_tools(servers, session)
        seconds = round(time.monotonic() - started, 2)
        return [_row(one, found, seconds) for one in found.servers]
    finally:
        await asyncio.to_thread(session.close)


async def _call_and_print(
    server: "MCPServer", tool: str, args: dict[str, Any], config: str | None
) -> int:
    from openmanus_graph.interfaces.cli.calling import call_once

    session = await asyncio.to_thread(_session, [server], config)
    try:
        found = await _resolve_tools([server], session)
        (one,) = found.servers
        if one.state != "up":
            sys.stderr.write(f"The MCP server {printable(one.server.name)} {printable(one.why)}\n")
            return 1
        message = await call_once(tool, args, found.tools, session)
    finally:
        await asyncio.to_thread(session.close)
    sys.stdout.write(printable(message.text) + "\n")
    return 1 if message.status == "error" else 0


async def _resolve_tools(servers: Sequence["MCPServer"], session: "Session") -> "ServerTools":
    resolve_server_tools = await asyncio.to_thread(load_client)
    return await resolve_server_tools(servers, session, _ignore_event)


def _ignore_event(event: dict[str, Any]) -> None:
    """Show nothing: the printed rows hold the same."""


def _session(servers: Sequence["MCPServer"], config: str | None) -> "Session":
    from openmanus_graph.runtime.session import Session

    session = Session(safe_name(THREAD), _settings(config, servers))
    session.workspace.prepare()
    return session


def _row(one: Any, found: "ServerTools", seconds: float) -> dict[str, Any]:
    server = one.server
    return {
        "server": server.name,
        "ok": one.state == "up",
        "transport": one.transport,
        "info": one.info,
        "error": "" if one.state == "up" else one.why,
        "seconds": seconds,
        "tools": [
            {
                "name": tool.name,
                "own_name": tool.listed_tool.name,
                "description": tool.description,
                "effect": tool.listed_tool.effect,
                "parameters": tool.parameters,
            }
            for tool in found.tools
            if tool.managed_server is one
        ],
    }


def _shown(row: dict[str, Any]) -> str:
    if not row["ok"]:
        return f"✗ {printable(row['server'])} ({row['transport']}): {printable(row['error'])}\n"
    names = ", ".join(tool["own_name"] for tool in row["tools"]) or "none"
    return printable(
        f"✓ {row['server']} ({row['transport']}, {row['info']}, {row['seconds']} s): "
        f"{len(row['tools'])} tools: {names}\n"
    )
