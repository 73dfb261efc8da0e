"""Sentences about the browser that the next observation has."""

import asyncio
import contextlib

MAX_NOTICES = 30


class PendingNotices:
    """Sentences to add to the next observation, each once."""

    def __init__(self) -> None:
        self._notices: list[str] = []
        self._added = asyncio.Event()

    def add(self, text: str) -> None:
        """Add a notice; dropped when there are too many."""
        if len(self._notices) < MAX_NOTICES:
            self._notices.append(text)
        self._added.set()

    def take(self) -> list[str]:
        """Return the notices in order and clear them."""
        notices, self._notices = list(dict.fromkeys(self._notices)), []
        self._added.clear()
        return notices

    async def wait(self, limit_s: float) -> list[str]:
        """Wait for a notice, at most that long, and return all there are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._added.wait()
        return self.take()
