"""`openmanus mcp login` and `logout`: a person's login at an MCP server over HTTP."""

import asyncio
import sys
import webbrowser
from typing import TYPE_CHECKING

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.mcp import named_server
from openmanus_graph.runtime.output import printable
from openmanus_graph.tool_calls.resolve_tools import load_client

if TYPE_CHECKING:
    from openmanus_graph.state.mcp_server import MCPServer


def log_in(name: str, config: str | None, *, open_browser: bool, timeout_s: float) -> int:
    """Log in to a server; 1 if it refused."""
    server = _http_server(name, config)
    if any(header.lower() == "authorization" for header in server.headers):
        raise ConfigError(
            f"The MCP server {server.name!r} has a key in `headers`, which counts. Remove it first."
        )
    if server.oauth.grant == "client_credentials":
        raise ConfigError(
            f"The MCP server {server.name!r} logs in by itself (client_credentials): use it."
        )
    load_client()
    from openmanus_graph.backends.mcp.failures import ServerError
    from openmanus_graph.backends.mcp.login import login

    async def show(url: str) -> None:
        sys.stderr.write(f"Log in here:\n{printable(url)}\n")
        sys.stderr.flush()
        if open_browser:
            await asyncio.to_thread(webbrowser.open, url)

    try:
        result = asyncio.run(login(server, show, timeout_s))
    except ServerError as error:
        sys.stderr.write(f"The MCP server {printable(server.name)} {printable(str(error))}\n")
        return 1
    if not result.needed:
        sys.stdout.write(f"{printable(server.name)} asked for no login: {result.tools} tools.\n")
        return 0
    scope = f" ({result.scope})" if result.scope else ""
    sys.stdout.write(
        f"Logged in to {printable(server.name)}{printable(scope)}: {result.tools} tools.\n"
    )
    return 0


def log_out(name: str, config: str | None) -> int:
    """Revoke and forget a login; 1 if it could not be revoked."""
    server = _http_server(name, config)
    load_client()
    from openmanus_graph.backends.mcp.login import logout

    left = asyncio.run(logout(server))
    sys.stdout.write(f"Logged out of {printable(server.name)}.\n")
    if left:
        sys.stderr.write(f"{printable(left)}\n")
    return 1 if left else 0


def _http_server(name: str, config: str | None) -> "MCPServer":
    server = named_server(name, config)
    if server.url is None:
        raise ConfigError(f"The MCP server {server.name!r} has no url: logins are for addresses.")
    return server
