"""What only our own processes do: handle signals, end with one line instead of a traceback.

They also collect garbage less often, send traces, and serve over stdio. A library leaves all that
to the app, so nothing that an app imports may use this module.
"""

import asyncio
import atexit
import contextlib
import errno
import gc
import logging
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from openmanus_graph.errors import ConfigError, StorageError, install_extra
from openmanus_graph.runtime.process import ENDING_SIGNALS

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ALLOCATIONS = 50_000
"""Allocations between two collections. Python's default is 700 (2,000 since 3.13), with which it
would scan loaded modules, which stay in memory, hundreds of times."""
SERVICE = "openmanus"
"""The name of our traces."""
PARSE_ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n'
"""JSON-RPC's answer to a line that is not a message."""
FLUSH_S = 2.0
"""Seconds that a client gets to read the last messages."""
SIGNAL_EXIT = 128
"""Added to the number of the signal that ended a run, as shells do."""
TERM_GRACE_S = 20.0
"""Seconds that the running step gets after SIGTERM or SIGHUP; Ctrl-C waits as long as it takes."""
CUT_OFF_S = 10.0
"""Seconds that a run gets to end once it was cut off, before the process ends without it."""
CLOSING_S = 30.0
"""Seconds that a process gets to close what it opened, once its run has ended."""
_DISK_ERRNOS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV,
    errno.ENOENT,
}  # fmt: skip


class RunError(RuntimeError):  # LangGraph's API shows its text, as that of `ConfigError`
    """The run cannot start or continue now; exit code 1."""


class ReportedError(RunError):
    """A `RunError` that the `final` event has reported already."""


def prepare_home(home: Path) -> None:
    """Create the home folder, which git ignores. ConfigError if it cannot be written."""
    from openmanus_graph.config.homes import make_folder, overlook  # which is heavy

    try:
        make_folder(home)
        overlook(home)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise ConfigError(
            f"{home} cannot be written ({error.strerror}). Set OPENMANUS_HOME to another folder."
        ) from error


def is_storage_fault(error: Exception) -> bool:
    """Return True if the disk or a database failed, and not the run."""
    is_of_disk = isinstance(error, OSError) and error.errno in _DISK_ERRNOS
    return is_of_disk or isinstance(error, StorageError)


def describe_failure(error: Exception, home: Path) -> str:
    """Describe why a run failed; if the disk of a home folder did, also what to do."""
    if not is_storage_fault(error):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):
        return (
            f"{error.filename or home} cannot be used: {error.strerror}. Make room there, or bring "
            "the disk back."
        )
    return str(error)


def relax_garbage_collection() -> None:
    """Collect garbage less often, and exclude the objects that exist now.

    Called when a process starts, and by a server again when its modules are loaded: a scan of all
    modules takes a tenth of a second, in which no request is served.
    """
    gc.set_threshold(ALLOCATIONS)
    gc.freeze()


def export_traces() -> None:
    """Set up a tracer provider if OpenTelemetry's standard variables ask for one.

    The SDK reads them all: endpoint, headers, sampler, resource, batches. It sends the remaining
    spans when the process exits.
    """
    wanted = any(
        os.environ.get(name)
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    )
    if exporters := os.environ.get("OTEL_TRACES_EXPORTER", "").replace(" ", ""):
        wanted = "otlp" in exporters.split(",")
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    try:
        installed = all(
            find_spec(name) is not None
            for name in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
        )
    except ModuleNotFoundError:  # a package above it
        installed = False
    if not installed:
        sys.stderr.write(
            "openmanus: traces are not sent, because the extra `otel` is not installed. "
            f"{install_extra('otel')}\n"
        )
        return
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(make_provider())  # else `opentelemetry-instrument` has set one


def make_provider() -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # An unreachable collector must not write into what the user reads; --log has it.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    ours = Resource.create({SERVICE_NAME: SERVICE})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def send_traces() -> None:
    from opentelemetry import trace

    flush = getattr(trace.get_tracer_provider(), "force_flush", None)  # only the SDK's have it
    if flush is not None:
        flush()


