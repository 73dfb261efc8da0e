"""Repeats a model call that failed for a passing reason, with pauses that grow."""

import asyncio
import random as _random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from openmanus_graph.backends.models.failures import Failure, FailureKind, ModelError, classify
from openmanus_graph.errors import ConfigError

T = TypeVar("T")

MAX_RETRIES = 5
MAX_RETRIES_BEFORE_ANOTHER = 2
"""Where another model is asked afterwards, and the person has not set how many."""
RETRIES: dict[FailureKind, int] = {"withheld": 1, "page": 1}
"""Of failures by a filter or a proxy that may be passing, and mostly are not."""
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
LONGEST_WAIT_S, LONGEST_WAIT_BEFORE_ANOTHER_S = 300.0, 20.0
"""A server that asks for a longer pause is not waited for; the latter where another model is asked
instead."""


@dataclass(frozen=True)
class RetryLimits:
    """How often, and how long, a failing model is waited for."""

    max_retries: int = MAX_RETRIES
    """The first attempt is none."""
    longest_wait_s: float = LONGEST_WAIT_S
    """That the server may ask for."""

    @classmethod
    def of(cls, options: Mapping[str, Any], *, has_alternative: bool = False) -> "RetryLimits":
        """Return a model's limits: its option `max_retries` counts if it is set.

        Args:
            options: Of the model's client.
            has_alternative: Whether another model is asked afterwards.

        Raises:
            ConfigError: The option is no number of retries.
        """
        usual = MAX_RETRIES_BEFORE_ANOTHER if has_alternative else MAX_RETRIES
        wanted = options.get("max_retries", usual)
        if not (isinstance(wanted, int) and wanted >= 0):
            raise ConfigError(f"model_options.max_retries must be 0 or more, not {wanted!r}.")
        return cls(wanted, LONGEST_WAIT_BEFORE_ANOTHER_S if has_alternative else LONGEST_WAIT_S)


USUAL_LIMITS = RetryLimits()


async def with_retries(
    call: Callable[[], Awaitable[T]],
    *,
    notice: Callable[[str], None],
    subject: str = "The model",
    limits: RetryLimits = USUAL_LIMITS,
    asked_to_wait: Callable[[float], Awaitable[None]] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    random: Callable[[], float] = _random.random,
) -> T:
    """Call until it works, waiting longer each time, as long as the failures are passing ones.

    Args:
        call: Makes one attempt.
        notice: Called before each pause, with one sentence.
        subject: How sentences name the model.
        limits: How often and how long the model is waited for.
        asked_to_wait: Called with the seconds that the server asks to wait.
        sleep: Waits that many seconds.
        random: A number from 0 to 1; spreads clients that failed together.

    Raises:
        ModelError: The failure does not pass, or the attempts are used up.
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
            max_attempts = 1 + retries
            if attempt >= max_attempts:
                tried = "" if attempt == 1 else f" ({attempt} attempts were made.)"
                raise ModelError(failure.kind, failure.sentence + tried) from error
            pause = _pause_s(failure, attempt, random())
            if pause > limits.longest_wait_s:
                sentence = (
                    f"{failure.sentence} The server asks to wait {pause / 60:.0f} minutes, which "
                    "is too long to wait here; resume the run later, or use another model."
                )
                raise ModelError("retry", sentence) from error
        notice(
            f"{failure.event} Attempt {attempt} of {max_attempts}; the next one in {pause:.0f} s."
        )
        await sleep(pause)
    raise ValueError("max_retries must not be negative")


def _pause_s(failure: Failure, attempt: int, spread: float) -> float:
    if failure.retry_after_s is not None:
        # The server's wish is a lower bound; the spread keeps a crowd from returning at once.
        return failure.retry_after_s + spread
    ceiling: float = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (attempt - 1))
    return (1 + spread) / 2 * ceiling
