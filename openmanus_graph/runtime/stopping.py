"""Abandons waits and calls without effects when the run is asked to stop."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from langgraph.runtime import Runtime, get_runtime

GRACE_S = 5.0
"""Time that a call without effects still gets after the run was asked to stop."""
_POLL_S = 0.25

T = TypeVar("T")


class RunStopping(Exception):  # an event, not an error
    """The run was asked to stop, and the wait is abandoned."""


async def unless_stopped(work: Awaitable[T], *, pure: bool) -> T:
    """Wait for a call; one without effects is abandoned on a stop, since it can be repeated.

    Raises:
        RunStopping: It was abandoned.
    """
    runtime = _runtime()
    if not pure or runtime is None:
        return await work
    call, ends = asyncio.ensure_future(work), None
    try:
        while not call.done():
            await asyncio.wait({call}, timeout=_POLL_S)
            if ends is None and runtime.drain_requested:
                ends = time.monotonic() + GRACE_S
            if ends is not None and time.monotonic() > ends and not call.done():
                raise RunStopping
    finally:
        call.cancel()
    return call.result()


async def pause(seconds: float) -> None:
    """Sleep, unless the run is asked to stop.

    Raises:
        RunStopping: The run was asked to stop.
    """
    runtime, ends = _runtime(), time.monotonic() + seconds
    while (left_s := ends - time.monotonic()) > 0:
        if runtime is not None and runtime.drain_requested:
            raise RunStopping
        await asyncio.sleep(min(left_s, _POLL_S))


def _runtime() -> Runtime[Any] | None:
    try:
        return get_runtime()
    except RuntimeError:
        return None  # a call by itself, without a run
