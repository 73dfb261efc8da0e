"""Ctrl-C and SIGTERM during a run: the first lets the step finish, the second cuts it off."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Generator

from langgraph.runtime import RunControl


class Signals:
    """What the person's signals mean for one run."""

    def __init__(self, control: RunControl, emit: Callable[..., None]) -> None:
        self.first: signal.Signals | None = None
        """The signal that ends the run, once there was one."""
        self.finished = False
        """It is too late to stop anything; the rest takes no time."""
        self._control, self._emit = control, emit
        self._asking = False

    @contextlib.contextmanager
    def asking(self) -> Generator[None]:
        """Wait for a person meanwhile: a signal leaves the question at once, as nothing runs."""
        self._asking = True
        try:
            yield
        finally:
            self._asking = False

    @contextlib.contextmanager
    def obeyed(self) -> Generator[None]:
        """Obey signals meanwhile; the second one cancels the task that this is called in."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def obey(number: signal.Signals) -> None:
            if self.finished:
                return
            first, self.first = self.first is None, self.first or number
            if first and not self._asking:
                self._control.request_drain(number.name)
                text = "Finishing the running step; once more stops it at once."
                self._emit(type="notice", level="warning", text=text)
            elif task is not None:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, obey, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def leave_with(code: int) -> None:
    """Have a signal end the process at once with this code: all is told, saved and closed."""

    def leave(number: int, frame: object) -> None:
        os._exit(code)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
