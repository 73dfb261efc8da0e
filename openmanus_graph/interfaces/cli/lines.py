"""Lines from stdin, without blocking the event loop."""

import asyncio
import os
import sys


class Lines:
    """Reads stdin, a terminal's or a pipe's, line by line."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._buffer = b""
        self._ended = False
        self.interactive = sys.stdin.isatty() and sys.stderr.isatty()

    async def ask(self, prompt: str) -> str | None:
        """Return the next line, None at the end. Only a terminal is shown the prompt."""
        if self.interactive:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        while b"\n" not in self._buffer and not self._ended:
            await self._readable()
            piece = os.read(self._descriptor, 65536)
            self._buffer += piece
            self._ended = not piece
        line, newline, self._buffer = self._buffer.partition(b"\n")
        if not line and not newline:
            return None
        return line.decode("utf-8", "replace")

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:
            return  # a file, which is always readable
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
