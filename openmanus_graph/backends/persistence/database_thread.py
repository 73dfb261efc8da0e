"""An OS thread for one database, which keeps its jobs off the event loop.

`asyncio.to_thread` would also do that, but its many threads compete for the interpreter: with many
agents in a process most of the time goes into handing over. Here all jobs go through one thread,
and those that were done together come back together.

Writes that wait together are committed together (a group commit): one transaction costs a database
about as much as ten. Callers are answered after the commit, so what was answered is on disk. If a
group fails, each of its writes is executed alone, so that no caller gets another one's error.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from openmanus_graph.errors import UnavailableError

GROUP = 64
"""The most writes in one transaction: the first of them waits for the last."""
LATER_S = 0.005
"""How long a write without a waiting caller is kept until the next job."""
P = ParamSpec("P")
T = TypeVar("T")
OnEnd = Callable[[Any, BaseException | None], None]
"""Gets the answer, or the error."""


@dataclass(frozen=True)
class Write:
    """A job that writes within a transaction that it may share."""

    execute: Callable[[], Callable[[], Any]]
    """Executes its statements. Returns a function that gives the answer after the commit."""
    commit: "Commit"
    """Of the database that it writes to."""
    thread: str | None = None
    """The thread whose worker writes, if only that one may."""
    is_checkpoint: bool = False
    """Whether it is committed after writes to other databases, to which it may refer."""

    @classmethod
    def of(
        cls,
        job: Callable[[], T],
        commit: "Commit",
        thread: str | None = None,
        *,
        is_checkpoint: bool = False,
    ) -> "Write":
        """Return the write of a job whose answer is known before the commit."""

        def execute() -> Callable[[], T]:
            answer = job()
            return lambda: answer

        return cls(execute, commit, thread, is_checkpoint)


Commit = Callable[[Sequence[Write]], list[Any]]
"""Executes writes in one transaction and returns their answers. Blocks."""
_Work = Callable[[], Any] | Write


_Answer = tuple[asyncio.AbstractEventLoop, OnEnd]
"""Called in this loop with the answer of a job."""
_Job = tuple[_Work, _Answer]
_WriteJob = tuple[Write, _Answer]
_Done = tuple[_Answer, Any, BaseException | None]


class DatabaseThread:
    """Runs jobs one after another, until `close` or the end of the process.

    After `close`, methods raise RuntimeError.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._users = 1
        self._closed = False
        self.restart()
        _threads.add(self)

    @classmethod
    def shared(cls, name: str) -> "DatabaseThread":
        """Return the thread of that name, which others may use as well. Each of them closes it."""
        with _sharing:
            thread = _shared.get(name)
            if thread is None or not thread._users:
                thread = _shared[name] = cls(name)
            else:
                thread._users += 1
            return thread

    def restart(self) -> None:
        """Begin without jobs and without a thread, as in a forked child.

        The parent's jobs are done in the parent.
        """
        self._lock = threading.Lock()
        self._jobs = SimpleQueue[list[_Job] | threading.Event | None]()
        """An event is set when the jobs before it are done; None ends the thread."""
        self._kept: list[_Job] = []
        """Done with the next job, or when the timer ends."""
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._thread: threading.Thread | None = None

    async def do(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking job. It completes even if its caller is cancelled."""
        answer: T = await self._ask(partial(job, *args, **kwargs))
        return answer

    def write(self, write: Write) -> "asyncio.Future[Any]":
        """Execute and commit a write, in one transaction with others that wait.

        It completes even if its caller is cancelled, and may be executed more than once.
        """
        return self._ask(write)

    def write_later(self, write: Write, on_end: OnEnd) -> None:
        """Execute a write right before the next job, or in a few milliseconds.

        `on_end` is called in this event loop before waiting callers continue. It must not raise.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            self._keep(write, (loop, on_end))
            if self._timer is None or self._timer[0] is not loop:
                self._timer = loop, loop.call_later(LATER_S, self._on_timer)

    def _ask(self, work: _Work) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._keep(work, (loop, partial(_set_future, future)))
            self._send_kept(loop)
        return future

    def _keep(self, work: _Work, answer: _Answer) -> None:
        if self._closed:  # the thread has ended
            raise RuntimeError(f"{self._name} is closed: open it again to use it.")
        self._kept.append((work, answer))

    def _on_timer(self) -> None:
        with self._lock:
            self._send_kept()

    def _send_kept(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Give the thread all jobs so far, with the lock held. `loop` needs no timer then."""
        if self._timer is not None and self._timer[0] is loop:
            self._timer[1].cancel()
        self._timer = None
        if not self._kept:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(self._kept)
        self._kept = []

    def settle(self) -> None:
        """Wait until the jobs so far are done. Blocks."""
        done = threading.Event()
        with self._lock:
            if self._closed:
                return
            self._send_kept()
            if self._thread is None:
                return
            self._jobs.put(done)
        done.wait()

    def close(self) -> None:
        """Finish the jobs so far, and end if no other user is left. Blocks."""
        with _sharing:
            self._users -= 1
            is_last = not self._users
        if not is_last:
            self.settle()
            return
        with self._lock:
            self._send_kept()
            self._closed = True
            self._jobs.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            taken = [self._jobs.get()]
            with contextlib.suppress(Empty):
                for _ in range(GROUP):
                    taken.append(self._jobs.get_nowait())
            jobs = [job for piece in taken if isinstance(piece, list) for job in piece]
            for answers in _done(jobs):
                _deliver(answers)
            for one in taken:
                if isinstance(one, threading.Event):
                    one.set()
            if None in taken:
                return


def _done(jobs: Sequence[_Job]) -> Iterator[list[_Done]]:
    """Run jobs in their order, consecutive writes together.

    Of those, the writes to one database are one transaction. Checkpoints come last.
    """
    for are_writes, found in groupby(jobs, lambda job: isinstance(job[0], Write)):
        if not are_writes:
            yield [_outcome(work, answer) for work, answer in found if not isinstance(work, Write)]
            continue
        by_commit: dict[tuple[bool, Commit], list[_WriteJob]] = {}
        for work, answer in found:
            if isinstance(work, Write):
                group = by_commit.setdefault((work.is_checkpoint, work.commit), [])
                group.append((work, answer))
        yield [
            one
            for (_, commit), group in sorted(by_commit.items(), key=lambda item: item[0][0])
            for one in _committed(commit, group)
        ]


def _committed(commit: Commit, jobs: Sequence[_WriteJob]) -> list[_Done]:
    """Execute writes in one transaction; if that fails, each in its own."""
    try:
        answers = commit([write for write, _ in jobs])
    except BaseException as error:  # noqa: BLE001  # any error is raised at the caller
        if len(jobs) == 1:
            return [(jobs[0][1], None, error)]
    else:
        return [(answer, found, None) for (_, answer), found in zip(jobs, answers, strict=True)]
    failure: BaseException | None = None
    done: list[_Done] = []
    for job in jobs:
        if isinstance(failure, UnavailableError):  # the others would wait for it as long
            done.append((job[1], None, failure))
        else:
            done += _committed(commit, [job])
            failure = done[-1][2]
    return done


def _outcome(work: Callable[[], Any], answer: _Answer) -> _Done:
    try:
        return answer, work(), None
    except BaseException as error:  # noqa: BLE001  # any error is raised at the caller
        return answer, None, error


def _deliver(done: Iterable[_Done]) -> None:
    """Give answers to those who wait, all of an event loop at once."""

    def call_all(answers: list[_Done]) -> None:
        for (_, on_end), result, error in answers:
            on_end(result, error)

    by_loop: dict[asyncio.AbstractEventLoop, list[_Done]] = {}
    for one in done:
        by_loop.setdefault(one[0][0], []).append(one)
    for loop, answers in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the caller's event loop has ended
            loop.call_soon_threadsafe(call_all, answers)


def _set_future(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # cancelled meanwhile
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


_threads = weakref.WeakSet[DatabaseThread]()
_shared = weakref.WeakValueDictionary[str, DatabaseThread]()
_sharing = threading.Lock()
"""Guards the shared threads and their numbers of users."""


def _restart_all() -> None:
    _sharing.release()
    for thread in list(_threads):
        thread.restart()


os.register_at_fork(
    before=_sharing.acquire, after_in_parent=_sharing.release, after_in_child=_restart_all
)
