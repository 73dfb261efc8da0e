"""Signals that end a run, and how processes that it starts are kept from them.

Ctrl-C in a terminal, or `timeout`, signals the whole process group. We finish the running step, so
what the step has just started must not end.
"""

import contextlib
import signal
from collections.abc import Generator

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_held() -> Generator[None]:
    """Start processes from this OS thread meanwhile: they begin with these signals blocked.

    A session of their own is not enough, since a process gets it a moment after its start. Whoever
    is to be ended by signals unblocks them, as `launch.py` does.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
