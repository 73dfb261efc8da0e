"""Tasks of a browser session that nobody awaits."""

import asyncio
from collections.abc import Awaitable
from typing import Any


class BackgroundTasks:
    """Keeps references to tasks until they end, and drops what they raise."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def spawn(self, awaitable: Awaitable[Any]) -> None:
        """Start a task."""
        task = asyncio.ensure_future(awaitable)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    async def wait(self, limit_s: float) -> None:
        """Wait for the running tasks, for a bounded time."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)

    def cancel(self) -> None:
        """Cancel the running tasks."""
        for task in self._tasks:
            task.cancel()

    def _on_done(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
