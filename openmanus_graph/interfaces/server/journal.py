"""The event log of threads: numbers events, saves them and streams them to followers.

An event is in memory at once and in the database a moment later. Tokens are never saved: when the
reply is complete, its `think_end` has the whole text. Numbers increase with gaps: those of a run
start at the time in microseconds, so that after a crash they are above all that were sent before.
"""

import asyncio
import contextlib
import datetime
import itertools
import json
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from openmanus_graph.backends.persistence.backend import LeaseLostError
from openmanus_graph.backends.persistence.database_thread import DatabaseThread
from openmanus_graph.backends.persistence.journal import JournalTable, Numbered
from openmanus_graph.backends.persistence.texts import text_of
from openmanus_graph.errors import StorageError
from openmanus_graph.interfaces.service.call_titles import with_titles
from openmanus_graph.runtime.events import CHUNKS

MAX_EVENTS_IN_MEMORY = 2000
TOKEN_RETENTION_S = 1.0
"""Seconds that the tokens of a complete reply stay in memory for slow followers."""
POLL_S = 1.0
"""Interval of polling for events that another process may have written."""
RETRY_S = 1.0
"""Between two attempts to write events after a database error; SQLite itself waits, too."""
MAX_UNSAVED_CHARS = 50_000_000
"""Limit on events that wait to be saved; above it the oldest are dropped."""
log = logging.getLogger(__name__)


@dataclass
class _Event:
    seq: int
    text: str
    kind: str
    source: tuple[str, str]
    """Run and plan step that the event comes from."""
    searched: str = ""
    """A text by which the thread is found."""


@dataclass
class _ThreadEvents:
    """The events of one thread that are in memory: all with a number above `floor`."""

    floor: int
    seq: int
    events: deque[_Event] = field(default_factory=deque[_Event])
    unsaved: deque[_Event] = field(default_factory=deque[_Event])
    """Those that are not in the database yet."""
    followers: set[asyncio.Event] = field(default_factory=set[asyncio.Event])
    runs: int = 0
    asked: set[str] = field(default_factory=set[str])
    """Ids of the questions of the current run so far, while its other steps continue."""
    answered: set[str] = field(default_factory=set[str])
    """Ids of those that have an answer, which is used when the run has ended."""


