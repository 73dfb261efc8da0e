"""The process's stdin and stdout for servers that speak a protocol over them."""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

PARSE_ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n'
"""JSON-RPC's answer to a line that is no message."""
FLUSH_S = 2.0
"""Seconds that a client gets to read the last messages."""


class StdioPipes:
    """The process's stdin and stdout, reserved for the protocol."""

    def __init__(self) -> None:
        self._reading, self._writing = os.dup(0), os.dup(1)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # Daemons: they may be waiting for the client when the process ends.
        self._writer = threading.Thread(target=self._write, daemon=True, name="stdout")
        self._writer.start()

    def send(self, data: bytes) -> None:
        """Queue data to be sent; does not wait."""
        self._outgoing.put(data)

    def flush(self) -> None:
        """Send what is queued, and stop. Blocks."""
        self._outgoing.put(None)
        self._writer.join(FLUSH_S)

    def listen(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Queue[bytes | None]":
        """Return a queue that gets each line of the client, and None when it has hung up."""
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        def read() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody listens
                with contextlib.suppress(OSError):
                    for line in self._lines():
                        loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, None)

        threading.Thread(target=read, daemon=True, name="stdin").start()
        return lines

    def _lines(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        while piece := os.read(self._reading, 1 << 16):
            first, *others = piece.split(b"\n")
            pieces.append(first)
            for other in others:
                yield b"".join(pieces)
                pieces = [other]
        yield b"".join(pieces)

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the client has hung up
            while (data := self._outgoing.get()) is not None:
                while data:
                    data = data[os.write(self._writing, data) :]
