"""How a process ends: the signals that end it, and what is closed before."""

import asyncio
import contextlib
import inspect
import signal
from collections.abc import Awaitable, Callable, Generator

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_held() -> Generator[None]:
    """Start processes from this OS thread in the block: they begin with these signals blocked.

    A separate session is not enough, since a process gets it a moment after its start. A program
    that signals should end unblocks them, as `launch.py` does.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


Closer = Callable[[], Awaitable[None] | None]
"""Closes one kind of thing: a coroutine function, or a function that may block."""

_closers: list[Closer] = []
_last: list[Closer] = []


def register_closer(closer: Closer, *, last: bool = False) -> None:
    """Register a closer for `close`; modules do so when they are loaded.

    Args:
        closer: Does nothing if nothing is open; may be called again.
        last: Call it after the others, which may still write to it: databases.
    """
    (_last if last else _closers).append(closer)


async def close() -> None:
    """Close everything: kernels, shells, browsers, connections, databases, and their threads.

    Call it when an app shuts down, or does not use its graphs for a while: the next run opens what
    it needs again. Owned threads (`open_session`) and running runs keep their sessions; while there
    are any, shared resources stay open, too. A process that simply ends does not need it.

    Connections to models belong to an event loop. Only those of the current loop are closed.
    """
    from openmanus_graph.runtime.session_registry import close_unused  # which is heavy

    if not await asyncio.to_thread(close_unused):
        return
    for closer in (*_closers, *_last):
        if inspect.iscoroutinefunction(closer):
            await closer()
        else:
            await asyncio.to_thread(closer)
