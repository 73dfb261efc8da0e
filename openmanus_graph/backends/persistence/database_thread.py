"""An OS thread for one database, which keeps its jobs off the event loop.

`asyncio.to_thread` would do, but its pool of threads fights for the interpreter: with many agents
in a process most of the time goes into handing over. Here all jobs go through one thread, and
those that were done together come back together.

Writes that wait together are committed together (a group commit): one transaction costs a database
about as much as ten. Nobody is answered before the commit, so what was answered is on disk; and
where a group fails, each of its writes is executed by itself, so that nobody gets another's error.
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
from typing import Any, Generic, ParamSpec, TypeVar, cast

from openmanus_graph.backends.persistence.rows import UnavailableError

GROUP = 64
"""Writes of one transaction at most: the first of them waits for the last."""
P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
_Done = tuple["asyncio.Future[Any]", Any, BaseException | None]


@dataclass(frozen=True)
class Write:
    """A job that writes within a transaction that it may share."""

    execute: Callable[[], Callable[[], Any]]
    """Executes its statements, and returns what yields the answer once they are committed."""
    thread: str | None = None
    """The thread whose worker writes, if only that one may."""

    @classmethod
    def of(cls, job: Callable[[], T], thread: str | None = None) -> "Write":
        """Make one of a job whose answer is known before it is committed."""

        def execute() -> Callable[[], T]:
            answer = job()
            return lambda: answer

        return cls(execute, thread)


Commit = Callable[[Sequence[Write]], list[Any]]
"""Executes writes in one transaction, and returns their answers. Blocks."""
_Job = tuple[Callable[[], Any] | Write, "asyncio.Future[Any]"]
"""What is to be done, and who waits for the answer."""


class GroupConnection(threading.local, Generic[C]):
    """The connection or cursor on which the current OS thread writes a group: one for each."""

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
        commit: For `write`, which needs it.
    """

    def __init__(self, name: str, commit: Commit | None = None) -> None:
        self._name = name
        self._commit = commit
        self._closed = False
        self.restart()
        _threads.add(self)

    def restart(self) -> None:
        """Begin with no jobs and no thread, as in a forked child, which has the parent's neither.

        What the parent was asked for is done there.
        """
        self._lock = threading.Lock()
        self._jobs = SimpleQueue[_Job | threading.Event | None]()
        """An event is set when the jobs before it are done; None ends the thread."""
        self._thread: threading.Thread | None = None

    async def do(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking job. It is finished even if its caller is cancelled meanwhile.

        Raises:
            RuntimeError: It is closed.
        """
        answer: T = await self._ask(partial(job, *args, **kwargs))
        return answer

    async def write(self, write: Write) -> Any:
        """Have a write executed and committed, in one transaction with others that wait.

        It is even if its caller is cancelled meanwhile, and may be executed more than once.

        Raises:
            RuntimeError: It is closed.
        """
        return await self._ask(write)

    def _ask(self, work: Callable[[], Any] | Write) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:  # a job that came after `close` would never be looked at
            if self._closed:
                raise RuntimeError(f"{self._name} is closed: open it again to use it.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put((work, answer))
        return answer

    def settle(self) -> None:
        """Wait until the jobs so far are done. Blocks."""
        done = threading.Event()
        with self._lock:
            if self._thread is None or self._closed:
                return
            self._jobs.put(done)
        done.wait()

    def close(self) -> None:
        """Finish what was asked for and end. Blocks."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            taken = [self._jobs.get(), *self._waiting()]
            for answers in self._done([one for one in taken if isinstance(one, tuple)]):
                _deliver(answers)
            for one in taken:
                if isinstance(one, threading.Event):
                    one.set()
            if None in taken:
                return

    def _waiting(self) -> Iterator[_Job | threading.Event | None]:
        """Yield what is there already."""
        with contextlib.suppress(Empty):
            for _ in range(GROUP):
                yield self._jobs.get_nowait()

    def _done(self, jobs: Sequence[_Job]) -> Iterator[list[_Done]]:
        """Run jobs in their order, writes that follow each other together."""
        for are_writes, found in groupby(jobs, lambda job: isinstance(job[0], Write)):
            if are_writes and self._commit is not None:
                yield _committed(self._commit, [*found])
            else:
                yield [_outcome(cast("Callable[[], Any]", work), answer) for work, answer in found]


def _committed(commit: Commit, jobs: Sequence[_Job]) -> list[_Done]:
    """Execute writes in one transaction; where that fails, each in its own."""
    writes = [cast("Write", work) for work, _ in jobs]
    try:
        answers = commit(writes)
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


def _outcome(work: Callable[[], Any], answer: "asyncio.Future[Any]") -> _Done:
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
        if answer.done():
            continue  # cancelled meanwhile
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)


_threads = weakref.WeakSet[DatabaseThread]()


def _restart_all() -> None:
    for thread in list(_threads):
        thread.restart()


os.register_at_fork(after_in_child=_restart_all)
