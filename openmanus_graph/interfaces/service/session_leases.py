"""Leases on threads' sessions, which keep them open between a client's messages."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from openmanus_graph.runtime.session_registry import IDLE_S, open_session


@dataclass
class _Lease:
    stack: contextlib.AsyncExitStack
    users: int = 0
    idle: asyncio.TimerHandle | None = None


@dataclass
class SessionLeases:
    """Owns the sessions of threads until these have not been used for the idle time."""

    idle_s: float = IDLE_S
    _leases: dict[str, _Lease] = field(default_factory=dict[str, _Lease])
    _closing: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @contextlib.asynccontextmanager
    async def lease(self, thread: str) -> AsyncGenerator[None]:
        """Use a thread's session; it is closed after the idle time without use."""
        lease = self._leases.get(thread)
        if lease is None:
            lease = self._leases[thread] = _Lease(contextlib.AsyncExitStack())
            await lease.stack.enter_async_context(open_session(thread))
        if lease.idle is not None:
            lease.idle.cancel()
        lease.users += 1
        try:
            yield
        finally:
            lease.users -= 1
            if not lease.users:
                loop = asyncio.get_running_loop()
                lease.idle = loop.call_later(self.idle_s, self._release, thread)

    async def close(self) -> None:
        """Release all sessions, and wait until they are closed."""
        for thread in list(self._leases):
            self._release(thread)
        if self._closing:
            await asyncio.wait(self._closing)

    def _release(self, thread: str) -> None:
        lease = self._leases.pop(thread)
        if lease.idle is not None:
            lease.idle.cancel()
        closing = asyncio.ensure_future(lease.stack.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
