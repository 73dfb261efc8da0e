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
from tests.support.static_site import SiteHandler

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


class Refusing(SiteHandler):
    """A server over HTTP whose tool `buy` is answered with the status that the call names."""

    locked = False

    def do_POST(self) -> None:
        """Answer a message; once it has said 401, it says nothing else."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        params: dict[str, Any] = message.get("params") or {}
        status: int = 401 if self.locked else params.get("arguments", {}).get("status", 200)
        type(self).locked = status == 401
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": params.get("protocolVersion"),
                "serverInfo": {"name": "refusing", "version": "1"},
                "capabilities": {"tools": {}},
            },
            "tools/list": {"tools": [{"name": "buy", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "bought"}]},
        }
        result = results.get(message["method"])
        if status != 200:
            self.send_json({"detail": "no"}, status)
        elif result is None:
            self.send_json(None, 202)
        else:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            self.send_json(answer, 200, **{"Mcp-Session-Id": "one"})

    def do_GET(self) -> None:
        """Have no stream of messages."""
        self.send_json(None, 405)
