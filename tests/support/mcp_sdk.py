"""An MCP server made with the current SDK: `python mcp_sdk.py stdio|http|sse`.

Over HTTP it serves on a free port of 127.0.0.1, which it writes to stdout as its first line.
"""

import asyncio
import os
import socket
import sys
import warnings

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

warnings.simplefilter("ignore")  # what newer revisions of the protocol have deprecated
server = MCPServer("sdk")


class Name(BaseModel):
    name: str


@server.tool()
async def greet(ctx: Context) -> str:
    """Ask for a name and greet."""
    asked = await ctx.elicit("Who are you?", schema=Name)
    return f"hello {asked.data.name}" if asked.action == "accept" else asked.action


@server.tool()
async def think(ctx: Context, question: str) -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=question))
    reply = await ctx.session.create_message(  # pyright: ignore[reportDeprecated]  # still in use
        [message], max_tokens=100, system_prompt="Be brief."
    )
    return f"the model says: {reply.content}"


@server.tool()
async def grow(ctx: Context) -> str:
    """Bring another tool."""

    def grown() -> str:
        return "grown up"

    server.add_tool(grown)
    await ctx.session.send_tool_list_changed()
    return "grew"


@server.tool()
async def count(ctx: Context, upto: int) -> str:
    """Report progress."""
    for number in range(1, upto + 1):
        await ctx.report_progress(number, upto, f"at {number}")
    return f"counted to {upto}"


@server.tool(structured_output=False)
def much(size: int) -> str:
    """Return a long text that tells its ends."""
    return f"BEGIN{'x' * size}END"


@server.tool(structured_output=False)
def picture() -> list[object]:
    """Return a picture."""
    return ["look", Image(data=PNG, format="png")]


@server.tool()
async def die() -> str:
    """End the server at once."""
    os._exit(1)


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6364f8cf500f0003860180"
    "5a347d6b0000000049454e44ae426082"
)


class _Key:
    """Lets in only requests with the key, if there is one."""

    def __init__(self, app: object) -> None:
        self.app, self.key = app, os.environ.get("MCP_KEY")

    async def __call__(self, scope: dict[str, object], receive: object, send: object) -> None:
        given = Request(scope).headers.get("authorization") if scope["type"] == "http" else None
        if scope["type"] == "http" and self.key and given != f"Bearer {self.key}":
            await Response(status_code=401)(scope, receive, send)  # type: ignore[arg-type]  # plain ASGI
            return
        await self.app(scope, receive, send)  # type: ignore[operator]  # plain ASGI


def serve(kind: str) -> None:
    app = server.streamable_http_app() if kind == "http" else server.sse_app()
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(_Key(app), log_level="error", ssl_certfile=os.environ.get("MCP_CERT"))
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        serve(sys.argv[1])
