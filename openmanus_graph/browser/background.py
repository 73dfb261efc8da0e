"""Work of a window that goes on while nobody waits for it."""

import asyncio
from collections.abc import Awaitable
from typing import Any


class Background:
    """Holds tasks until they end; what they raise is nobody's any more."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def keep(self, work: Awaitable[Any]) -> None:
        """Let something go on by itself."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def finish(self, limit_s: float) -> None:
        """Wait for what goes on, for a bounded time."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)

    def stop(self) -> None:
        """Cancel what goes on."""
        for task in self._tasks:
            task.cancel()

    def _done(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: nobody is left to hear of it
