"""Limits of requests and tokens per minute, shared by all agents of the process, or of many."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.state.addresses import RedisUrl
from openmanus_graph.state.model_settings import ModelSettings

if TYPE_CHECKING:
    from limits import RateLimitItem
    from limits.storage import MemoryStorage, RedisStorage
    from limits.strategies import RateLimiter

MINUTE_S = 61
"""A second longer, as some requests take longer than others to arrive."""
LONGEST_PAUSE_S = 5.0
LEAST_PAUSE_S = 0.05
REDIS_TIMEOUT_S = 2
REDIS_PAUSE_S = 30

_asked_again_at: dict[RedisUrl, float] = {}
_Wait = tuple[float, str]
"""Seconds to wait, and why."""


class RateLimit:
    """The limit that one model's requests share with others at the same server.

    Args:
        server: Whose requests count together.
        limits: Each with whether it counts tokens; else it counts requests.
        shared: Where many processes count together; None: this one counts alone.
    """

    def __init__(
        self,
        server: str,
        limits: "Sequence[tuple[RateLimitItem, bool]]",
        emit: Emit,
        shared: RedisUrl | None = None,
    ) -> None:
        self._server, self._limits, self._emit, self._shared = server, limits, emit, shared

    @classmethod
    def of(
        cls, model: ModelSettings, emit: Emit, shared: RedisUrl | None = None
    ) -> "RateLimit | None":
        if model.requests_per_minute is None and model.tokens_per_minute is None:
            return None
        from limits import RateLimitItemPerMinute, RateLimitItemPerSecond

        name = model.model if isinstance(model.model, str) else type(model.model).__name__
        limits: list[tuple[RateLimitItem, bool]] = []
        if model.requests_per_minute is not None:
            limits.append((RateLimitItemPerSecond(model.requests_per_minute, MINUTE_S), False))
        if model.tokens_per_minute is not None:
            limits.append((RateLimitItemPerMinute(model.tokens_per_minute, 1, "tokens"), True))
        return cls(f"{name.partition(':')[0]} {model.base_url or ''}", limits, emit, shared)

    async def wait(
        self, tokens: int, subject: str, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        """Wait until a request may be sent, and count it.

        Args:
            tokens: The expected ones, of the request and its reply.
            subject: Names the model in the notice.
            sleep: Waits so many seconds; what it raises ends the wait.

        Raises:
            ConfigError: The counts are to be shared, and Redis's client is missing or refuses
                the address.
        """
        reported = False
        while wait := await self._with_counts(lambda counts: counts.take(tokens)):
            seconds, why = wait
            if not reported:
                reported = True
                notice(self._emit, f"{subject} is asked in about {seconds:.0f} s: {why}.", "info")
            await sleep(max(LEAST_PAUSE_S, min(seconds, LONGEST_PAUSE_S)))

    async def hold(self, seconds: float) -> None:
        await self._with_counts(lambda counts: counts.hold(seconds))

    async def count(self, reply: AIMessage, expected_tokens: int) -> None:
        """Count the tokens of a reply that were not expected."""
        used = reply.usage_metadata["total_tokens"] if reply.usage_metadata else 0
        excess = used - expected_tokens
        if excess > 0 and any(counts_tokens for _, counts_tokens in self._limits):
            await self._with_counts(lambda counts: counts.add_tokens(excess))

    async def _with_counts(self, count: "Callable[[_Counts], _Wait | None]") -> "_Wait | None":
        """Count in Redis, or for this process alone if it cannot be reached."""
        shared, own = self._shared, _Counts(_own_storage(), self._server, self._limits)
        if shared is None or time.monotonic() < _asked_again_at.get(shared, -math.inf):
            return count(own)
        from limits.errors import StorageError

        try:
            storage = await asyncio.to_thread(_redis_storage, shared)
            counts = _Counts(storage, self._server, self._limits)
            if (wait := await asyncio.to_thread(count, counts)) is not None:
                return wait
        except StorageError as error:
            now = time.monotonic()
            if now >= _asked_again_at.get(shared, -math.inf):  # once for all agents of the process
                _asked_again_at[shared] = now + REDIS_PAUSE_S
                why = type(error.storage_error).__name__
                notice(
                    self._emit,
                    f"The rate limit cannot be shared: {shared} ({why}). Each process counts alone "
                    f"until it is reached; it is tried every {REDIS_PAUSE_S} s. Check the address "
                    "in [storage] rate_limit_url, and that Redis runs there.",
                    "error",
                )
            return count(own)
        count(own)  # which continues from there if Redis fails
        return None


class _Counts:
    """The requests to one server, in the memory of this process or in Redis. Methods block."""

    def __init__(
        self,
        storage: "MemoryStorage | RedisStorage",
        server: str,
        limits: "Sequence[tuple[RateLimitItem, bool]]",
    ) -> None:
        from limits.strategies import MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

        # Each request is stored, but single tokens would be too many.
        requests = MovingWindowRateLimiter(storage)
        tokens = SlidingWindowCounterRateLimiter(storage)
        self._limits: list[tuple[RateLimiter, RateLimitItem, bool]] = [
            (tokens if of_tokens else requests, item, of_tokens) for item, of_tokens in limits
        ]
        self._storage, self._server = storage, server
        self._held = f"openmanus held {server}"

    def take(self, tokens: int) -> _Wait | None:
        """Count a request and return None, or return how long to wait for it."""
        if (held_s := self._held_s()) > 0:
            return held_s, "its server has asked to wait"
        server = self._server
        costs = [
            (limiter, item, min(tokens, item.amount) if counts_tokens else 1)
            for limiter, item, counts_tokens in self._limits
        ]
        full = [one for one in costs if not one[0].test(one[1], server, cost=one[2])]
        # Another agent may have been faster since the test.
        full = full or [one for one in costs if not one[0].hit(one[1], server, cost=one[2])]
        resets = [limiter.get_window_stats(item, server).reset_time for limiter, item, _ in full]
        if not resets:
            return None
        return max(LEAST_PAUSE_S, max(resets) - time.time()), "its rate limit"

    def hold(self, seconds: float) -> None:
        if seconds > self._held_s():
            self._storage.clear(self._held)
            self._storage.incr(self._held, math.ceil(seconds))

    def add_tokens(self, tokens: int) -> None:
        for limiter, item, counts_tokens in self._limits:
            if counts_tokens:
                left = limiter.get_window_stats(item, self._server).remaining
                limiter.hit(item, self._server, cost=min(tokens, left))

    def _held_s(self) -> float:
        if not self._storage.get(self._held):
            return 0.0
        return max(LEAST_PAUSE_S, self._storage.get_expiry(self._held) - time.time())


@cache
def _own_storage() -> "MemoryStorage":
    from limits.storage import MemoryStorage

    return MemoryStorage()


@cache
def _redis_storage(url: RedisUrl) -> "RedisStorage":
    """Return a client that has not connected yet. ConfigError as `RateLimit.wait`."""
    try:
        from limits.storage import RedisStorage
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise ConfigError(
            f"[storage] rate_limit_url needs the extra `redis`. {install_extra('redis')}"
        ) from error
    options: dict[str, Any] = {  # limits passes them on, and declares fewer types than Redis takes
        "socket_timeout": REDIS_TIMEOUT_S,
        "socket_connect_timeout": REDIS_TIMEOUT_S,
        "retry": Retry(NoBackoff(), 1),
    }
    try:
        storage = RedisStorage(url.secret.get_secret_value(), wrap_exceptions=True, **options)
        client: Any = storage.get_connection()  # limits declares a part of Redis's client
        client.connection_pool.make_connection()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"[storage] rate_limit_url, {url}, has an option that Redis's client does not take. "
            "Remove the part after the question mark."
        ) from error
    return storage
