"""A thread of its own for one database, so that nothing waits for it on the event loop.

`asyncio.to_thread` would do, but its pool of threads fights for the interpreter: with many agents
in a process most of the time goes into handing over. Here all jobs go through one thread, and
those that were done together come back together.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Done = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Worker:
    """Runs jobs one after another; its thread ends with `close` or with the process."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        self._jobs = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def do(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking job. It is finished even if its caller is cancelled meanwhile."""
        if self._closed:
            raise RuntimeError(f"{self._thread.name} is closed.")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((partial(job, *args, **kwargs), answer))
        return await answer

    def close(self) -> None:
        """Finish what was asked for and end. Blocks."""
        self._closed = True
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            job: tuple[Callable[[], Any], asyncio.Future[Any]] | None = first
            done: dict[asyncio.AbstractEventLoop, list[_Done]] = {}
            while job is not None:
                work, answer = job
                done.setdefault(answer.get_loop(), []).append(_outcome(work, answer))
                try:
                    job = self._jobs.get_nowait()
                except Empty:
                    break
            for loop, answers in done.items():
                _hand_over(loop, answers)
            if job is None:
                return


def _outcome(work: Callable[[], Any], answer: "asyncio.Future[Any]") -> _Done:
    try:
        return answer, work(), None
    except BaseException as error:  # noqa: BLE001  # whatever it is, it belongs to who asked
        return answer, None, error


def _hand_over(loop: asyncio.AbstractEventLoop, answers: list[_Done]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever asked
        loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: list[_Done]) -> None:
    for answer, result, error in answers:
        if answer.done():
            continue  # cancelled meanwhile
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)
