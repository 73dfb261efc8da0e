"""Keeping threads' kernels, shells and browsers open between a client's messages."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from openmanus_graph.registry import IDLE_S, open_session


@dataclass
class _Kept:
    stack: contextlib.AsyncExitStack
    users: int = 0
    idle: asyncio.TimerHandle | None = None


@dataclass
class Keeper:
    """Owns threads while their clients may come back."""

    idle_s: float = IDLE_S
    _kept: dict[str, _Kept] = field(default_factory=dict[str, _Kept])
    _closing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @contextlib.asynccontextmanager
    async def holding(self, thread: str) -> AsyncGenerator[None]:
        """Use a thread; it is let go of when nobody has used it for the idle time."""
        kept = self._kept.get(thread)
        if kept is None:
            kept = self._kept[thread] = _Kept(contextlib.AsyncExitStack())
            await kept.stack.enter_async_context(open_session(thread))
        if kept.idle is not None:
            kept.idle.cancel()
        kept.users += 1
        try:
            yield
        finally:
            kept.users -= 1
            if not kept.users:
                loop = asyncio.get_running_loop()
                kept.idle = loop.call_later(self.idle_s, self._let_go, thread)

    async def close(self) -> None:
        """Let go of all threads."""
        for thread in list(self._kept):
            self._let_go(thread)
        if self._closing:
            await asyncio.wait(self._closing)

    def _let_go(self, thread: str) -> None:
        kept = self._kept.pop(thread)
        if kept.idle is not None:
            kept.idle.cancel()
        closing = asyncio.ensure_future(kept.stack.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
