"""Blocking work of a handle, seen from a coroutine."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def run_blocking(worker: Executor, work: Callable[[], T], stop: threading.Event) -> T:
    """Run work in a thread; when cancelled, stop it, wait for its end, and pass that on.

    Args:
        worker: Where it runs.
        work: What blocks.
        stop: Makes `work` return soon once it is set; cleared before it begins.
    """
    stop.clear()
    future = asyncio.get_running_loop().run_in_executor(worker, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({future})
        if not future.cancelled():
            future.exception()  # seen: nobody is left to tell
        raise
