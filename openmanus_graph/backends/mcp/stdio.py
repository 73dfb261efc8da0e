"""The stdio transport: starts a server as a process, exchanges messages and terminates it.

The SDK's transport takes a minute for a line of 20 MB, and loses the server's stderr.
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

from openmanus_graph.backends.mcp.http import MAX_MESSAGE, read_message
from openmanus_graph.backends.sandbox.environment import network_settings
from openmanus_graph.state.mcp_server import MCPServer

LINE_CHARS = 300
GRACE_S = (2.0, 2.0, 1.0)
"""Timeouts for a server to exit: after its stdin was closed, SIGTERM and SIGKILL."""
STDERR_S = 0.5
"""Timeout for reading the rest of its stderr, once it has exited."""
_INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")
log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def stdio_streams(
    server: MCPServer, stderr_lines: deque[str]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start the server and connect to its pipes; its stderr goes to the log.

    Args:
        server: Its configuration.
        stderr_lines: Gets the newest lines of its stderr.

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
    stderr_reader = asyncio.ensure_future(_read_stderr(process, server.name, stderr_lines))
    try:
        yield _Incoming(process, stderr_reader), _Outgoing(process, stderr_reader)
    finally:
        await _uninterrupted(_terminate(process, stderr_reader))


def environment(configured: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
    """Return the allow-listed environment (HOME, PATH, USER ..., proxies) and the server's."""
    inherited = {name: host[name] for name in _INHERITED if name in host}
    return {**get_default_environment(), **inherited, **network_settings(host), **configured}


class _Stream:
    """One of the server's pipes, with the interface that the SDK expects."""

    def __init__(self, process: Process, stderr_reader: "asyncio.Future[None]") -> None:
        self._process, self._stderr_reader = process, stderr_reader

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Do nothing: pipes are closed together with their server."""

    async def _wait_for_stderr(self) -> None:
        await asyncio.wait({self._stderr_reader}, timeout=STDERR_S)


class _Incoming(_Stream):
    """Reads messages, one per line, until the server exits."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        assert self._process.stdout is not None
        with contextlib.suppress(ConnectionError):
            while line := await _line(self._process.stdout):
                if line.strip():
                    return read_message(line.decode("utf-8", "replace"))
        await self._wait_for_stderr()
        raise StopAsyncIteration


class _Outgoing(_Stream):
    async def send(self, sent: SessionMessage) -> None:
        assert self._process.stdin is not None
        text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._process.stdin.write(text.encode() + b"\n")
        try:
            await self._process.stdin.drain()
        except ConnectionError as error:
            await self._wait_for_stderr()
            raise anyio.BrokenResourceError from error


async def _read_stderr(process: Process, name: str, stderr_lines: deque[str]) -> None:
    assert process.stderr is not None
    while line := await _line(process.stderr):
        if text := line.decode("utf-8", "replace").rstrip():
            log.info("%s: %s", name, text[:LINE_CHARS])
            stderr_lines.append(text[:LINE_CHARS])


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, nothing at the end."""
    while True:
        try:
            return await stream.readline()
        except ValueError:  # longer than the limit; what was read of it is dropped
            continue


async def _uninterrupted(coroutine: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine to its end; a cancellation is raised afterwards."""
    task, cancelled = asyncio.ensure_future(coroutine), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def _terminate(process: Process, stderr_reader: "asyncio.Future[None]") -> None:
    """Terminate a server and its process group: close stdin, then SIGTERM, then SIGKILL."""
    if process.stdin is not None:
        process.stdin.close()
    steps = zip(GRACE_S, (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL), strict=True)
    for grace_s, next_signal in steps:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.wait()
        if process.returncode is not None:
            break
        _signal(process, next_signal)
    _signal(process, signal.SIGTERM)  # child processes that are still running
    stderr_reader.cancel()
    await asyncio.wait({stderr_reader})


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # it was started as the leader of its group
