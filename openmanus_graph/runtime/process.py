"""What belongs to a whole process: background event loops, the signals that end it, its closing.

Live objects that are bound to one loop run on a loop of a separate thread, because callers come
from many loops: notebooks, servers, several `asyncio.run`.
"""

import asyncio
import contextlib
import inspect
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # heavy, and programs of the sandbox use this module
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph

    from openmanus_graph.state.context import Context

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


class EventLoopThread:
    """Runs coroutines on its own loop, which starts at the first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self.forget()

    def forget(self) -> None:
        """Reset after a fork: the child has the loop object but not its thread."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def started(self) -> bool:
        return self._loop is not None

    async def run(self, work: Work[T]) -> T:
        """Await work on this event loop from any other loop; a cancellation is passed on."""
        loop = self._started()
        if loop is asyncio.get_running_loop():
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))

    def call(self, work: Work[T], timeout_s: float | None = None) -> T:
        """Run work on this event loop and block until it is done; never call it from that loop.

        Work that is no longer awaited, for example after Ctrl-C, is cancelled.

        Raises:
            TimeoutError: It took too long.
            RuntimeError: It is called from that loop.
        """
        loop = self._started()
        if threading.current_thread() is self._thread:
            raise RuntimeError("This would wait for itself: await the coroutine instead.")
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    def begin(self, work: Work[Any]) -> Callable[[], None]:
        """Start work on this event loop from any thread, and return a function that cancels it.

        Cheaper than a future, since the result is not needed.
        """
        loop, tasks = self._started(), list[asyncio.Task[Any]]()
        loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(work())))

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the work with it
                loop.call_soon_threadsafe(lambda: tasks[0].cancel())

        return cancel

    def stop(self) -> None:
        """End the loop and its thread; the next use starts them again. Blocks."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                # Ctrl-C in the terminal must not reach processes started here, such as browsers.
                session = partial(loop.subprocess_exec, start_new_session=True)
                loop.subprocess_exec = session  # type: ignore[method-assign]  # as asyncio calls it
                # Calls that ran when a browser crashed fail, and nothing awaits them.
                self._loop.set_exception_handler(
                    lambda loop, context: log.info(
                        "on a loop of live handles: %s",
                        context["message"],
                        exc_info=context.get("exception"),
                    )
                )
                # A daemon: the process may end at any time, see `browsers.close_all`.
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop


class BackgroundTasks:
    """Keeps references to tasks until they end, and ignores what they raise."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def spawn(self, awaitable: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(awaitable)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Retrieves the exception, so that asyncio does not log it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def wait(self, limit_s: float | None = None) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


CANCEL_S = 10
"""Seconds to wait for a cancelled run, which still saves the state of its calls."""
run_loop = EventLoopThread("openmanus runs")
"""Shared by all calls, so that kernels, shells and browsers stay open between them."""
os.register_at_fork(after_in_child=run_loop.forget)


def invoke(
    graph: "CompiledStateGraph[Any, Any, Any, Any]",
    given: Any,
    config: "RunnableConfig | None" = None,
    *,
    context: "Context | None" = None,
) -> dict[str, Any]:
    """Run a graph and block until it ends or waits: `graph.ainvoke` for code that cannot await.

    Works in scripts, and in notebooks and servers whose event loop runs already (which it blocks).

    Args:
        graph: Made by one of the builders, or a graph of yours that contains one.
        given: The graph's input, a `Command`, or None to continue.
        config: As for `graph.ainvoke`.
        context: Settings of this run.

    Returns:
        The state's values; open questions are in `__interrupt__`.
    """
    ended = threading.Event()

    async def run() -> dict[str, Any]:
        try:
            return await graph.ainvoke(given, config, context=context)
        finally:
            ended.set()

    try:
        return run_loop.call(run)
    except KeyboardInterrupt:  # the run is cancelled now, and its thread can continue later
        ended.wait(CANCEL_S)
        raise


ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_held() -> Generator[None]:
    """Start processes from this OS thread in the block: they begin with these signals blocked.

    A separate session is not enough, since a process gets it a moment after its start. A program
    that signals should end unblocks them, as `launch.py` does.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


Closer = Callable[[], Awaitable[None] | None]
"""Closes one kind of thing: a coroutine function, or a function that may block."""
_closers: list[Closer] = []
_last: list[Closer] = []


def register_closer(closer: Closer, *, last: bool = False) -> None:
    """Register a closer for `close`; modules do so when they are loaded.

    It does nothing if nothing is open, and may be called again. With `last`, it is called after the
    others, which may still write to what it closes: databases.
    """
    (_last if last else _closers).append(closer)


async def close() -> None:
    """Close everything: kernels, shells, browsers, connections, databases, and their threads.

    Call it when an app shuts down, or does not use its graphs for a while: the next run opens what
    it needs again. Owned threads (`open_session`) and running runs keep their sessions; while there
    are any, shared resources stay open, too. A process that simply ends does not need it.

    Connections to models belong to an event loop. Only those of the current loop are closed.
    """
    from openmanus_graph.runtime.session_registry import close_unused  # which is heavy

    if not await asyncio.to_thread(close_unused):
        return
    for closer in (*_closers, *_last):
        if inspect.iscoroutinefunction(closer):
            await closer()
        else:
            await asyncio.to_thread(closer)
