"""Requests and tokens per minute, by all agents of the process together."""

import math
import threading
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage

from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.state.model_settings import ModelSettings

if TYPE_CHECKING:
    from limits import RateLimitItem
    from limits.strategies import SlidingWindowCounterRateLimiter

LONGEST_PAUSE_S = 5.0
"""After it the limit is asked again: others have moved on meanwhile."""
LEAST_PAUSE_S = 0.05

_held_until: dict[str, float] = {}
"""Until when no request is sent, on the monotonic clock: a server has asked to wait."""
_lock = threading.Lock()


class RateLimit:
    """The limit that one model's requests share with others at the same server."""

    def __init__(self, server: str, limits: "list[tuple[RateLimitItem, bool]]") -> None:
        """Make a limit.

        Args:
            server: Whose requests count together.
            limits: Each with whether it counts tokens; else it counts requests.
        """
        self._server, self._limits = server, limits

    @classmethod
    def of(cls, model: ModelSettings) -> "RateLimit | None":
        """Return a model's limit; None if it has none."""
        if model.requests_per_minute is None and model.tokens_per_minute is None:
            return None
        from limits import RateLimitItemPerMinute

        name = model.model if isinstance(model.model, str) else type(model.model).__name__
        server = f"{name.partition(':')[0]} {model.base_url or ''}"
        limits: list[tuple[RateLimitItem, bool]] = []
        if model.requests_per_minute is not None:
            limits.append((RateLimitItemPerMinute(model.requests_per_minute), False))
        if model.tokens_per_minute is not None:
            limits.append((RateLimitItemPerMinute(model.tokens_per_minute, 1, "tokens"), True))
        return cls(server, limits)

    async def wait(
        self,
        tokens: int,
        subject: str,
        emit: Emit,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        """Wait until a request may be sent, and count it.

        Args:
            tokens: That it will take, with its reply.
            subject: How the notice of the wait names the model.
            emit: Takes that notice, once.
            sleep: Waits so many seconds; what it raises ends the wait.
        """
        told = False
        while (wait_s := self._take(tokens)) > 0:
            if not told:
                told = True
                reason = "its server has asked to wait" if self._held_s() > 0 else "its rate limit"
                notice(emit, f"{subject} is asked in about {wait_s:.0f} s: {reason}.", "info")
            await sleep(max(LEAST_PAUSE_S, min(wait_s, LONGEST_PAUSE_S)))

    def hold(self, seconds: float) -> None:
        """Let no request be sent for so long: the server has asked for it."""
        with _lock:
            until = time.monotonic() + seconds
            _held_until[self._server] = max(until, _held_until.get(self._server, 0))

    def count(self, reply: AIMessage, expected_tokens: int) -> None:
        """Count what a reply took more than was expected."""
        used = reply.usage_metadata["total_tokens"] if reply.usage_metadata else 0
        excess = used - expected_tokens
        for item, counts_tokens in self._limits:
            if counts_tokens and excess > 0:
                left = _limiter().get_window_stats(item, self._server).remaining
                _limiter().hit(item, self._server, cost=min(excess, left))

    def _take(self, tokens: int) -> float:
        """Count a request and return 0, or return how many seconds to wait for that."""
        with _lock:
            if (held_s := self._held_s()) > 0:
                return held_s
            costs = [
                (item, min(tokens, item.amount) if counts_tokens else 1)
                for item, counts_tokens in self._limits
            ]
            full = [
                item for item, cost in costs if not _limiter().test(item, self._server, cost=cost)
            ]
            for item, cost in () if full else costs:
                _limiter().hit(item, self._server, cost=cost)
            return max((self._reset_s(item) for item in full), default=0.0)

    def _held_s(self) -> float:
        return max(0.0, _held_until.get(self._server, -math.inf) - time.monotonic())

    def _reset_s(self, item: "RateLimitItem") -> float:
        """Return after how many seconds some room is free again; never 0."""
        reset_at = _limiter().get_window_stats(item, self._server).reset_time
        return max(LEAST_PAUSE_S, reset_at - time.time())


@cache
def _limiter() -> "SlidingWindowCounterRateLimiter":
    from limits.storage import MemoryStorage
    from limits.strategies import SlidingWindowCounterRateLimiter

    return SlidingWindowCounterRateLimiter(MemoryStorage())
