"""An MCP server whose only tool answers with the trace that its call belongs to.

`python mcp_traced.py` speaks over stdio; `TracedHandler` answers the same over HTTP.
"""

import json
import sys
from typing import Any


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the response to a message; None for a notification."""
    params: dict[str, Any] = message.get("params") or {}
    meta: dict[str, Any] = params.get("_meta") or {}
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": params.get("protocolVersion"),
            "serverInfo": {"name": "traced", "version": "1"},
            "capabilities": {"tools": {}},
        },
        "tools/list": {"tools": [{"name": "where", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": str(meta.get("traceparent"))}]},
    }
    if message.get("id") is None:
        return None
    if (result := results.get(message["method"])) is None:
        error = {"code": -32601, "message": "There is no such method."}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


if __name__ == "__main__":
    for line in sys.stdin:
        if (response := answer(json.loads(line))) is not None:
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()
