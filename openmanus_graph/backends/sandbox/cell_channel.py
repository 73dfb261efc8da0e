"""The host's side of the object `tools` in Python cells.

`cell_tools.py` describes the lines. What comes from the sandbox is untrusted.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openmanus_graph.runtime.tool_runtime import CellCalls

_MOST_REQUEST_BYTES = 16 << 20
_ENDING_S = 5.0
"""Seconds that code has to end when its cell is stopped. Then it is interrupted."""
_ANSWER_S = 60.0
"""Seconds that the Python process has to answer, on a busy machine too."""


class NoAnswerError(Exception):
    """The Python process does not answer on its connection."""


@contextlib.asynccontextmanager
async def cell_channel(
    connection: socket.socket, calls: CellCalls, interrupt: threading.Event
) -> AsyncGenerator["CellChannel"]:
    """Serve the calls of a cell that runs in the block. At its end, no call runs any more.

    `interrupt` interrupts the code. NoAnswerError: it cannot begin.
    """
    reader, writer = await asyncio.open_unix_connection(
        sock=connection.dup(), limit=_MOST_REQUEST_BYTES
    )
    channel = CellChannel(reader, writer, calls, interrupt)
    try:
        cell = time.monotonic_ns()
        channel.send({"cell": cell, "tools": calls.described})
        try:
            async with asyncio.timeout(_ANSWER_S):
                # Other lines are late ones, of earlier cells.
                while (line := await reader.readline()) != b'{"ready": %d}\n' % cell:
                    if not line:
                        raise NoAnswerError
        except (OSError, ValueError) as error:  # also of the time limit
            raise NoAnswerError from error
        channel.serving = asyncio.create_task(channel.serve())
        yield channel
    finally:
        if channel.timer is not None:
            channel.timer.cancel()
        running = [one for one in (channel.serving, *channel.tasks) if one and not one.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_ENDING_S)
        writer.close()


@dataclass
class CellChannel:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    calls: CellCalls
    interrupt: threading.Event
    serving: asyncio.Task[None] | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """One for each call."""
    timer: asyncio.TimerHandle | None = None
    ended: bool = False

    async def finish(self, wait_s: float) -> None:
        """Wait for the calls that the code has made. The block's end cancels late ones.

        Raises whatever a call raised that is no observation.
        """
        self._end(stopped=False)
        if self.serving is not None:
            await asyncio.wait({self.serving}, timeout=_ANSWER_S)  # for its last line
        if self.tasks:
            done, _ = await asyncio.wait(self.tasks, timeout=wait_s)
            for task in done:
                task.result()

    async def serve(self) -> None:
        try:
            while line := await self.reader.readline():
                message: dict[str, Any] = json.loads(line)
                if message.get("closed"):
                    return
                for call in message["calls"]:
                    number = int(call["n"])
                    work = self.calls.admit(str(call["tool"]), dict(call["args"]))
                    if work is None:
                        self._end(stopped=True)
                        break
                    self.tasks.add(asyncio.create_task(self._answer(number, work)))
        except (ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError):
            self.calls.stopped = "it sent something that is no call"
            self._end(stopped=True)

    async def _answer(self, number: int, work: Awaitable[Mapping[str, Any] | None]) -> None:
        result = None
        try:
            result = await work
        finally:
            if result is None:
                self._end(stopped=True)
        if result is not None:
            self.send({"n": number, **result})
            with contextlib.suppress(OSError):
                await self.writer.drain()

    def _end(self, *, stopped: bool) -> None:
        """Have the kernel refuse further calls. If `stopped`, its code has to end soon."""
        if not self.ended:
            self.ended = True
            self.send({"end": self.calls.stopped, "stopped": stopped})
            if stopped:
                loop = asyncio.get_running_loop()
                self.timer = loop.call_later(_ENDING_S, self.interrupt.set)

    def send(self, message: Mapping[str, Any]) -> None:
        self.writer.write(json.dumps(message, default=str).encode() + b"\n")
