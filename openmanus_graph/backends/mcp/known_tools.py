"""What each server said of its tools when the user added it, or last allowed a call of one.

A description is read by every request, so a server that changes one later can give orders by it.
Kept in the user's configuration folder, by server and tool.
"""

import hashlib
import json
import logging
from collections.abc import Iterable
from pathlib import Path

from openmanus_graph.backends.mcp.listed_tools import ListedTool
from openmanus_graph.config.home_files import changed_object, config_home, read_object
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.mcp_server import MCPServer

log = logging.getLogger(__name__)


def changed_tools(server: MCPServer, tools: Iterable[ListedTool]) -> dict[str, str]:
    """Return the digests that changed tools had before, by name; empty for new tools. Blocks.

    Args:
        server: If it is seen for the first time, its tools are noted as they are.
        tools: All that it lists.
    """
    listed = {tool.name: tool.digest for tool in tools}
    known: dict[str, str] | None = read_object(_file()).get(_key(server))
    if known is None:
        if listed:
            _note(server, listed)
        return {}
    return {
        name: known.get(name, "") for name, digest in listed.items() if known.get(name) != digest
    }


def accept_tool(server: MCPServer, tool: ListedTool) -> None:
    """Note a tool as it is now: the user allowed a call of it. Blocks."""
    _note(server, {tool.name: tool.digest})


def _note(server: MCPServer, digests: dict[str, str]) -> None:
    try:
        with changed_object(_file(), mode=0o600) as known:
            known[_key(server)] = {**known.get(_key(server), {}), **digests}
    except ConfigError as error:
        log.warning("The tools of %s are not noted: %s", server.name, error)


def _key(server: MCPServer) -> str:
    """Name a server by what is started or reached: another one of its name is another one."""
    reached = json.dumps([server.command, server.args, server.url])
    digest = hashlib.sha256(reached.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{server.name} {digest[:16]}"


def _file() -> Path:
    return config_home() / "mcp-tools.json"
