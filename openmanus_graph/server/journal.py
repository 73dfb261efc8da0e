"""Events of threads, numbered, kept and handed to whoever follows a thread.

An event is in memory at once and in the database a moment later. Tokens are never kept: when the
reply is complete, its `think_end` has the whole text. Numbers grow and have gaps: a run's begin
with the time in microseconds, so that after a crash they go on above what anybody has seen.
"""

import asyncio
import contextlib
import datetime
import json
import logging
import signal
import sqlite3
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from openmanus_graph.persistence.journal import JournalTable, Numbered
from openmanus_graph.persistence.worker import Worker

KEPT_IN_MEMORY = 2000
TOKENS_STAY_S = 1.0
"""How long the pieces of a complete reply are there for a follower who lags behind."""
POLL_S = 1.0
"""How often events that another process may have written are looked for."""
log = logging.getLogger(__name__)


@dataclass
class _Event:
    seq: int
    text: str
    kind: str
    source: tuple[str, str]
    """Run and plan step: whose reply a token belongs to."""
    fresh: bool = True
    """Not in the database yet."""


@dataclass
class _Line:
    """What is in memory of one thread: all its events above `floor`."""

    floor: int
    seq: int
    events: deque[_Event] = field(default_factory=deque[_Event])
    followers: set[asyncio.Event] = field(default_factory=set[asyncio.Event])
    runs: int = 0


