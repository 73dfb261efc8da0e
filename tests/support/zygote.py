"""The command `openmanus` as real processes, without the second that each one's imports take.

One process imports everything and forks the rest, so that a crash matrix can start hundreds of
commands. Each is led by a session of its own and can be killed like any other.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

PRELOADED = (
    "langchain_openai",
    "langgraph.checkpoint.sqlite.aio",
    "openmanus_graph.cli.chat",
    "openmanus_graph.cli.main",
    "openmanus_graph.cli.mcp",
    "openmanus_graph.cli.resume",
    "openmanus_graph.cli.run",
    "openmanus_graph.cli.runner",
    "openmanus_graph.cli.threads",
    "openmanus_graph.cli.trust",
    "openmanus_graph.cli.views",
    "openmanus_graph.cli.demo",
    "openmanus_graph.cli.doctor",
    "openmanus_graph.graphs.browser",
    "openmanus_graph.graphs.data_analysis",
    "openmanus_graph.graphs.manus",
    "openmanus_graph.graphs.mcp",
    "openmanus_graph.graphs.swe",
    "openmanus_graph.mcp.offer",
    "openmanus_graph.mcp_server.server",
    "openmanus_graph.nodes.approve_plan",
    "openmanus_graph.nodes.create_plan",
    "openmanus_graph.nodes.finalize",
    "openmanus_graph.nodes.review_step",
    "openmanus_graph.nodes.run_step",
    "openmanus_graph.nodes.schedule",
    "openmanus_graph.sandbox.kernel",
    "openmanus_graph.sandbox.shell",
    "openmanus_graph.tools.bash",
    "openmanus_graph.tools.python_execute",
)


class Forked:
    """A command under way; like a `Popen`."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb")
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def wait(self, timeout_s: float) -> int:
        """Return the exit code; that of a killed process is the signal's number, negative."""
        if self.returncode is None:
            ready, _, _ = select.select([self._status], [], [], timeout_s)
            assert ready, f"process {self.pid} still runs"
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def kill(self) -> None:
        """Kill it alone, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


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
            )

    def start(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: int, err: int
    ) -> Forked:
        """Start `openmanus` with these arguments; it writes to these file descriptors."""
        status, theirs = os.pipe()
        request = json.dumps([list(argv), str(cwd), dict(env)]).encode()
        with self._lock:
            socket.send_fds(self._control, [request], [out, err, theirs])
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
    gc.freeze()  # a collection would copy all of it into each process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        request, fds, _, _ = socket.recv_fds(control, 1 << 16, 3)
        if not request:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _keep(request, *fds)
        for fd in fds:
            os.close(fd)


def _keep(request: bytes, out: int, err: int, status: int) -> None:
    """Start the command, tell its number and, when it has ended, its exit code."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(request, out, err)
    os.close(out)
    os.close(err)
    os.write(status, b"%d\n" % pid)
    _, ended = os.waitpid(pid, 0)
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def _become(request: bytes, out: int, err: int) -> None:
    argv, cwd, env = json.loads(request)
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for fd, standard in ((out, 1), (err, 2)):
        os.dup2(fd, standard)
        os.close(fd)
    # Not those of before: they remember whether their file could seek.
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = ["openmanus", *argv]
    from openmanus_graph.cli.main import main

    main()  # ends by SystemExit


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
