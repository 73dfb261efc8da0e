"""Ctrl-C, SIGTERM and SIGHUP during a run.

The first signal lets the running step finish, SIGTERM and SIGHUP for a limited time; Ctrl-C ends
requests to the model at once (`unless_interrupted`). A second signal cuts the step off. After that
only the `final` event is written, and no signal prevents it. A thread that never ends, in a system
call or a library, does not keep the process alive.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol

from openmanus_graph.runtime.process import ENDING_SIGNALS

SIGNAL_EXIT = 128
"""Added to the number of the signal that ended a run, as shells do."""
TERM_GRACE_S = 20.0
"""Seconds that the running step gets after SIGTERM or SIGHUP; Ctrl-C waits as long as it takes."""
CUT_OFF_S = 10.0
"""Seconds that a run gets to end once it was cut off, before the process ends without it."""
CLOSING_S = 30.0
"""Seconds that a process gets to close what it opened, once its run has ended."""


class Drainable(Protocol):
    """A run's `RunControl`, or many of them: lets the running step finish, and starts no other."""

    def request_drain(self, reason: str) -> Any: ...


class Signals:
    """Handles the process's signals during one run, or one batch of them.

    Args:
        ends_process: The process ends with the run. Later signals then end it with `exit_code`,
            and so does a thread that never ends.
    """

    def __init__(
        self, control: Drainable, emit: Callable[..., None], *, ends_process: bool = False
    ) -> None:
        self.first: signal.Signals | None = None
        """The one that ends the run."""
        self.over = False
        """The run has ended: further signals are ignored."""
        self.exit_code: int | None = None
        """Of the run, once it is known."""
        self._control, self._emit, self._ends_process = control, emit, ends_process
        self._task: asyncio.Task[Any] | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._end: threading.Timer | None = None
        self._asking = False

    @contextlib.contextmanager
    def asking(self) -> Generator[None]:
        """Mark the time of a question to the user, in which a signal cancels at once."""
        self._asking = True
        try:
            yield
        finally:
            self._asking = False

    @contextlib.contextmanager
    def handled(self) -> Generator[None]:
        """Handle signals meanwhile. Cutting the run off cancels the current task."""
        loop, self._task = asyncio.get_running_loop(), asyncio.current_task()

        def receive(number: int, frame: object) -> None:
            loop.call_soon_threadsafe(self._handle, signal.Signals(number))

        # With any signal handler the loop wakes up for all signals, also for one that arrives just
        # before it waits, or in another thread. This handler itself is never called.
        loop.add_signal_handler(signal.SIGURG, bool)
        # Under `nohup` SIGHUP stays ignored.
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        numbers = [one for one in ENDING_SIGNALS if not (one == signal.SIGHUP and ignored)]
        # Not the loop's handlers: after removing one, the next signal kills the process.
        before = {number: signal.signal(number, receive) for number in numbers}
        try:
            yield
        finally:
            ending = self._ends_process and self.exit_code is not None
            for number, handler in before.items():
                signal.signal(number, self._exit if ending else handler)
            loop.remove_signal_handler(signal.SIGURG)
            if self._grace is not None:  # the run has ended in time
                self._grace.cancel()
            if self._end is not None:
                self._end.cancel()
                self._end = None
            if ending:
                atexit.register(_ignore, before)
                self._end_in(CLOSING_S, self.exit_code or 0)

    def _handle(self, number: signal.Signals) -> None:
        if self.over:
            return
        first, self.first = self.first is None, self.first or number
        if not first or self._asking:
            self._cut_off(number)
            return
        self._control.request_drain(number.name)
        limit = ""
        if number != signal.SIGINT:
            limit = f", for at most {TERM_GRACE_S:g} s"
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(TERM_GRACE_S, self._cut_off, number)
        text = f"Finishing the running step{limit}; once more stops it at once."
        self._emit(type="notice", level="warning", text=text)

    def _cut_off(self, number: signal.Signals) -> None:
        if self._task is not None and not self.over:
            self._end_in(CUT_OFF_S, SIGNAL_EXIT + number)
            self._task.cancel()

    def _end_in(self, seconds: float, code: int) -> None:
        if self._end is None:
            self._end = threading.Timer(seconds, os._exit, (code,))
            self._end.daemon = True
            self._end.start()

    def _exit(self, number: int, frame: object) -> None:
        os._exit(self.exit_code or 0)


def _ignore(numbers: Iterable[signal.Signals]) -> None:
    """Ignore signals while the interpreter ends, which resets all other handlers."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
