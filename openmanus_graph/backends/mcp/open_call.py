"""A call to a server that runs in the background, and its events.

The call runs on the servers' event loop; the tool reads its events on the run's event loop. When
a person must be asked, the run is interrupted and the tool ends, but the call stays open: when
the run resumes in this process, the tool finds it again, with the question still unanswered.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal


@dataclass(eq=False)
class Event:
    """A progress report, a request or the end of a call."""

    kind: Literal["progress", "ask", "sample", "done"]
    payload: Any = None
    """The text of a progress report, the parameters of a request, the result of a call."""
    error: Exception | None = None
    """Why the call failed."""
    problem: str = ""
    """Why the person's last answer was rejected."""

    @cached_property
    def answer(self) -> "Future[Any]":
        """The future that the server's request waits for."""
        return Future()


class OpenCall:
    """One running call: its events in order, for one reader."""

    def __init__(self) -> None:
        self.cancel: Callable[[], None] = _nothing
        """Cancels the call on the servers' event loop."""
        self._events: deque[Event] = deque()
        self._reader: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._lock = threading.Lock()

    def put(self, event: Event) -> None:
        """Add an event, from any thread."""
        with self._lock:
            if event.kind == "done":  # nobody waits for an answer any more
                self._events = deque(one for one in self._events if one.kind == "progress")
            self._events.append(event)
            reader, self._reader = self._reader, None
        if reader is not None:
            loop, waiting = reader
            with contextlib.suppress(RuntimeError):  # the reader's loop is closed
                loop.call_soon_threadsafe(_wake, waiting)

    async def first(self) -> Event:
        """Wait for the oldest event and return it; it stays until it is dropped."""
        while True:
            with self._lock:
                if self._events:
                    return self._events[0]
                loop = asyncio.get_running_loop()
                waiting = loop.create_future()
                self._reader = (loop, waiting)
            await waiting

    def drop(self) -> None:
        """Remove the oldest event, once it was handled."""
        with self._lock:
            if self._events and self._events[0].kind != "done":
                self._events.popleft()

    def abandon(self) -> None:
        """Cancel the call, and resolve its pending requests with None."""
        self.cancel()
        for event in list(self._events):
            if not event.answer.done():
                event.answer.set_result(None)


def _nothing() -> None:
    pass


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
