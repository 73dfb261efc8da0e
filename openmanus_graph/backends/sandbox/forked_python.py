"""Starts Python in a sandbox by forking a process that has loaded the kernel's modules already.

Loading them takes most of a kernel's CPU at its start and most of its memory, which those that are
forked share. One such process serves all sandboxes that are open. Linux only; see docs/adr/0008.
"""

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import psutil

from openmanus_graph.backends.sandbox import choose, scratch
from openmanus_graph.backends.sandbox.backend import Backend
from openmanus_graph.backends.sandbox.process_tree import Tree, rlimits
from openmanus_graph.runtime.process import signals_held
from openmanus_graph.runtime.workspace import Workspace, names_in, opened_folder
from openmanus_graph.state.settings import SandboxSettings

_PROGRAM = Path(__file__).with_name("fork_server.py")
_HOLDER = ("/bin/sh", "-c", 'echo; read -r code && exit "$code"; exit 1')
"""Holds a sandbox open for a forked process. It ends with the exit code that it reads from its
input, or when the other side of its input is closed."""
_START_TIMEOUT_S = 60.0


class ProgramStarter(Protocol):
    """The part of `Sandbox` that is needed here."""

    settings: SandboxSettings
    workspace: Workspace
    backend: Backend

    def environment(self) -> dict[str, str]: ...

    def start(self, program: Sequence[str], *, output: int, given: int) -> Tree: ...

    def end(self, tree: Tree) -> None: ...


class ForkServer:
    """The process that forks others. It ends with its last user, or when this process ends."""

    def __init__(self) -> None:
        """Start it. Raises OSError if that is impossible."""
        self._refused = False
        """Whether a start has failed: the next ones would fail too."""
        variables = scratch.sandbox_environment(
            home=choose.HOME, tmp="/tmp", path=scratch.SYSTEM_PATH, network=False, host=os.environ
        )
        with _sealed_copy(os.path.realpath(sys.executable)) as program:
            self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, signals_held(), contextlib.ExitStack() as on_failure:
                on_failure.callback(self.control.close)
                self._process = subprocess.Popen(
                    [sys.executable, str(_PROGRAM), str(theirs.fileno())],
                    executable=f"/proc/self/fd/{program}",
                    pass_fds=(theirs.fileno(), program),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=variables,
                    cwd="/",
                    start_new_session=True,
                )
                on_failure.pop_all()

    def start(
        self, sandbox: ProgramStarter, arguments: Sequence[str], *, output: int, given: int
    ) -> Tree | None:
        """Start Python in a sandbox for which `can_fork` is true. Blocks.

        None: it must be started the usual way. The other parameters are as of
        `Sandbox.start_python`.
        """
        if self._refused:
            return None
        deadline = time.monotonic() + _START_TIMEOUT_S
        with _pipe() as (held, holding), _pipe() as (report, reporting), _pipe() as (end, at_end):
            tree = sandbox.start(_HOLDER, output=holding.fileno(), given=end.fileno())
            holding.close()
            try:
                _line(held, deadline)
                request = _request(sandbox, tree, arguments)
                fds = (given, output, reporting.fileno(), at_end.fileno())
                socket.send_fds(self.control, [json.dumps(request).encode()], fds)
                reporting.close()
                tree.joined = int(_line(report, deadline))
                if _line(report, deadline) == b"ready":
                    return tree
            except (OSError, ValueError, IndexError, psutil.Error):
                pass
        self._refused = True
        sandbox.end(tree)
        return None

    def close(self) -> None:
        """End it. The processes that it has forked continue."""
        self.control.close()
        self._process.kill()
        self._process.wait()


def can_fork(sandbox: ProgramStarter) -> bool:
    """Return True if a forked process would be the same as one that is started in the sandbox.

    False if the thread has installed packages: they could be other versions of the loaded ones.
    """
    if sandbox.backend.name != choose.Bwrap.name:
        return False
    try:
        workspace = sandbox.workspace
        with opened_folder(workspace, scratch.site_packages(workspace.python)) as folder:
            installed = names_in(folder)
    except OSError:  # programs may have removed it
        return False
    return installed == [scratch.PARENT_PACKAGES]


@contextlib.contextmanager
def _sealed_copy(program: str) -> Generator[int]:
    """Copy a program to where no process can write to it; yield a file descriptor of the copy.

    A process may write to its own program by `/proc/self/exe`, if its user may. In a sandbox that
    would be the interpreter of the whole machine.
    """
    copy = os.memfd_create("python", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(program, "rb") as source:  # noqa: PTH123  # no file of a folder is made of it
            os.sendfile(copy, source.fileno(), 0, os.fstat(source.fileno()).st_size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, seals)
        readable = os.open(f"/proc/self/fd/{copy}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(copy)  # what is open for writing cannot be run
    try:
        yield readable
    finally:
        os.close(readable)


@contextlib.contextmanager
def _pipe() -> Generator[tuple[BinaryIO, BinaryIO]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as reader, os.fdopen(writing, "wb", 0) as writer:
        yield reader, writer


def _line(pipe: BinaryIO, deadline: float) -> bytes:
    """Read a line. Raises OSError if none comes."""
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        byte = pipe.read(1)
        if not byte:
            raise BrokenPipeError
        line += byte
    return line.strip()


def confining_process(tree: Tree) -> int:
    """Return the number of a process that runs inside of a sandbox."""
    return psutil.Process(tree.process.pid).children(recursive=True)[-1].pid


def _request(sandbox: ProgramStarter, tree: Tree, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the request that starts Python in the sandbox that `tree` holds open."""
    return {
        "target": confining_process(tree),
        "groups": tree.group.entries if tree.group else [],
        "limits": rlimits(sandbox.settings, tree.group),
        "environment": sandbox.environment(),
        "folder": str(sandbox.workspace.root),
        "python": sandbox.backend.python,
        "packages": str(scratch.site_packages(sandbox.workspace.python)),
        "argv": list(arguments),
    }


_lock = threading.Lock()
_server: ForkServer | None = None
_users = 0


def use_fork_server() -> ForkServer | None:
    """Return the fork server, for `leave_fork_server` later; None if there can be none."""
    global _server, _users
    with _lock:
        if _server is None:
            try:
                _server = ForkServer()
            except OSError:
                return None
        _users += 1
        return _server


def leave_fork_server() -> None:
    """Give the fork server back. The last user ends it."""
    global _server, _users
    with _lock:
        _users -= 1
        if not _users and _server is not None:
            _server.close()
            _server = None


def _leave_after_fork() -> None:
    global _lock, _server, _users
    _lock = threading.Lock()
    if _server is not None:
        _server.control.close()  # the fork server belongs to the parent
    _server, _users = None, 0


os.register_at_fork(after_in_child=_leave_after_fork)
