"""The command `openmanus` as real processes, without the seconds that each one's imports take.

One process imports everything and forks the rest, so that the tests can start hundreds of
commands. Each leads a session of its own and can be killed like any other. What an interpreter
does before `main` (reading the locale and `PYTHON...`, loading `sitecustomize`) it did once, for
all of them: tests of that start `openmanus` itself.
"""

import atexit
import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.limits import BACKSTOP_S

PRELOADED = (
    "anyio._backends._asyncio",
    "httpcore2",
    "langchain_core.tracers.context",
    "genai_prices.data_snapshot",
    "langchain_openai",
    "langgraph.checkpoint.sqlite.aio",
    "openai.resources.chat",
    "zmq",
    "openmanus_graph.interfaces.cli.chat",
    "openmanus_graph.interfaces.cli.fork",
    "openmanus_graph.interfaces.cli.person",
    "openmanus_graph.interfaces.cli.main",
    "openmanus_graph.interfaces.cli.mcp",
    "openmanus_graph.interfaces.cli.person",
    "openmanus_graph.interfaces.service.resume",
    "openmanus_graph.interfaces.cli.run",
    "openmanus_graph.interfaces.service.runner",
    "openmanus_graph.interfaces.cli.threads",
    "openmanus_graph.interfaces.cli.threads",
    "openmanus_graph.interfaces.cli.trust",
    "openmanus_graph.interfaces.cli.views",
    "openmanus_graph.interfaces.cli.screen",
    "openmanus_graph.interfaces.cli.demo",
    "openmanus_graph.interfaces.cli.doctor",
    "openmanus_graph.graphs.browser",
    "openmanus_graph.graphs.data_analysis",
    "openmanus_graph.graphs.desktop",
    "openmanus_graph.graphs.manus",
    "openmanus_graph.graphs.mcp",
    "openmanus_graph.graphs.swe",
    "openmanus_graph.backends.mcp.server_tools",
    "openmanus_graph.interfaces.mcp_server.server",
    "openmanus_graph.backends.models.openai_compatible",
    "openmanus_graph.nodes.approve_plan",
    "openmanus_graph.nodes.create_plan",
    "openmanus_graph.nodes.finalize",
    "openmanus_graph.nodes.review_step",
    "openmanus_graph.nodes.run_step",
    "openmanus_graph.nodes.schedule",
    "openmanus_graph.backends.sandbox.kernel",
    "openmanus_graph.backends.sandbox.shell",
    "openmanus_graph.backends.search.choose",
    "openmanus_graph.tools.bash",
    "openmanus_graph.tools.python_execute",
    "typer._adapters",
)
LOCALE = "C.UTF-8"
MAX_REQUEST_BYTES = 1 << 17


class Forked:
    """A command under way; like a `Popen`."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb")
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def wait(self, timeout_s: float = BACKSTOP_S) -> int:
        """Return the exit code; that of a killed process is the signal's number, negative."""
        if self.returncode is None:
            ready, _, _ = select.select([self._status], [], [], timeout_s)
            assert ready, f"process {self.pid} still runs"
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def poll(self, timeout_s: float = 0) -> int | None:
        """Return the exit code, or None if it still runs after so long."""
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            self.wait()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it alone, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class Zygote:
    """Starts commands; a context manager. Threads may share it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "LC_ALL": LOCALE},
            )

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        out: int,
        err: int,
        stdin: int | None = None,
    ) -> Forked:
        """Start `openmanus` with these arguments.

        Args:
            argv: The arguments.
            cwd: Its working folder.
            env: Its whole environment.
            out: The file descriptor that it writes to.
            err: The one for errors.
            stdin: The one that it reads; nothing by default. A terminal becomes its own.
        """
        request = json.dumps([list(argv), str(cwd), dict(env)]).encode()
        assert len(request) <= MAX_REQUEST_BYTES, "give it in a file"
        status, theirs = os.pipe()
        with open(os.devnull, "rb") as nothing, self._lock:  # noqa: PTH123  # no file of a folder
            given = nothing.fileno() if stdin is None else stdin
            socket.send_fds(self._control, [request], [given, out, err, theirs])
        os.close(theirs)
        return Forked(status)

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.close()
        self._process.wait()


def _serve(control: socket.socket) -> None:
    for name in PRELOADED:
        __import__(name)
    gc.collect()
    gc.freeze()  # a collection here or in a keeper would touch all of it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        request, fds, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 4)
        if not request:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _keep(request, *fds)
        for fd in fds:
            os.close(fd)


def _keep(request: bytes, stdin: int, out: int, err: int, status: int) -> None:
    """Start the command; write its number and, when it has ended, its exit code."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(request, stdin, out, err)
    for fd in (stdin, out, err):
        os.close(fd)
    os.write(status, b"%d\n" % pid)
    _, ended = os.waitpid(pid, 0)
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def _become(request: bytes, *streams: int) -> None:
    argv, cwd, env = json.loads(request)
    os.setsid()
    atexit.register(gc.freeze)  # the collection at the end would copy all of it
    if os.isatty(streams[0]):
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for standard, fd in enumerate(streams):
        os.dup2(fd, standard)
        os.close(fd)
    # Not those of before: they remember whether their file could seek.
    sys.stdin = os.fdopen(0, errors=sys.stdin.errors, closefd=False)
    sys.stdout = os.fdopen(1, "w", errors=sys.stdout.errors, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors=sys.stderr.errors, closefd=False)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = ["openmanus", *argv]
    sys.modules["__main__"].__package__ = None  # else the help calls it `python -m ...`
    from openmanus_graph.interfaces.cli.main import main

    main()  # ends by SystemExit


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
