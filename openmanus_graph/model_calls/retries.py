"""Repeats a model call that failed for a passing reason, with pauses that grow."""

import asyncio
import random as _random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from openmanus_graph.backends.models.failures import Failure, FailureKind, ModelError, classify
from openmanus_graph.errors import ConfigError

T = TypeVar("T")

MAX_RETRIES = 5
RETRIES: dict[FailureKind, int] = {"withheld": 1, "page": 1}
"""Of failures by a filter or a proxy that may be passing, and mostly are not."""
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
LONGEST_WAIT_S = 300.0
"""A server that asks for a longer pause is not waited for."""


async def with_retries(
    call: Callable[[], Awaitable[T]],
    *,
    notice: Callable[[str], None],
    subject: str = "The model",
    max_retries: int = MAX_RETRIES,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    random: Callable[[], float] = _random.random,
) -> T:
    """Call until it works, waiting longer each time, as long as the failures are passing ones.

    Args:
        call: Makes one attempt.
        notice: Called before each pause, with one sentence.
        subject: How sentences name the model.
        max_retries: The first attempt is none.
        sleep: Waits that many seconds.
        random: A number from 0 to 1; spreads clients that failed together.

    Raises:
        ModelError: The failure does not pass, or the attempts are used up.
    """
    for attempt in range(1, max_retries + 2):
        try:
            return await call()
        except Exception as error:
            failure = classify(error, subject)
            if failure is None:
                raise
            retries = max_retries
            if failure.kind != "retry":
                retries = min(max_retries, RETRIES.get(failure.kind, 0))
            max_attempts = 1 + retries
            if attempt >= max_attempts:
                tried = "" if attempt == 1 else f" ({attempt} attempts were made.)"
                raise ModelError(failure.kind, failure.sentence + tried) from error
            pause = _pause_s(failure, attempt, random())
            if pause > LONGEST_WAIT_S:
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


def max_retries_of(options: Mapping[str, Any]) -> int:
    """Return how often a model's failed call is repeated: its option `max_retries`.

    Raises:
        ConfigError: It is no number of retries.
    """
    wanted = options.get("max_retries", MAX_RETRIES)
    if isinstance(wanted, int) and wanted >= 0:
        return wanted
    raise ConfigError(f"model_options.max_retries must be 0 or more, not {wanted!r}.")


def _pause_s(failure: Failure, attempt: int, spread: float) -> float:
    if failure.retry_after_s is not None:
        # The server's wish is a lower bound; the spread keeps a crowd from returning at once.
        return failure.retry_after_s + spread
    ceiling: float = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (attempt - 1))
    return (1 + spread) / 2 * ceiling
