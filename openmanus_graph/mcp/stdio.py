"""Starting a server as a process: what it is given, and what it complains of."""

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from mcp.client.stdio import StdioServerParameters, stdio_client

from openmanus_graph.sandbox.environment import network_settings
from openmanus_graph.state.mcp_server import MCPServer

LINE_CHARS = 300
_PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")
log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def stdio_streams(
    server: MCPServer, complaints: deque[str]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start the server and connect to its pipes; its stderr goes to the log.

    Args:
        server: What to start.
        complaints: Gets the newest lines of its stderr.
    """
    parameters = StdioServerParameters(
        command=server.command or "",
        args=list(server.args),
        env=environment(server.env, os.environ),
        cwd=server.cwd,
        encoding_error_handler="replace",
    )
    async with (
        _collected(server.name, complaints) as stderr,
        stdio_client(parameters, errlog=stderr) as streams,
    ):
        stderr.close()  # the process has it; what it inherits ends with it
        yield streams


def environment(own: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """Return what a server gets beside what the SDK passes on (HOME, PATH, SHELL, USER ...)."""
    passed_on = {name: host[name] for name in _PASSED_ON if name in host}
    return {**passed_on, **network_settings(host), **own}


@contextlib.asynccontextmanager
async def _collected(name: str, lines: deque[str]) -> AsyncGenerator[Any]:
    """Give a file to write to, and read what is written."""
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    source = os.fdopen(reading, "rb")
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), source
    )
    task = loop.create_task(_read_lines(name, reader, lines))
    try:
        with os.fdopen(writing, "w") as target:
            yield target
    finally:
        done, _ = await asyncio.wait({task}, timeout=0.2)  # its last words
        if not done:
            task.cancel()
        transport.close()


async def _read_lines(name: str, reader: asyncio.StreamReader, lines: deque[str]) -> None:
    while True:
        try:
            line = await reader.readline()
        except ValueError:  # longer than the limit; what was read of it is dropped
            continue
        if not line:
            return
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            log.info("%s: %s", name, text)
            lines.append(text[:LINE_CHARS])