class Journal:
    """The event log of a home folder. `add` may be called from any thread of the process."""

    def __init__(self, table: JournalTable, loop: asyncio.AbstractEventLoop) -> None:
        self._table, self._loop = table, loop
        self._threads: dict[str, _ThreadEvents] = {}
        self._lock = threading.Lock()
        self._database_thread = DatabaseThread("journal")
        self._saves = asyncio.Lock()
        """One save at a time: another one must not write what a failed one drops."""
        self._writing: asyncio.Task[None] | None = None
        self._released = asyncio.Event()
        self._closing = asyncio.Event()
        self._failing = False
        """The last write failed, and a warning was logged."""
        self.is_closing = False

    async def acquire(self, thread: str) -> None:
        """Accept the events of a run that starts; number them above what other processes wrote."""
        await self.save()
        last = await self._database_thread.do(self._table.last, thread)
        with self._lock:
            buffer = self._threads.setdefault(thread, _ThreadEvents(floor=last, seq=last))
            buffer.runs += 1
            buffer.asked.clear()
            buffer.seq = max(buffer.seq, last, time.time_ns() // 1000)
            buffer.events = deque(buffer.unsaved)
            buffer.floor = buffer.events[0].seq - 1 if buffer.events else buffer.seq
        self._wake_followers(thread)

    async def last(self, thread: str) -> int:
        return await self._database_thread.do(self._table.last, thread)

    async def newest_event(self, thread: str) -> dict[str, Any] | None:
        found = await self._database_thread.do(
            self._table.read, thread, await self.last(thread) - 1
        )
        return json.loads(found[-1][1]) if found else None

    async def write_past(self, thread: str, events: list[Numbered]) -> None:
        await self._database_thread.do(self._table.write, thread, events)

    async def release(self, thread: str) -> None:
        """Stop accepting a run's events; those not saved yet stay in memory until they are."""
        await self.save()
        with self._lock:
            self._threads[thread].runs -= 1
            self._forget_if_idle(thread)
        self._released.set()

    def add(self, thread: str, run: str, step: str, event: dict[str, Any]) -> None:
        """Number an event, and store and stream it. Ignored for a thread without a run."""
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
        with self._lock:
            buffer = self._threads.get(thread)
            if buffer is None or not buffer.runs:
                return
            buffer.seq += 1
            where = {"seq": buffer.seq, "run": run, "ns": step, "thread": thread, "ts": now}
            text = json.dumps({**with_titles(event), **where}, default=str)
            kind, source = str(event["type"]), (run, step)
            if kind == "interrupt":
                buffer.asked.add(str(event["id"]))
            if kind == "answered":
                buffer.answered.discard(str(event["id"]))
            if kind == "think_start":
                _drop_tokens(buffer, source, buffer.seq)
            added = _Event(buffer.seq, text, kind, source, text_of(event))
            buffer.events.append(added)
            if kind not in CHUNKS:
                buffer.unsaved.append(added)
        self._loop.call_soon_threadsafe(self._wake_followers, thread)
        if kind == "think_end":
            expire = partial(self._expire_tokens, thread, source, buffer.seq)
            self._loop.call_soon_threadsafe(self._loop.call_later, TOKEN_RETENTION_S, expire)

    def _expire_tokens(self, thread: str, source: tuple[str, str], before: int) -> None:
        with self._lock:
            if buffer := self._threads.get(thread):
                _drop_tokens(buffer, source, before)

    async def save(self) -> bool:
        """Save the unsaved events; False if the database refuses them now.

        They then stay in memory, and saving is retried until it works or there are too many.
        """
        async with self._saves:
            with self._lock:
                unsaved = {key: [*one.unsaved] for key, one in self._threads.items() if one.unsaved}
            for thread, events in unsaved.items():
                if not await self._save(thread, events):
                    return False
            self._failing = False
            return True

    async def _save(self, thread: str, events: list[_Event]) -> bool:
        try:
            rows = [(event.seq, event.text) for event in events]
            texts = [event.searched for event in events]
            await self._database_thread.do(self._table.write, thread, rows, texts)
        except LeaseLostError:  # another worker writes the thread's events now
            log.warning("Events of %s are dropped: the thread was taken over.", thread)
        except StorageError as error:  # no run fails because of this
            if not self._failing:
                log.warning("Events of %s wait to be saved: %s", thread, error)
            self._failing = True
            with self._lock:
                _drop_oldest_unsaved(thread, self._threads[thread])
            self._start_saving()
            return False
        with self._lock:
            buffer = self._threads[thread]
            for _ in events:
                buffer.unsaved.popleft()
            first_unsaved = buffer.unsaved[0] if buffer.unsaved else None
            while (
                len(buffer.events) > MAX_EVENTS_IN_MEMORY and buffer.events[0] is not first_unsaved
            ):
                buffer.floor = buffer.events.popleft().seq
            self._forget_if_idle(thread)
        return True

    async def follow(
        self, thread: str, after: int, ping_s: float
    ) -> AsyncGenerator[list[Numbered] | None]:
        """Yield a thread's events after a number: the past, then new ones as they come.

        An empty list comes once, after the past; None after each `ping_s` seconds without an event.
        """
        with self.subscription(thread) as changed:
            live, quiet_s = False, 0.0
            while not self.is_closing:
                changed.clear()
                events = await self._next(thread, after)
                if events:
                    after, quiet_s = events[-1][0], 0.0
                    yield events
                elif not live:
                    live = True
                    yield []
                else:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), POLL_S)
                    quiet_s += 0 if changed.is_set() else POLL_S
                    if quiet_s >= ping_s:
                        quiet_s = 0.0
                        yield None

    def is_running(self, thread: str) -> bool:
        buffer = self._threads.get(thread)
        return buffer is not None and buffer.runs > 0

    def unanswered(self, thread: str) -> set[str]:
        buffer = self._threads.get(thread)
        return set() if buffer is None or not buffer.runs else buffer.asked - buffer.answered

    def keep_answered(self, thread: str, questions: Collection[str]) -> None:
        """Note that these questions of a running run have answers, until the answers are used."""
        if buffer := self._threads.get(thread):
            buffer.answered.update(questions)

    @property
    def running(self) -> list[str]:
        return [thread for thread, buffer in list(self._threads.items()) if buffer.runs]

    async def wait_until_idle(self) -> None:
        while self.running:
            self._released.clear()
            await self._released.wait()

    @contextlib.contextmanager
    def end_followers_on_signals(self, on_signal: Callable[[], None]) -> Generator[None]:
        """End the followers on SIGINT and SIGTERM at once: the server waits for them.

        `on_signal` is called, too, in the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # signal handlers can be set in the main thread only
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def end(number: int, frame: FrameType | None) -> None:
            on_signal()
            self._loop.call_soon_threadsafe(self.end_followers)
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

    def end_followers(self) -> None:
        self.is_closing = True
        for buffer in self._threads.values():
            for follower in buffer.followers:
                follower.set()

    async def close(self) -> None:
        """Save everything and stop; events that cannot be saved now are dropped, and logged."""
        self._closing.set()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if not await self.save():
            for thread, buffer in self._threads.items():
                if left := len(buffer.unsaved):
                    log.error("%d events of %s are lost: they could not be saved", left, thread)
        await asyncio.to_thread(self._database_thread.close)

    async def _next(self, thread: str, after: int) -> list[Numbered]:
        while True:
            with self._lock:
                buffer = self._threads.get(thread)
                running = buffer is not None and buffer.runs > 0
                floor = buffer.floor if buffer is not None and (running or buffer.events) else None
                if buffer is not None and floor is not None and after >= floor:
                    recent = _merge_tokens(_newer(buffer.events, after))
                    if recent or running:
                        return recent
                    floor = None  # another process may have written more
            kept = await self._database_thread.do(self._table.read, thread, after, floor)
            if kept or floor is None:
                return kept
            after = floor

    def _wake_followers(self, thread: str) -> None:
        buffer = self._threads.get(thread)
        if buffer is None:
            return
        for follower in buffer.followers:
            follower.set()
        if buffer.unsaved:
            self._start_saving()

    def _start_saving(self) -> None:
        if not self._closing.is_set() and (self._writing is None or self._writing.done()):
            self._writing = self._loop.create_task(self._save_soon())

    async def _save_soon(self) -> None:
        while True:
            with self._lock:
                if not any(buffer.unsaved for buffer in self._threads.values()):
                    return
            if not await self.save():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), RETRY_S)
                if self._closing.is_set():
                    return

    @contextlib.contextmanager
    def subscription(self, thread: str) -> Generator[asyncio.Event]:
        """Yield what is set when a run of a thread is recorded, and at each event."""
        changed = asyncio.Event()
        with self._lock:
            self._threads.setdefault(thread, _ThreadEvents(0, 0)).followers.add(changed)
        try:
            yield changed
        finally:
            # Not at once: the garbage collector can end an abandoned follower anywhere, even in
            # code that holds the lock.
            self._loop.call_soon_threadsafe(self._unsubscribe, thread, changed)

    def _unsubscribe(self, thread: str, changed: asyncio.Event) -> None:
        with self._lock:
            if buffer := self._threads.get(thread):
                buffer.followers.discard(changed)
                self._forget_if_idle(thread)

    def _forget_if_idle(self, thread: str) -> None:
        buffer = self._threads.get(thread)
        if buffer and not (buffer.runs or buffer.followers or buffer.unsaved):
            del self._threads[thread]


def _drop_oldest_unsaved(thread: str, buffer: _ThreadEvents) -> None:
    excess = sum(len(event.text) for event in buffer.unsaved) - MAX_UNSAVED_CHARS
    if excess <= 0:
        return
    dropped = 0
    last = buffer.events[0]
    while excess > 0 and len(buffer.events) > 1:
        last = buffer.events.popleft()
        if last is buffer.unsaved[0]:
            buffer.unsaved.popleft()
            dropped += 1
            excess -= len(last.text)
    log.error("%d events of %s are lost: they could not be saved for too long.", dropped, thread)
    text = "Events are missing here: they could not be saved for too long."
    notice = {"type": "notice", "level": "warning", "text": text, "seq": last.seq, "run": ""}
    stamped = json.dumps({**notice, "ns": "", "thread": thread, "ts": ""})
    placed = _Event(last.seq, stamped, "notice", ("", ""))
    buffer.events.appendleft(placed)
    buffer.unsaved.appendleft(placed)


def _newer(events: deque[_Event], after: int) -> list[_Event]:
    """Return the events above a number, without looking at the others."""
    return list(itertools.takewhile(lambda event: event.seq > after, reversed(events)))[::-1]


def _drop_tokens(buffer: _ThreadEvents, source: tuple[str, str], before: int) -> None:
    """Drop the tokens of a source. They all come after the newest start of its reply."""
    kept: list[_Event] = []
    while buffer.events:
        event = buffer.events.pop()
        of_source = event.source == source
        if event.kind not in CHUNKS or not of_source or event.seq > before:
            kept.append(event)
        if event.kind == "think_start" and of_source:
            break
    buffer.events.extend(reversed(kept))


def _merge_tokens(events: list[_Event]) -> list[Numbered]:
    merged: list[Numbered] = []
    for (kind, _), group in itertools.groupby(events, lambda event: (event.kind, event.source)):
        several = list(group)
        if kind in CHUNKS and len(several) > 1:
            parts = [json.loads(event.text) for event in several]
            whole = {**parts[-1], "text": "".join(part["text"] for part in parts)}
            merged.append((several[-1].seq, json.dumps(whole)))
        else:
            merged += [(event.seq, event.text) for event in several]
    return merged
