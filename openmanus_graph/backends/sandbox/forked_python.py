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

from openmanus_graph.backends.sandbox import bwrap
from openmanus_graph.backends.sandbox.backend import Backend
from openmanus_graph.backends.sandbox.environment import SYSTEM_PATH, sandbox_environment
from openmanus_graph.backends.sandbox.limits import rlimits
from openmanus_graph.backends.sandbox.process_tree import Tree
from openmanus_graph.backends.sandbox.scratch import PARENT_PACKAGES, site_packages
from openmanus_graph.runtime.shutdown import signals_held
from openmanus_graph.runtime.workspace import Workspace, names_in, opened_folder
from openmanus_graph.state.settings import SandboxSettings

_PROGRAM = Path(__file__).with_name("fork_server.py")
_HOLDER = ("/bin/sh", "-c", 'echo; read -r code && exit "$code"; exit 1')
"""Holds a sandbox open for a forked process, and ends as it is told that one did, or by itself when
nobody is left to tell it."""
_START_TIMEOUT_S = 60.0


class ProgramStarter(Protocol):
    """A sandbox, as far as it is needed here."""

    settings: SandboxSettings
    workspace: Workspace
    backend: Backend

    def environment(self) -> dict[str, str]:
        """Make the environment of a program."""
        ...

    def start(self, program: Sequence[str], *, output: int, given: int) -> Tree:
        """Start a program."""
        ...

    def end(self, tree: Tree) -> None:
        """Kill a program and forget it."""
        ...


class ForkServer:
    """The process that forks others. It ends with its last user, and when this process does."""

    def __init__(self) -> None:
        """Start it. Raises OSError where that is impossible."""
        self._refused = False
        """Whether a start has failed: the next ones would, too."""
        variables = sandbox_environment(
            home=bwrap.HOME, tmp="/tmp", path=SYSTEM_PATH, network=False, host=os.environ
        )
        with _sealed_copy(os.path.realpath(sys.executable)) as program:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs, signals_held(), contextlib.ExitStack() as on_failure:
                on_failure.callback(self._control.close)
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
        """Start Python in a sandbox; None where it has to be started the usual way. Blocks.

        Args:
            sandbox: Of bubblewrap, with no packages of its own that the loaded ones would hide.
            arguments: The program as seen inside, and its arguments.
            output: File descriptor of its standard output and error.
            given: File descriptor of its standard input.
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
                socket.send_fds(self._control, [json.dumps(request).encode()], fds)
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
        """End it; what it has forked goes on."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """Let go of it in a forked child of this process: it is the parent's."""
        self._control.close()


def can_fork(sandbox: ProgramStarter) -> bool:
    """Say whether a forked process would be as one that is started in the sandbox.

    Not if the thread has installed packages, which could be other versions of the loaded ones.
    """
    if sandbox.backend.name != bwrap.Bwrap.name:
        return False
    try:
        workspace = sandbox.workspace
        with opened_folder(workspace, site_packages(workspace.python)) as folder:
            installed = names_in(folder)
    except OSError:  # programs may have removed it
        return False
    return installed == [PARENT_PACKAGES]


@contextlib.contextmanager
def _sealed_copy(program: str) -> Generator[int]:
    """Copy a program to where nobody can write to it; yield a file descriptor of the copy.

    A process may write to the file that it was made of, by `/proc/self/exe`, if its user may. The
    one in a sandbox would be the interpreter of the whole machine.
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
    """Make the request that starts Python in the sandbox that a program holds open."""
    return {
        "target": confining_process(tree),
        "groups": tree.group.entries if tree.group else [],
        "limits": rlimits(sandbox.settings, tree.group),
        "environment": sandbox.environment(),
        "folder": str(sandbox.workspace.root),
        "python": sandbox.backend.python,
        "packages": str(site_packages(sandbox.workspace.python)),
        "argv": list(arguments),
    }


_lock = threading.Lock()
_server: ForkServer | None = None
_users = 0


def use_fork_server() -> ForkServer | None:
    """Return the process that forks, to be left later on; None where there can be none."""
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
    """Need it no longer; the last one ends it."""
    global _server, _users
    with _lock:
        _users -= 1
        if not _users and _server is not None:
            _server.close()
            _server = None


def _leave_after_fork() -> None:
    """Let go of the process in a forked child of ours: it is the parent's."""
    global _lock, _server, _users
    _lock = threading.Lock()
    if _server is not None:
        _server.leave()
    _server, _users = None, 0


os.register_at_fork(after_in_child=_leave_after_fork)
