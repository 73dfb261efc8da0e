"""The command `openmanus` as real processes, without the seconds that each one's imports take.

One process imports everything and forks the rest, so that the tests can start hundreds of
commands. Each leads a session of its own and can be killed like any other. What an interpreter
does before `main` (reading the locale and `PYTHON...`, loading `sitecustomize`) it did once, for
all of them: tests of that start `openmanus` itself.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import typer.main

from openmanus_graph.config.entry_points import installed
from openmanus_graph.interfaces.cli.main import COMMANDS, app, load
from tests.support.limits import BACKSTOP_S

GRAPHS = tuple(
    f"openmanus_graph.graphs.{name}"
    for name in ("browser", "data_analysis", "desktop", "manus", "mcp", "swe")
)
PRELOADED = (
    "openmanus_graph.interfaces.cli.process",  # before what has exit handlers
    *GRAPHS,
    "anyio._backends._asyncio",
    "httpcore2",
    "langchain_core.messages.block_translators.langchain_v0",
    "langchain_core.tracers.context",
    "langchain_core.tracers.stdout",
    "genai_prices.data_snapshot",
    "langgraph.checkpoint.sqlite.aio",
    "rich._emoji_codes",
    "typer._click.decorators",
    "zmq",
    "openmanus_graph.interfaces.cli.main",
    "openmanus_graph.interfaces.service.run_setup",
    "openmanus_graph.interfaces.service.runner",
    "openmanus_graph.interfaces.cli.terminal",
    "openmanus_graph.interfaces.cli.screen",
    "openmanus_graph.backends.mcp.tool",
    "openmanus_graph.interfaces.mcp_server.server",
    "openmanus_graph.backends.models.openai_compatible",
    "openmanus_graph.nodes.create_plan",
    "openmanus_graph.nodes.create_plan",
    "openmanus_graph.nodes.check_step",
    "openmanus_graph.nodes.check_step",
    "openmanus_graph.nodes.schedule",
    "openmanus_graph.nodes.schedule",
    "openmanus_graph.backends.sandbox.kernel",
    "openmanus_graph.backends.sandbox.shell",
    "openmanus_graph.backends.search.searching",
    "openmanus_graph.tools.execution",
    "openmanus_graph.tools.execution",
    "typer._adapters",
)
COMMAND = "openmanus_graph.interfaces.cli.main:main"
LOCALE = "C.UTF-8"
MAX_REQUEST_BYTES = 1 << 17
LOST_OUTPUT = 120
"""The exit code of an interpreter that cannot write what was printed."""


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

    def __init__(self, program: str = COMMAND) -> None:
        """Begin to import what the commands need.

        Args:
            program: The function that a command runs, `MODULE:NAME`: `openmanus` by default.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(theirs.fileno()), program],
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
        """Start the program with these arguments.

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


def _serve(control: socket.socket, program: str) -> None:
    module, _, name = program.partition(":")
    main: Callable[[], object] = getattr(importlib.import_module(module), name)
    if program == COMMAND:
        _load_commands()
    installed("")  # reads of all packages what they bring
    gc.collect()
    gc.freeze()  # a collection here or in a command would touch all of it
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _ignore)  # written into the pipe, where it is seen
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _tell_ends(statuses)
        if control.fileno() in ready:
            request, fds, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 4)
            if not request:
                return
            *streams, status = fds
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _close(control.detach(), ended, wake, status, *statuses.values())
                _become(main, request, *streams)
            _close(*streams)
            statuses[pid] = status
            _tell(status, pid)


def _load_commands() -> None:
    for needed in PRELOADED:
        importlib.import_module(needed)
    # Half of a short command is making the command line of functions.
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)
    for name in COMMANDS:
        load(name)


def _ignore(number: int, frame: object) -> None:
    """Take a signal; one that is ignored is not written into the pipe."""


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def _tell_ends(statuses: dict[int, int]) -> None:
    """Write the exit codes of the commands that have ended."""
    for pid in list(statuses):
        found, how = os.waitpid(pid, os.WNOHANG)
        if found:
            status = statuses.pop(pid)
            _tell(status, os.waitstatus_to_exitcode(how))
            os.close(status)


def _tell(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any longer
        os.write(status, b"%d\n" % number)


def _become(main: Callable[[], object], request: bytes, *streams: int) -> None:
    argv, cwd, env = json.loads(request)
    os.setsid()
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
    if packages := [one for one in env.get("PYTHONPATH", "").split(os.pathsep) if one]:
        sys.path[:0] = packages
        for name in GRAPHS:  # built without the tools that these packages bring
            sys.modules.pop(name, None)
    sys.argv = ["openmanus", *argv]
    sys.modules["__main__"].__package__ = None  # else the help calls it `python -m ...`
    code: object = None
    try:
        main()
    except SystemExit as end:
        code = end.code
    _end(0 if code is None else code)


def _end(code: object) -> None:
    """End as an interpreter does, without taking its modules apart: that would copy all of them.

    Args:
        code: The exit code; with anything but a number the interpreter does it all itself.
    """
    if not isinstance(code, int):
        raise SystemExit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # joins the threads, by no public name
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            code = LOST_OUTPUT
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
