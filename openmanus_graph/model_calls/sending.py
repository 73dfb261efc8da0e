"""Sends a request to one model: in its server's dialect, with retries, within its rate limit.

All agents of a process, or of many, share the limits of requests and tokens per minute.
"""

import asyncio
import math
import random as _random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.prompt_values import ChatPromptValue
from langgraph.constants import TAG_NOSTREAM

from openmanus_graph.backends.models.chunks import checked_message, merged_message
from openmanus_graph.backends.models.dialects import Dialect
from openmanus_graph.backends.models.failures import Failure, FailureKind, ModelError, classify
from openmanus_graph.backends.models.resolved import CallForm, cache_options
from openmanus_graph.conversation.history import is_cut_text, reasoning_of
from openmanus_graph.conversation.text_calls import SaidStream
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.model_calls.calls_as_text import read_step, steps_request
from openmanus_graph.model_calls.fitting import Fitter, Learning
from openmanus_graph.model_calls.recorder import ProviderRequest
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.state.addresses import RedisUrl
from openmanus_graph.state.model_settings import ModelSettings

if TYPE_CHECKING:
    from limits import RateLimitItem
    from limits.storage import MemoryStorage, RedisStorage
    from limits.strategies import RateLimiter

T = TypeVar("T")

MAX_RETRIES = 5
MAX_RETRIES_BEFORE_ANOTHER = 2
"""If another model can be asked afterwards, and the person has not set a number."""
RETRIES: dict[FailureKind, int] = {"withheld": 1, "page": 1}
"""Of failures by a filter or a proxy, which seldom pass."""
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
LONGEST_WAIT_S, LONGEST_WAIT_BEFORE_ANOTHER_S = 300.0, 20.0
"""A server that asks for a longer pause is not waited for. The second applies if another model can
be asked instead."""


@dataclass(frozen=True)
class RetryLimits:
    """How often, and how long, a failing model is waited for."""

    max_retries: int = MAX_RETRIES
    longest_wait_s: float = LONGEST_WAIT_S
    """The longest pause that a server may ask for."""

    @classmethod
    def of(cls, options: Mapping[str, Any], *, has_alternative: bool = False) -> "RetryLimits":
        """Return the limits by a client's options: `max_retries` counts if it is set.

        ConfigError: the option is not a number of retries.
        """
        usual = MAX_RETRIES_BEFORE_ANOTHER if has_alternative else MAX_RETRIES
        wanted = options.get("max_retries", usual)
        if not (isinstance(wanted, int) and wanted >= 0):
            raise ConfigError(f"model_options.max_retries must be 0 or more, not {wanted!r}.")
        return cls(wanted, LONGEST_WAIT_BEFORE_ANOTHER_S if has_alternative else LONGEST_WAIT_S)


async def with_retries(
    call: Callable[[], Awaitable[T]],
    *,
    notice: Callable[[str], None],
    subject: str,
    limits: RetryLimits,
    asked_to_wait: Callable[[float], Awaitable[None]] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    random: Callable[[], float] = _random.random,
) -> T:
    """Call until it works, with longer pauses each time, while the failures are temporary.

    ModelError: the failure is permanent, or the attempts are used up.

    Args:
        notice: Called before each pause, with one sentence.
        subject: Names the model in sentences.
        asked_to_wait: Called with the seconds that the server asks to wait.
        random: Returns a number from 0 to 1; spreads clients that failed together.
    """
    for attempt in range(1, limits.max_retries + 2):
        try:
            return await call()
        except Exception as error:
            failure = classify(error, subject)
            if failure is None:
                raise
            if asked_to_wait is not None and failure.retry_after_s is not None:
                await asked_to_wait(failure.retry_after_s)
            retries = limits.max_retries
            if failure.kind != "retry":
                retries = min(retries, RETRIES.get(failure.kind, 0))
            if attempt > retries:
                tried = "" if attempt == 1 else f" ({attempt} attempts were made.)"
                raise ModelError(failure.kind, failure.sentence + tried) from error
            pause = _pause_s(failure, attempt, random())
            if pause > limits.longest_wait_s:
                sentence = (
                    f"{failure.sentence} The server asks to wait {pause / 60:.0f} minutes, which "
                    "is too long to wait here; resume the run later, or use another model."
                )
                raise ModelError("retry", sentence) from error
        attempts = f"Attempt {attempt} of {1 + retries} failed"
        notice(f"{failure.event} {attempts}; the next one follows after {pause:.0f} s.")
        await sleep(pause)
    raise ValueError("max_retries must not be negative")


def _pause_s(failure: Failure, attempt: int, spread: float) -> float:
    if failure.retry_after_s is not None:
        # The server's wish is a lower bound; the spread keeps clients from returning at once.
        return failure.retry_after_s + spread
    ceiling: float = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (attempt - 1))
    return (1 + spread) / 2 * ceiling


STEP_TOKENS = 1024
"""The most for a small model's constrained step, by OpenAI's protocol: it may never stop."""


