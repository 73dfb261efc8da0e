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
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any, Self

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from openmanus_graph.mcp.http import MAX_MESSAGE, read_message
from openmanus_graph.sandbox.environment import network_settings
from openmanus_graph.state.mcp_server import MCPServer

LINE_CHARS = 300
GRACE_S = (2.0, 2.0, 1.0)
"""For a server to end: after its input was closed, after SIGTERM, after SIGKILL."""
LAST_WORDS_S = 0.5
"""For its complaints to arrive, once it has ended."""
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
    listening = asyncio.ensure_future(_listen(process, server.name, complaints))
    try:
        yield _Incoming(process, listening), _Outgoing(process, listening)
    finally:
        await _surely(_ended(process, listening))


def environment(own: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """Return an allow-listed environment (HOME, PATH, USER ..., the network) and the server's."""
    passed_on = {name: host[name] for name in _PASSED_ON if name in host}
    return {**get_default_environment(), **passed_on, **network_settings(host), **own}


class _Stream:
    """One of the server's pipes, as the SDK wants to see it."""

    def __init__(self, process: Process, listening: "asyncio.Future[None]") -> None:
        self._process, self._listening = process, listening

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Do nothing: pipes are closed together with their server."""

    async def _hear_last_words(self) -> None:
        await asyncio.wait({self._listening}, timeout=LAST_WORDS_S)


class _Incoming(_Stream):
    """Reads messages, a line each, until the server ends."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        assert self._process.stdout is not None
        with contextlib.suppress(ConnectionError):
            while line := await _line(self._process.stdout):
                if line.strip():
                    return read_message(line.decode("utf-8", "replace"))
        await self._hear_last_words()
        raise StopAsyncIteration


class _Outgoing(_Stream):
    async def send(self, sent: SessionMessage) -> None:
        assert self._process.stdin is not None
        text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._process.stdin.write(text.encode() + b"\n")
        try:
            await self._process.stdin.drain()
        except ConnectionError as error:
            await self._hear_last_words()
            raise anyio.BrokenResourceError from error


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


async def _ended(process: Process, listening: "asyncio.Future[None]") -> None:
    """End a server and all it started, politely, then by force."""
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
    listening.cancel()
    await asyncio.wait({listening})


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # its own session, hence its own group
