"""MCP servers beside the bare SDK: a call over a kept session, and ten servers at once."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from openmanus_graph.backends.mcp.tool import resolve_server_tools
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.state.context import MCPServer
from openmanus_graph.state.manus import PendingCall, no_usage
from openmanus_graph.testing import tool_session
from openmanus_graph.tool_calls.context import ToolCallContext
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import Toolset

SDK_SERVER = """
from mcp.server import MCPServer

server = MCPServer("b")


@server.tool(annotations={"readOnlyHint": True})
def echo(text: str) -> str:
    return text


server.run("stdio")
"""
LEAN_SERVER = """
import json, sys, time
time.sleep({wait})
tool = {{"name": "echo", "description": "Echoes.", "inputSchema": {{"type": "object", "properties":
        {{"text": {{"type": "string"}}}}}}, "annotations": {{"readOnlyHint": True}}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    params = asked.get("params") or {{}}
    result = {{
        "initialize": lambda: {{"protocolVersion": params["protocolVersion"], "capabilities":
                               {{"tools": {{}}}}, "serverInfo": {{"name": "b", "version": "1"}}}},
        "tools/list": lambda: {{"tools": [tool]}},
        "tools/call": lambda: {{"content": [{{"type": "text", **params["arguments"]}}]}},
    }}[asked["method"]]()
    print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": result}}), flush=True)
"""
WAIT_S, SERVERS, ROUNDS = 1.0, 10, 5


def measure_servers(*, calls: int) -> list[list[str]]:
    """Return the rows of the table."""
    return asyncio.run(_measured(calls))


async def _measured(calls: int) -> list[list[str]]:
    # In turn, and the best of each: what else the machine does only ever adds.
    rows: list[list[str]] = []
    for kind, command, limit in (
        ("a server made with the SDK", ["-c", SDK_SERVER], ", at most 2"),
        ("one that answers at once", _lean(0), ""),
    ):
        rounds = [(await _bare(command, calls), await _ours(command, calls)) for _ in range(ROUNDS)]
        bare, ours = (min(taken) for taken in zip(*rounds, strict=True))
        rows += [
            [f"{kind}: the SDK alone", f"{bare:.2f}", ""],
            [f"{kind}: run_call", f"{ours:.2f}", f"{ours / bare:.2f}{limit}"],
        ]
    one, ten = await _started(1), await _started(SERVERS)
    return [
        *rows,
        ["the slowest server starts", f"{1000 * one:.0f}", ""],
        [f"{SERVERS} servers start", f"{1000 * ten:.0f}", f"{ten / one:.2f}, at most 1.5"],
    ]


async def _timed(calls: int, call: Callable[[str], Awaitable[Any]]) -> float:
    """Return the milliseconds of a call, the median of many."""
    taken: list[float] = []
    for number in range(calls + 10):
        begun = time.perf_counter()
        await call(f"text {number}")
        taken.append(time.perf_counter() - begun)
    return 1000 * statistics.median(taken[10:])


async def _bare(command: list[str], calls: int) -> float:
    parameters = StdioServerParameters(command=sys.executable, args=command)
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        return await _timed(calls, lambda text: session.call_tool("echo", {"text": text}))


async def _ours(command: list[str], calls: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        session = await asyncio.to_thread(tool_session, Path(folder))
        try:
            servers = [MCPServer("b", command=sys.executable, args=tuple(command))]
            found = await resolve_server_tools(servers, session, lambda _: None)
            context = ToolCallContext(
                session=session,
                toolset=Toolset({tool.name: tool for tool in found.tools}, None),
                config={"configurable": {}},
                emit=lambda _: None,
                branch="",
                thread=None,
                ledger=None,
                questions=Questions(None),
                progress=Progress(0, no_usage(), 0.0),
            )

            async def call(text: str) -> Any:
                pending = PendingCall(
                    id="c", name="mcp_b_echo", args={"text": text}, occurrence=0, problem=None
                )
                return await run_call(pending, context)

            return await _timed(calls, call)
        finally:
            await asyncio.to_thread(session.close)


async def _started(count: int) -> float:
    """Return the seconds until so many servers are there, each of which needs a second."""
    with tempfile.TemporaryDirectory() as folder:
        session = await asyncio.to_thread(tool_session, Path(folder))
        try:
            servers = [
                MCPServer(f"b{number}", command=sys.executable, args=tuple(_lean(WAIT_S)))
                for number in range(count)
            ]
            begun = time.perf_counter()
            found = await resolve_server_tools(servers, session, lambda _: None)
            if len(found.tools) != count:
                raise RuntimeError(f"only {len(found.tools)} of {count} servers have started")
            return time.perf_counter() - begun
        finally:
            await asyncio.to_thread(session.close)


def _lean(wait_s: float) -> list[str]:
    return ["-S", "-E", "-c", LEAN_SERVER.format(wait=wait_s)]
