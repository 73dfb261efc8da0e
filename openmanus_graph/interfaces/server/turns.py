"""Whose run works next: the users take turns, each within his quota of runs.

LangGraph's server starts all queued runs, in one event loop; here they wait.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

LOOK_S = 0.5
"""Between two looks for runs that nothing announces: those that waited for one on their thread."""


class Turns:
    """The turns of this process, for so many runs (`jobs`) at the same time."""

    def __init__(self, jobs: float) -> None:
        self._jobs = jobs
        self.running = Counter[str]()
        """Runs that work, by user."""
        self.waiting = dict[str, list[tuple[float, asyncio.Future[None]]]]()
        """By user, the next one first: how many runs he may have, and what begins each."""

    @contextlib.asynccontextmanager
    async def turn(self, owner: str, most: float) -> AsyncGenerator[None]:
        """Wait until a user's run may work beside `most - 1` others of his, and hold its place."""
        begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(owner, []).append((most, begins))
        self._begin_next()
        try:
            await begins
            yield
        finally:
            self.running[owner] -= not begins.cancelled()
            self._begin_next()

    def _begin_next(self) -> None:
        """Begin what may work now, a run of each user in rotation."""
        for owner, known in list(self.waiting.items()):
            left = [(most, begins) for most, begins in known if not begins.cancelled()]
            self.waiting[owner] = left
            if not left:
                del self.waiting[owner]
        while self.running.total() < self._jobs:
            ready = [one for one in self.waiting if self.running[one] < self.waiting[one][0][0]]
            if not ready:
                return
            (_, begins), *others = self.waiting.pop(ready[0])
            if others:
                self.waiting[ready[0]] = others  # he is the last one now
            self.running[ready[0]] += 1
            begins.set_result(None)


def begin_at_once(runs: Any) -> None:
    """Make LangGraph's server begin a new run at once: it looks twice a second, and a look late.

    `runs` are its operations on runs in memory, a class without types.
    """
    arrived, put, take = asyncio.Event(), runs.put, runs.next

    async def put_and_wake(*args: Any, **options: Any) -> Any:
        created = await put(*args, **options)
        arrived.set()
        return created

    async def take_at_once(wait: bool, limit: int = 1) -> AsyncGenerator[Any]:
        if wait:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(arrived.wait(), LOOK_S)
        arrived.clear()
        async for taken in take(wait=False, limit=limit):
            yield taken

    runs.put, runs.next = put_and_wake, take_at_once
