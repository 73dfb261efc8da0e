"""An OS thread for one database, which keeps its jobs off the event loop.

`asyncio.to_thread` would do, but its pool of threads fights for the interpreter: with many agents
in a process most of the time goes into handing over. Here all jobs go through one thread, and
those that were done together come back together.

Writes that wait together are committed together (a group commit): one transaction costs a database
about as much as ten. Nobody is answered before the commit, so what was answered is on disk; and
where a group fails, each of its writes is executed by itself, so that nobody gets another's error.

What nobody waits for yet does not wake the thread: it is done with what is asked for next.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar


class StorageError(sqlite3.DatabaseError):
    """A database's fault, in words for people that name the database and no password.

    PostgreSQL's are raised as this. A `sqlite3.Error`, by which callers know databases' faults.
    """


class UnavailableError(StorageError, sqlite3.OperationalError):
    """A database cannot be reached, is full or cannot be written: for now, it may be."""


class LeaseLostError(StorageError):
    """This process may no longer be a thread's worker: it writes nothing more for it."""

    def __init__(self, thread: str) -> None:
        super().__init__(
            f"Thread {thread} may have been taken over by another worker, as this one had not been "
            "heard of for too long: it was paused, or the database was out of reach. Nothing more "
            "was written here."
        )


class DamagedRowError(StorageError):
    """One row cannot be read; its words say which, and what to do."""


def read_json(text: str | bytes) -> Any:
    """Read what we wrote. sqlite3.DatabaseError if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise sqlite3.DatabaseError(f"a row cannot be read ({error})") from error


def write_json(value: Any) -> str:
    """Return what `read_json` reads again, half characters that models write included."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=str)
    return text


def crc32(*columns: Any) -> int:
    """Return a checksum of columns, as text or its bytes."""
    parts = (one if isinstance(one, bytes) else str(one or "").encode() for one in columns)
    return zlib.crc32(b"\0".join(parts))


GROUP = 64
"""Callers whose writes are one transaction at most: the first of them waits for the last."""
LATER_S = 0.005
"""How long a write that nobody waits for is kept until something is asked for."""
P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
OnEnd = Callable[[Any, BaseException | None], None]
"""Is given the answer, or the error."""


