"""A call to a server that goes on by itself, and what it wants meanwhile.

The call lives on the engine's loop; the tool that made it follows it from the run's. When a person
must be asked, the run pauses and the tool ends, but the call stays open: when the run goes on in
this process, the tool finds it again, with the question still unanswered.
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
    """Something that a call reports or asks, or its end."""

    kind: Literal["progress", "ask", "sample", "done"]
    payload: Any = None
    """The text of a progress report, the parameters of a request, the result of a call."""
    error: Exception | None = None
    """Why the call failed."""
    problem: str = ""
    """What was wrong with the person's last answer."""

    @cached_property
    def answer(self) -> "Future[Any]":
        """Whoever asked waits for it."""
        return Future()


class OpenCall:
    """One call under way: its events in order, for one reader."""

    def __init__(self) -> None:
        self.cancel: Callable[[], None] = _nothing
        """Cuts off the call itself, on the engine's loop."""
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
        """Forget the oldest event: it was dealt with."""
        with self._lock:
            if self._events and self._events[0].kind != "done":
                self._events.popleft()

    def abandon(self) -> None:
        """Cancel the call, and tell whoever waits for an answer that there is none."""
        self.cancel()
        for event in list(self._events):
            if not event.answer.done():
                event.answer.set_result(None)


def _nothing() -> None:
    pass


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