class Journal:
    """The events of a home folder's threads. Events may come from any thread of the process."""

    def __init__(self, table: JournalTable, loop: asyncio.AbstractEventLoop) -> None:
        self._table, self._loop = table, loop
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()
        self._worker = Worker("journal")
        self._writing: asyncio.Task[None] | None = None
        self._let_go = asyncio.Event()
        self._ending = False

    async def take_up(self, thread: str) -> None:
        """Begin a run's events: another process may have written some meanwhile."""
        await self.save()
        last = await self._worker.do(self._table.last, thread)
        with self._lock:
            line = self._lines.setdefault(thread, _Line(floor=last, seq=last))
            line.runs += 1
            line.seq = max(line.seq, last, time.time_ns() // 1000)
            line.floor, line.events = line.seq, deque()

    async def last(self, thread: str) -> int:
        """Return the number of a thread's newest event that is kept, 0 if there is none."""
        return await self._worker.do(self._table.last, thread)

    async def keep(self, thread: str, events: list[Numbered]) -> None:
        """Write a past that was told by others."""
        await self._worker.do(self._table.write, thread, events)

    async def let_go(self, thread: str) -> None:
        """End a run's events: all are saved."""
        await self.save()
        with self._lock:
            self._lines[thread].runs -= 1
            self._forget_if_idle(thread)
        self._let_go.set()

    def add(self, thread: str, run: str, step: str, event: dict[str, Any]) -> None:
        """Number an event and hand it on. Nothing happens for a thread without a run."""
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
        with self._lock:
            line = self._lines.get(thread)
            if line is None or not line.runs:
                return
            line.seq += 1
            told = {**event, "seq": line.seq, "run": run, "ns": step, "thread": thread, "ts": now}
            text = json.dumps(told, default=str)
            kind, source = str(event["type"]), (run, step)
            if kind == "think_start":
                _drop_tokens(line, source, line.seq)
            line.events.append(_Event(line.seq, text, kind, source, kind != "token"))
        self._loop.call_soon_threadsafe(self._awake, thread)
        if kind == "think_end":
            self._loop.call_soon_threadsafe(
                self._loop.call_later, TOKENS_STAY_S, self._forget_tokens, thread, source, line.seq
            )

    def _forget_tokens(self, thread: str, source: tuple[str, str], before: int) -> None:
        with self._lock:
            if line := self._lines.get(thread):
                _drop_tokens(line, source, before)

    async def save(self) -> bool:
        """Write what is in memory only; False if the disk does not take it now."""
        with self._lock:
            fresh = {
                thread: [event for event in line.events if event.fresh]
                for thread, line in self._lines.items()
            }
        for thread, events in fresh.items():
            if events:
                rows = [(event.seq, event.text) for event in events]
                try:
                    await self._worker.do(self._table.write, thread, rows)
                except sqlite3.Error as error:  # never a reason for a run to fail
                    log.warning("events of %s are not saved: %s", thread, error)
                    return False
                with self._lock:
                    for event in events:
                        event.fresh = False
                    self._shorten(thread)
        return True

    async def follow(
        self, thread: str, after: int, ping_s: float
    ) -> AsyncGenerator[list[Numbered] | None]:
        """Give a thread's events after a number, and those to come.

        Yields:
            Events in order; an empty list once, when the past is complete, and None each time
            nothing came for `ping_s` seconds.
        """
        with self._following(thread) as news:
            live, quiet_s = False, 0.0
            while not self._ending:
                news.clear()
                events = await self._next(thread, after)
                if events:
                    after, quiet_s = events[-1][0], 0.0
                    yield events
                elif not live:
                    live = True
                    yield []
                else:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), POLL_S)
                    quiet_s += 0 if news.is_set() else POLL_S
                    if quiet_s >= ping_s:
                        quiet_s = 0.0
                        yield None

    def is_running(self, thread: str) -> bool:
        """Say whether a run of this process works on a thread."""
        line = self._lines.get(thread)
        return line is not None and line.runs > 0

    @property
    def running(self) -> list[str]:
        """The threads that runs of this process work on."""
        return [thread for thread, line in list(self._lines.items()) if line.runs]

    async def until_idle(self) -> None:
        """Wait until no run of this process works on any thread."""
        while self.running:
            self._let_go.clear()
            await self._let_go.wait()

    @contextlib.contextmanager
    def ended_by_signals(self) -> Generator[None]:
        """Let followers go as soon as the process is told to end: the server waits for them."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only there can signals be heard
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def end(number: int, frame: FrameType | None) -> None:
            self._loop.call_soon_threadsafe(self.dismiss)
            handler = before[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)

        for number in before:
            signal.signal(number, end)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def dismiss(self) -> None:
        """End all followings, and those to come."""
        self._ending = True
        for line in self._lines.values():
            for follower in line.followers:
                follower.set()

    async def close(self) -> None:
        """Save everything and stop."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self.save()
        await asyncio.to_thread(self._worker.close)

    async def _next(self, thread: str, after: int) -> list[Numbered]:
        while True:
            with self._lock:
                line = self._lines.get(thread)
                running = line is not None and line.runs > 0
                floor = line.floor if line is not None and (running or line.events) else None
                if line is not None and floor is not None and after >= floor:
                    told = _joined([event for event in line.events if event.seq > after])
                    if told or running:
                        return told
                    floor = None  # another process may have gone on
            kept = await self._worker.do(self._table.read, thread, after, floor)
            if kept or floor is None:
                return kept
            after = floor

    def _awake(self, thread: str) -> None:
        line = self._lines.get(thread)
        for follower in () if line is None else line.followers:
            follower.set()
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._save_soon())

    async def _save_soon(self) -> None:
        while await self.save() and self._has_fresh():
            pass

    def _has_fresh(self) -> bool:
        with self._lock:
            return any(event.fresh for line in self._lines.values() for event in line.events)

    def _shorten(self, thread: str) -> None:
        line = self._lines.get(thread)
        while line and len(line.events) > KEPT_IN_MEMORY and not line.events[0].fresh:
            line.floor = line.events.popleft().seq

    @contextlib.contextmanager
    def _following(self, thread: str) -> Generator[asyncio.Event]:
        news = asyncio.Event()
        with self._lock:
            self._lines.setdefault(thread, _Line(0, 0)).followers.add(news)
        try:
            yield news
        finally:
            with self._lock:
                self._lines[thread].followers.discard(news)
                self._forget_if_idle(thread)

    def _forget_if_idle(self, thread: str) -> None:
        line = self._lines[thread]
        if not line.runs and not line.followers:
            del self._lines[thread]


def _drop_tokens(line: _Line, source: tuple[str, str], before: int) -> None:
    line.events = deque(
        event
        for event in line.events
        if event.kind != "token" or event.source != source or event.seq > before
    )


def _joined(events: list[_Event]) -> list[Numbered]:
    """Put tokens that follow each other into one event, for a reader who lags behind."""
    joined: list[_Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if last and last.kind == event.kind == "token" and last.source == event.source:
            earlier, later = json.loads(last.text), json.loads(event.text)
            text = json.dumps({**later, "text": earlier["text"] + later["text"]})
            joined[-1] = _Event(event.seq, text, event.kind, event.source)
        else:
            joined.append(event)
    return [(event.seq, event.text) for event in joined]
