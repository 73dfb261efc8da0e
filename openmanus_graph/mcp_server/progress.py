"""Telling a client that its call goes on, so that it neither wonders nor gives up."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
from mcp.server.session import ServerSession

BEAT_S = 1.0
QUICK_BEATS = 10
SLOW_BEAT_S = 5.0
"""After so many quick ones."""


class Progress:
    """Progress notifications of one request: seconds, which only grow, and words."""

    def __init__(self, session: ServerSession, *, wanted: bool) -> None:
        self._session = session
        self._wanted = wanted
        self._began = time.monotonic()
        self._told = -1.0
        self._words: asyncio.Queue[str] = asyncio.Queue()

    def note(self, words: str) -> None:
        """Have something told soon, if the client wants to know."""
        if self._wanted:
            self._words.put_nowait(words)

    @contextlib.asynccontextmanager
    async def told(self, words: str) -> AsyncGenerator[None]:
        """Tell what is noted meanwhile; when there is nothing new, the last words again."""
        if not self._wanted:
            yield
            return
        await self._tell(words)
        telling = asyncio.create_task(self._keep_telling(words))
        try:
            yield
            while not self._words.empty():
                await self._tell(self._words.get_nowait())
        finally:
            telling.cancel()

    async def _keep_telling(self, words: str) -> None:
        beats = 0
        while True:
            beat = BEAT_S if beats < QUICK_BEATS else SLOW_BEAT_S
            try:
                words = await asyncio.wait_for(self._words.get(), beat)
            except TimeoutError:
                beats += 1
            await self._tell(words)

    async def _tell(self, words: str) -> None:
        seconds = max(round(time.monotonic() - self._began, 1), self._told + 0.001)
        self._told = seconds
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.report_progress(seconds, message=words)


def words_of(event: Mapping[str, Any], max_steps: int) -> str | None:
    """Say in a line what an event of a run tells; None for one that is not worth a line."""
    match event["type"]:
        case "think_start":
            return f"Step {event['step']} of at most {max_steps}: thinking."
        case "tool_start":
            return f"Runs {event['tool']}."
        case "tool_end":
            return f"{event['tool']} {'is done' if event['ok'] else 'failed'}."
        case "step_start" | "step_end":
            return f"Plan step {event['id']}: {event['status']}."
        case "notice":
            return str(event["text"])
        case _:
            return None
