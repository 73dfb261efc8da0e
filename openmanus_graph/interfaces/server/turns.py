"""Whose run works next: the users take turns, each within his quota of runs.

LangGraph's server starts all queued runs, in one event loop; here they wait.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator


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
