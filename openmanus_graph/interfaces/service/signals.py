"""Ctrl-C, SIGTERM and SIGHUP during a run.

The first signal lets the step finish, the second cuts it off; after that there is only the
`final` event to write, and no signal prevents it. A thread that never ends, in a call of the
system or of a library, does not keep the process: it ends all the same after a while.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol

from openmanus_graph.runtime.process_signals import ENDING_SIGNALS

CUT_OFF_S = 10.0
"""Time that a run has to end once it was cut off, before the process ends without it."""
CLOSING_S = 30.0
"""Time that a process has to close what it opened, once its run has ended."""


class Drainable(Protocol):
    """Ends when its running step has ended: a run's `RunControl`, or many of them."""

    def request_drain(self, reason: str) -> Any:
        """Let the running step finish, and nothing begin after it."""
        ...


class Signals:
    """Handles the process's signals during one run, or one batch of them."""

    def __init__(self, control: Drainable, emit: Callable[..., None]) -> None:
        self.first: signal.Signals | None = None
        """The first signal, which ends the run."""
        self.over = False
        """The run has ended: further signals are ignored."""
        self.exit_code: int | None = None
        """With what later signals end the process; None leaves them to who handled them before."""
        self._control, self._emit = control, emit
        self._end: threading.Timer | None = None
        self._asking = False

    @contextlib.contextmanager
    def asking(self) -> Generator[None]:
        """Mark the time of a question to a person, in which a signal cancels at once."""
        self._asking = True
        try:
            yield
        finally:
            self._asking = False

    @contextlib.contextmanager
    def handled(self) -> Generator[None]:
        """Handle signals meanwhile; the second one cancels the current task."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def receive(number: int, frame: object) -> None:
            loop.call_soon_threadsafe(handle, signal.Signals(number))

        def handle(number: signal.Signals) -> None:
            if self.over:
                return
            first, self.first = self.first is None, self.first or number
            if first and not self._asking:
                self._control.request_drain(number.name)
                text = "Finishing the running step; once more stops it at once."
                self._emit(type="notice", level="warning", text=text)
            elif task is not None:
                self._end_in(CUT_OFF_S, 128 + number)
                task.cancel()

        # Any handler of the loop's own makes signals wake it: one that comes just before it waits,
        # or in another thread, interrupts nothing. This one is never called for.
        loop.add_signal_handler(signal.SIGURG, bool)
        # Not such ones for these: to remove one is to let the next signal kill the process.
        before = {number: signal.signal(number, receive) for number in _handled_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if self.exit_code is None else self._exit)
            loop.remove_signal_handler(signal.SIGURG)
            self._stay()
            if self.exit_code is not None:
                atexit.register(_ignore, before)
                self._end_in(CLOSING_S, self.exit_code)

    def _end_in(self, seconds: float, code: int) -> None:
        """Have the process end after a time, whatever its threads do."""
        if self._end is None:
            self._end = threading.Timer(seconds, os._exit, (code,))
            self._end.daemon = True
            self._end.start()

    def _stay(self) -> None:
        """Have the process not end by itself: the run has ended in time."""
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _exit(self, number: int, frame: object) -> None:
        os._exit(self.exit_code or 0)


def _ignore(numbers: Iterable[signal.Signals]) -> None:
    """Ignore signals while the interpreter ends, which resets all other handlers."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _handled_signals() -> list[signal.Signals]:
    """Return the signals that end a run; under `nohup` SIGHUP stays ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in ENDING_SIGNALS if not (number == signal.SIGHUP and ignored)]