class StdioPipes:
    """The process's stdin and stdout, reserved for a protocol that is spoken over them."""

    def __init__(self) -> None:
        self._reading, self._writing = os.dup(0), os.dup(1)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # Daemons: they may be waiting for the client when the process ends.
        self._writer = threading.Thread(target=self._write, daemon=True, name="stdout")
        self._writer.start()

    def send(self, data: bytes) -> None:
        self._outgoing.put(data)

    def flush(self) -> None:
        """Send what is queued, and stop. Blocks."""
        self._outgoing.put(None)
        self._writer.join(FLUSH_S)

    def listen(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Queue[bytes | None]":
        """Return a queue that gets each line of the client, and None when it has hung up."""
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        def read() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                with contextlib.suppress(OSError):
                    for line in self._lines():
                        loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, None)

        threading.Thread(target=read, daemon=True, name="stdin").start()
        return lines

    def _lines(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        while piece := os.read(self._reading, 1 << 16):
            first, *others = piece.split(b"\n")
            pieces.append(first)
            for other in others:
                yield b"".join(pieces)
                pieces = [other]
        yield b"".join(pieces)

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the client has hung up
            while (data := self._outgoing.get()) is not None:
                while data:
                    data = data[os.write(self._writing, data) :]


def continue_after_cancellation() -> None:
    """Let the current task continue: a cancellation was meant for what it ran."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()


class Drainable(Protocol):
    """A run's `RunControl`, or many of them: lets the running step finish, and starts no other."""

    def request_drain(self, reason: str) -> Any: ...


class Signals:
    """Handles Ctrl-C, SIGTERM and SIGHUP during one run, or one batch of them.

    The first signal lets the running step finish, SIGTERM and SIGHUP for a limited time; Ctrl-C
    ends requests to the model at once (`unless_interrupted`). A second signal cuts the step off.
    After that only the `final` event is written, and no signal prevents it. With `ends_process`,
    the process ends with the run: later signals end it with `exit_code`, and so does a thread that
    never ends, in a system call or a library.
    """

    def __init__(
        self, control: Drainable, emit: Callable[..., None], *, ends_process: bool = False
    ) -> None:
        self.first: signal.Signals | None = None
        """The one that ends the run."""
        self.over = False
        """The run has ended: further signals are ignored."""
        self.exit_code: int | None = None
        """Of the run, once it is known."""
        self._control, self._emit, self._ends_process = control, emit, ends_process
        self._task: asyncio.Task[Any] | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._end: threading.Timer | None = None
        self._asking = False

    @contextlib.contextmanager
    def asking(self) -> Generator[None]:
        """Mark the time of a question to the user, in which a signal cancels at once."""
        self._asking = True
        try:
            yield
        finally:
            self._asking = False

    @contextlib.contextmanager
    def handled(self) -> Generator[None]:
        """Handle signals meanwhile. Cutting the run off cancels the current task."""
        loop, self._task = asyncio.get_running_loop(), asyncio.current_task()

        def receive(number: int, frame: object) -> None:
            loop.call_soon_threadsafe(self._handle, signal.Signals(number))

        def end(number: int, frame: object) -> None:
            os._exit(self.exit_code or 0)

        # With any signal handler the loop wakes up for all signals, also for one that arrives just
        # before it waits, or in another thread. This handler itself is never called.
        loop.add_signal_handler(signal.SIGURG, bool)
        # Under `nohup` SIGHUP stays ignored.
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        numbers = [one for one in ENDING_SIGNALS if not (one == signal.SIGHUP and ignored)]
        # Not the loop's handlers: after removing one, the next signal kills the process.
        before = {number: signal.signal(number, receive) for number in numbers}
        try:
            yield
        finally:
            ending = self._ends_process and self.exit_code is not None
            for number, handler in before.items():
                signal.signal(number, end if ending else handler)
            loop.remove_signal_handler(signal.SIGURG)
            if self._grace is not None:  # the run has ended in time
                self._grace.cancel()
            if self._end is not None:
                self._end.cancel()
                self._end = None
            if ending:
                # The interpreter resets all other handlers while it ends.
                for number in before:
                    atexit.register(signal.signal, number, signal.SIG_IGN)
                self._end_in(CLOSING_S, self.exit_code or 0)

    def _handle(self, number: signal.Signals) -> None:
        if self.over:
            return
        first, self.first = self.first is None, self.first or number
        if not first or self._asking:
            self._cut_off(number)
            return
        self._control.request_drain(number.name)
        limit = ""
        if number != signal.SIGINT:
            limit = f", for at most {TERM_GRACE_S:g} s"
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(TERM_GRACE_S, self._cut_off, number)
        text = f"Finishing the running step{limit}; once more stops it at once."
        self._emit(type="notice", level="warning", text=text)

    def _cut_off(self, number: signal.Signals) -> None:
        if self._task is not None and not self.over:
            self._end_in(CUT_OFF_S, SIGNAL_EXIT + number)
            self._task.cancel()

    def _end_in(self, seconds: float, code: int) -> None:
        if self._end is None:
            self._end = threading.Timer(seconds, os._exit, (code,))
            self._end.daemon = True
            self._end.start()
