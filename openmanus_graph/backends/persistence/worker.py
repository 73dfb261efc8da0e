"""A worker thread for one database, so that it never blocks the event loop.

`asyncio.to_thread` would do, but its pool of threads fights for the interpreter: with many agents
in a process most of the time goes into handing over. Here all jobs go through one thread, and
those that were done together come back together.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Done = tuple["asyncio.Future[Any]", Any, BaseException | None]


_Job = tuple[Callable[[], Any], "asyncio.Future[Any] | None"]
"""What is to be done, and who waits for the answer."""


class Worker:
    """Runs jobs one after another; its thread ends with `close` or with the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._closed = False
        self.restart()
        _workers.add(self)

    def restart(self) -> None:
        """Begin with no jobs and no thread, as in a forked child, which has the parent's neither.

        What the parent was asked for is done there.
        """
        self._lock = threading.Lock()
        self._jobs = SimpleQueue[_Job | None]()
        self._thread: threading.Thread | None = None

    async def do(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking job. It is finished even if its caller is cancelled meanwhile.

        Raises:
            RuntimeError: The worker is closed.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:  # a job that came after `close` would never be looked at
            if self._closed:
                raise RuntimeError(f"{self._name} is closed: open it again to use it.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put((partial(job, *args, **kwargs), answer))
        return await answer

    def settle(self) -> None:
        """Wait until the jobs so far are done. Blocks."""
        done = threading.Event()
        with self._lock:
            if self._thread is None or self._closed:
                return
            self._jobs.put((done.set, None))
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
        while (first := self._jobs.get()) is not None:
            job: _Job | None = first
            done: dict[asyncio.AbstractEventLoop, list[_Done]] = {}
            while job is not None:
                work, answer = job
                if answer is None:
                    work()
                else:
                    done.setdefault(answer.get_loop(), []).append(_outcome(work, answer))
                try:
                    job = self._jobs.get_nowait()
                except Empty:
                    break
            for loop, answers in done.items():
                with contextlib.suppress(RuntimeError):  # the caller's event loop has ended
                    loop.call_soon_threadsafe(_settle, answers)
            if job is None:
                return


_workers = weakref.WeakSet[Worker]()


def _restart_all() -> None:
    for worker in list(_workers):
        worker.restart()


os.register_at_fork(after_in_child=_restart_all)


def _outcome(work: Callable[[], Any], answer: "asyncio.Future[Any]") -> _Done:
    try:
        return answer, work(), None
    except BaseException as error:  # noqa: BLE001  # any error is raised at the caller
        return answer, None, error


def _settle(answers: list[_Done]) -> None:
    for answer, result, error in answers:
        if answer.done():
            continue  # cancelled meanwhile
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)