@dataclass
class Sender:
    """Sends the requests of one agent step to models."""

    session_key: str
    step: int
    emit: Emit
    sleep: Callable[[float], Awaitable[object]]
    fitter: Fitter
    rate_limits_in: RedisUrl | None = None
    """Where processes count requests and tokens per minute together."""
    expected_tokens: int = 0
    """Of a request and its reply, for the rate limit."""
    has_alternative: bool = False
    """Whether another model is asked if this one fails."""
    attempts: int = 0
    is_internal: bool = False
    """Whether the reply is no part of the conversation: LangGraph's `messages` stream omits it."""

    async def send(self, request: ProviderRequest) -> AIMessage:
        """Return the reply. Learns from refusals and odd replies what the server accepts.

        ModelError: the call failed for good.
        """
        model = request.model
        of_session = cache_options(model.client, self.session_key)
        learning = Learning(request, {*model.parameters, *of_session})
        while True:
            form = _call_form(request, learning.now)
            asked = _as_steps(request) if form == "constrained" else request
            fitted = self.fitter.fitted(asked, learning.now, as_text=form == "text")
            # The tokens of a constrained step are JSON, which no person reads.
            emit: Emit = (lambda _: None) if form == "constrained" else self.emit
            try:
                options = {**of_session, **fitted.options}
                reply = await self._send_with_retries(fitted, options, learning.now, emit)
            except ModelError as error:
                learning.learn(error, asked, partial(notice, self.emit))
                continue
            step = read_step(reply, request.tools) if form == "constrained" else reply
            if step is None and is_cut_text(reply):  # no part of it can be read
                step = reply.model_copy(update={"content": ""})
            elif step is None:
                learning.unlearn(constrains=False)
            if "tool_choice" in fitted.options and not (
                reply.tool_calls or reply.invalid_tool_calls
            ):
                learning.unlearn(forces=False)
            await model.dialect.learn(learning.now, learning.lasting)
            return step or reply

    async def _send_with_retries(
        self, request: ProviderRequest, options: Mapping[str, Any], dialect: Dialect, emit: Emit
    ) -> AIMessage:
        model = request.model
        rate_limit = RateLimit.of(model.settings, self.emit, self.rate_limits_in)

        async def attempt() -> AIMessage:
            if rate_limit is not None:
                await rate_limit.wait(self.expected_tokens, model.name, self.sleep)
            if self.attempts:  # voids the tokens of the one before
                self.emit({"type": "think_start", "step": self.step})
            self.attempts += 1
            try:
                client = model.bound(request.tools, options, dialect)
            except NotImplementedError as error:
                raise ModelError("no_tools", f"{model.name} takes no tools.") from error
            tags = [TAG_NOSTREAM] if self.is_internal else []
            reply = await _stream(client, request.messages, emit, tags)
            if rate_limit is not None:
                await rate_limit.count(reply, self.expected_tokens)
            return reply

        return await with_retries(
            attempt,
            notice=lambda text: notice(self.emit, text),
            subject=model.name,
            limits=RetryLimits.of(model.settings.options, has_alternative=self.has_alternative),
            sleep=self.sleep,
            asked_to_wait=None if rate_limit is None else rate_limit.hold,
        )


def _call_form(request: ProviderRequest, dialect: Dialect) -> CallForm:
    """Return how a request asks for calls. One that names its tool, or has none, has no steps."""
    form = request.model.call_form(dialect)
    steps = request.tools and request.options.get("tool_choice", "any") == "any"
    return dialect.tools if form == "constrained" and not steps else form


def _as_steps(request: ProviderRequest) -> ProviderRequest:
    messages, schema = steps_request(
        request.messages, request.tools, request.history, only_answer=request.only_answer
    )
    kept = {key: value for key, value in request.options.items() if key != "tool_choice"}
    if request.model.wire == "ollama":
        options = {**kept, "format": schema}
    else:
        limits = {"max_tokens", "max_completion_tokens"}
        if request.model.is_small and not limits & request.model.parameters:
            kept["max_tokens"] = STEP_TOKENS
        wanted = {"name": "step", "strict": True, "schema": schema}
        options = {**kept, "response_format": {"type": "json_schema", "json_schema": wanted}}
    return replace(request, messages=messages, tools=(), options=options)


async def _stream(
    model: BaseChatModel, request: list[BaseMessage], emit: Emit, tags: list[str]
) -> AIMessage:
    chunks, unstreamed, said = list[AIMessageChunk](), None, SaidStream()
    # LangChain would convert each message of a plain list again.
    ready = ChatPromptValue.model_construct(messages=request)
    # Read to the end, even if a model does not stream: else the event loop would have to close
    # LangChain's generators.
    async for piece in cast("AsyncIterator[AIMessage]", model.astream(ready, {"tags": tags})):
        whole = None if isinstance(piece, AIMessageChunk) else checked_message(piece)
        text = said.add((whole or piece).text)
        if thought := reasoning_of(whole or piece) or said.thought:
            emit({"type": "reasoning", "text": thought})
        if text:
            emit({"type": "token", "text": text})
        if whole is None:
            chunks.append(cast("AIMessageChunk", piece))
        else:
            unstreamed = whole
    if text := said.rest():
        emit({"type": "token", "text": text})
    return merged_message(chunks) if unstreamed is None else unstreamed


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

    Each limit comes with whether it counts tokens or requests. Many processes count together in
    `shared`; without it this one counts alone.
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

        The tokens are the expected ones, of the request and its reply. What `sleep` raises ends the
        wait. ConfigError: the counts are to be shared, and Redis's client is missing or refuses the
        address.
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
