"""Starting MCP servers for tests, and describing them."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

from openmanus_graph import MCPServer

FOLDER = Path(__file__).parent
RAW, SDK = str(FOLDER / "mcp_raw.py"), str(FOLDER / "mcp_sdk.py")
Kind = Literal["stdio", "http", "sse"]


def raw(name: str = "raw", way: str = "", **more: Any) -> MCPServer:
    """Describe the server that is written by hand."""
    args = ("-S", "-E", RAW, *([way] if way else []))
    return MCPServer(name, command=sys.executable, args=args, **more)


@contextlib.contextmanager
def sdk_server(kind: Kind, name: str = "sdk", **variables: str) -> Generator[MCPServer]:
    """Describe the server made with the SDK, and start it if it is reached by HTTP."""
    if kind == "stdio":
        yield MCPServer(name, command=sys.executable, args=(SDK, "stdio"), approval=False)
        return
    process = subprocess.Popen(
        [sys.executable, SDK, kind],
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        path = "mcp" if kind == "http" else "sse"
        yield MCPServer(name, url=f"http://127.0.0.1:{port}/{path}", approval=False)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]  # a pipe, see above


def file_of(*servers: MCPServer, **more: Any) -> str:
    """Write an `mcp.json`."""
    entries: dict[str, Any] = {}
    for server in servers:
        fields = {"command": server.command, "args": list(server.args), "url": server.url}
        entries[server.name] = {key: value for key, value in fields.items() if value}
        entries[server.name] |= {"env": dict(server.env)} if server.env else {}
        entries[server.name] |= {} if server.approval is None else {"approval": server.approval}
    return json.dumps({"mcpServers": {**entries, **more}})
