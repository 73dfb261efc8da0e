"""Progress notifications, so that a client does not time out during a long call."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
from mcp.server.session import ServerSession

from openmanus_graph.interfaces.service.runs import progress_text

INTERVAL_S = 1.0
QUICK_REPORTS = 10
SLOW_INTERVAL_S = 5.0
"""After `QUICK_REPORTS` notifications."""


class Progress:
    """Progress notifications of one request: elapsed seconds and a text."""

    def __init__(self, session: ServerSession, *, wanted: bool) -> None:
        self._session = session
        self._wanted = wanted
        self._began = time.monotonic()
        self._last_seconds = -1.0
        self._words: asyncio.Queue[str] = asyncio.Queue()

    def note(self, words: str) -> None:
        """Send a text soon, if the client wants progress."""
        if self._wanted:
            self._words.put_nowait(words)

    @contextlib.asynccontextmanager
    async def reporting(self, words: str) -> AsyncGenerator[None]:
        """Send the noted texts meanwhile, and repeat the last one when there is nothing new."""
        if not self._wanted:
            yield
            return
        await self._report(words)
        reporter = asyncio.create_task(self._keep_reporting(words))
        try:
            yield
            while not self._words.empty():
                await self._report(self._words.get_nowait())
        finally:
            reporter.cancel()

    async def _keep_reporting(self, words: str) -> None:
        reports = 0
        while True:
            interval = INTERVAL_S if reports < QUICK_REPORTS else SLOW_INTERVAL_S
            try:
                words = await asyncio.wait_for(self._words.get(), interval)
            except TimeoutError:
                reports += 1
            await self._report(words)

    async def _report(self, words: str) -> None:
        seconds = max(round(time.monotonic() - self._began, 1), self._last_seconds + 0.001)
        self._last_seconds = seconds
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.report_progress(seconds, message=words)


def call_progress(event: Mapping[str, Any], max_steps: int) -> str | None:
    """Return a line about an event of a run; None for events that get no line."""
    match event["type"]:
        case "think_start":
            return f"Step {event['step']} of at most {max_steps}: thinking."
        case "tool_end" if event["ok"]:
            return f"{event['tool']} is done."
        case _:
            return progress_text(event)
