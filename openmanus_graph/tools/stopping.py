"""What is given up because the run is being stopped."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from langgraph.runtime import Runtime, get_runtime

GRACE_S = 5.0
"""What a call that changes nothing may still take once the run was told to stop."""
_LOOK_S = 0.25

T = TypeVar("T")


class RunStopping(Exception):  # an event, not a fault
    """The run was told to stop, and nobody is left to wait."""


async def unless_stopped(work: Awaitable[T], *, pure: bool) -> T:
    """Wait for a call; what changes nothing can be made again by the run that goes on.

    Raises:
        RunStopping: It was given up.
    """
    runtime = _runtime()
    if not pure or runtime is None:
        return await work
    call, ends = asyncio.ensure_future(work), None
    try:
        while not call.done():
            await asyncio.wait({call}, timeout=_LOOK_S)
            if ends is None and runtime.drain_requested:
                ends = time.monotonic() + GRACE_S
            if ends is not None and time.monotonic() > ends and not call.done():
                raise RunStopping
    finally:
        call.cancel()
    return call.result()


async def pause(seconds: float) -> None:
    """Wait; there is nothing to finish in that, so a run that is told to stop does not.

    Raises:
        RunStopping: It was given up.
    """
    runtime, ends = _runtime(), time.monotonic() + seconds
    while (left_s := ends - time.monotonic()) > 0:
        if runtime is not None and runtime.drain_requested:
            raise RunStopping
        await asyncio.sleep(min(left_s, _LOOK_S))


def _runtime() -> Runtime[Any] | None:
    try:
        return get_runtime()
    except RuntimeError:
        return None  # a call by itself, without a run
