"""Servers that are processes: what they are given, how they speak and how they are ended.

The SDK's own transport takes a minute for a line of 20 MB, and gives the server's complaints away.
"""

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import Any

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from openmanus_graph.mcp.http import MAX_MESSAGE, read_message
from openmanus_graph.sandbox.environment import network_settings
from openmanus_graph.state.mcp_server import MCPServer

LINE_CHARS = 300
GRACE_S = (2.0, 2.0, 1.0)
"""For a server to end: after its input was closed, after SIGTERM, after SIGKILL."""
_PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError)
log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def stdio_streams(
    server: MCPServer, complaints: deque[str]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start the server and connect to its pipes; its stderr goes to the log.

    Args:
        server: What to start.
        complaints: Gets the newest lines of its stderr.

    Raises:
        OSError: It cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        server.command or "",
        *server.args,
        env=environment(server.env, os.environ),
        cwd=server.cwd,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=MAX_MESSAGE,
        start_new_session=True,
    )
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    listening = asyncio.ensure_future(_listen(process, server.name, complaints))
    tasks = [
        listening,
        asyncio.ensure_future(_receive(process, incoming, listening)),
        asyncio.ensure_future(_send(process, outgoing)),
    ]
    try:
        async with incoming, read, write, outgoing:
            yield read, write
    finally:
        await _surely(_ended(process, tasks))


def environment(own: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """Return an allow-listed environment (HOME, PATH, USER ..., the network) and the server's."""
    passed_on = {name: host[name] for name in _PASSED_ON if name in host}
    return {**get_default_environment(), **passed_on, **network_settings(host), **own}


async def _receive(process: Process, incoming: Any, listening: "asyncio.Future[None]") -> None:
    """Read messages, a line each, until the server ends."""
    assert process.stdout is not None
    with contextlib.suppress(*_GONE):
        while line := await _line(process.stdout):
            if line.strip():
                await incoming.send(read_message(line.decode("utf-8", "replace")))
    await asyncio.wait({listening}, timeout=0.5)  # its last words come first
    await incoming.aclose()


async def _send(process: Process, outgoing: Any) -> None:
    assert process.stdin is not None
    with contextlib.suppress(*_GONE):
        async for sent in outgoing:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _listen(process: Process, name: str, complaints: deque[str]) -> None:
    assert process.stderr is not None
    while line := await _line(process.stderr):
        if text := line.decode("utf-8", "replace").rstrip():
            log.info("%s: %s", name, text[:LINE_CHARS])
            complaints.append(text[:LINE_CHARS])


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, nothing at the end."""
    while True:
        try:
            return await stream.readline()
        except ValueError:  # longer than the limit; what was read of it is dropped
            continue


async def _surely(work: Coroutine[Any, Any, None]) -> None:
    """Await work that no cancellation may cut short; it is passed on afterwards."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _ended(process: Process, tasks: Sequence["asyncio.Future[None]"]) -> None:
    """End a server and all it started, politely, then by force; and what served its pipes."""
    if process.stdin is not None:
        process.stdin.close()
    steps = zip(GRACE_S, (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL), strict=True)
    for grace_s, force in steps:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.wait()
        if process.returncode is not None:
            break
        _signal(process, force)
    _signal(process, signal.SIGTERM)  # what it left behind
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # its own session, hence its own group