@dataclass(frozen=True)
class _Callback:
    """What is called in place of somebody who waits."""

    loop: asyncio.AbstractEventLoop
    on_end: OnEnd

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop in which it is called."""
        return self.loop


_Answer = asyncio.Future[Any] | _Callback
_Done = tuple[_Answer, Any, BaseException | None]


@dataclass(frozen=True)
class Write:
    """A job that writes within a transaction that it may share."""

    execute: Callable[[], Callable[[], Any]]
    """Executes its statements, and returns what yields the answer once they are committed."""
    commit: "Commit"
    """Of the database that it writes to."""
    thread: str | None = None
    """The thread whose worker writes, if only that one may."""
    is_checkpoint: bool = False
    """Whether it is committed after what it may refer to in another database."""

    @classmethod
    def of(
        cls,
        job: Callable[[], T],
        commit: "Commit",
        thread: str | None = None,
        *,
        is_checkpoint: bool = False,
    ) -> "Write":
        """Make one of a job whose answer is known before it is committed."""

        def execute() -> Callable[[], T]:
            answer = job()
            return lambda: answer

        return cls(execute, commit, thread, is_checkpoint)


Commit = Callable[[Sequence[Write]], list[Any]]
"""Executes writes in one transaction, and returns their answers. Blocks."""
_Job = tuple[Callable[[], Any] | Write, _Answer]
"""What is to be done, and who waits for the answer."""
_WriteJob = tuple[Write, _Answer]


class GroupConnection(threading.local, Generic[C]):
    """The connection, or what stands for it, on which the current OS thread writes a group."""

    current: C | None = None

    def commit(
        self, writes: Sequence[Write], transaction: contextlib.AbstractContextManager[C]
    ) -> list[Any]:
        """Execute writes in one transaction, and return their answers. Blocks.

        Args:
            writes: They take `current`, as long as there is one, instead of one of their own.
            transaction: Gives what they share. It commits when it is left, and undoes all that
                was executed if an error leaves it.
        """
        with transaction as shared:
            self.current = shared
            try:
                answers = [write.execute() for write in writes]
            finally:
                self.current = None
        return [answer() for answer in answers]


class DatabaseThread:
    """Runs jobs one after another; its thread ends with `close` or with the process.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._users = 1
        self._closed = False
        self.restart()
        _threads.add(self)

    @classmethod
    def shared(cls, name: str) -> "DatabaseThread":
        """Return the thread of that name, which others may use as well; each of them closes it."""
        with _sharing:
            thread = _shared.get(name)
            if thread is None or not thread._users:
                thread = _shared[name] = cls(name)
            else:
                thread._users += 1
            return thread

    def restart(self) -> None:
        """Begin with no jobs and no thread, as in a forked child, which has the parent's neither.

        What the parent was asked for is done there.
        """
        self._lock = threading.Lock()
        self._jobs = SimpleQueue[list[_Job] | threading.Event | None]()
        """An event is set when the jobs before it are done; None ends the thread."""
        self._kept: list[_Job] = []
        """What is done with the next job, or when the timer has run out."""
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._thread: threading.Thread | None = None

    async def do(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking job. It is finished even if its caller is cancelled meanwhile.

        Raises:
            RuntimeError: It is closed.
        """
        answer: T = await self._ask(partial(job, *args, **kwargs))
        return answer

    def write(self, write: Write) -> "asyncio.Future[Any]":
        """Have a write executed and committed, in one transaction with others that wait.

        It is even if its caller is cancelled meanwhile, and may be executed more than once.

        Raises:
            RuntimeError: It is closed.
        """
        return self._ask(write)

    def write_later(self, write: Write, on_end: OnEnd) -> None:
        """Have a write executed right before what is asked for next, or in a few milliseconds.

        Args:
            write: What is to be written.
            on_end: Is called in this event loop then, before those who wait go on. It must not
                raise.

        Raises:
            RuntimeError: It is closed.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            self._keep(write, _Callback(loop, on_end))
            if self._timer is None or self._timer[0] is not loop:
                self._timer = loop, loop.call_later(LATER_S, self._on_timer)

    def _ask(self, work: Callable[[], Any] | Write) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._keep(work, answer)
            self._send_kept(loop)
        return answer

    def _keep(self, work: Callable[[], Any] | Write, answer: _Answer) -> None:
        if self._closed:  # nobody would ever look at it
            raise RuntimeError(f"{self._name} is closed: open it again to use it.")
        self._kept.append((work, answer))

    def _on_timer(self) -> None:
        with self._lock:
            self._send_kept()

    def _send_kept(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Give the thread all jobs so far, as one piece; call this with the lock held.

        Args:
            loop: The one that runs here, whose timer need not run out.
        """
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
        """Finish what was asked for, and end if nobody else uses it. Blocks."""
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
            taken = [self._jobs.get(), *self._waiting()]
            jobs = [job for piece in taken if isinstance(piece, list) for job in piece]
            for answers in _done(jobs):
                _deliver(answers)
            for one in taken:
                if isinstance(one, threading.Event):
                    one.set()
            if None in taken:
                return

    def _waiting(self) -> Iterator[list[_Job] | threading.Event | None]:
        """Yield what is there already."""
        with contextlib.suppress(Empty):
            for _ in range(GROUP):
                yield self._jobs.get_nowait()


def _done(jobs: Sequence[_Job]) -> Iterator[list[_Done]]:
    """Run jobs in their order, writes that follow each other together.

    Of those, what goes to one database is one transaction; the checkpoints are the last.
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


def _committed(commit: Commit, jobs: "Sequence[_WriteJob]") -> list[_Done]:
    """Execute writes in one transaction; where that fails, each in its own."""
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
    by_loop: dict[asyncio.AbstractEventLoop, list[_Done]] = {}
    for one in done:
        by_loop.setdefault(one[0].get_loop(), []).append(one)
    for loop, answers in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the caller's event loop has ended
            loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: list[_Done]) -> None:
    for answer, result, error in answers:
        if isinstance(answer, _Callback):
            answer.on_end(result, error)
        elif answer.done():
            continue  # cancelled meanwhile
        elif error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)


_threads = weakref.WeakSet[DatabaseThread]()
_shared = weakref.WeakValueDictionary[str, DatabaseThread]()
_sharing = threading.Lock()
"""Guards the shared ones, and who uses them."""


def _restart_all() -> None:
    _sharing.release()
    for thread in list(_threads):
        thread.restart()


os.register_at_fork(
    before=_sharing.acquire, after_in_parent=_sharing.release, after_in_child=_restart_all
)
