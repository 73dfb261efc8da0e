"""The network that all programs of a thread share in bubblewrap: a loopback without a way out."""

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.process import signals_held

# It creates sockets for us: a socket belongs to the network that it was created in.
_HOLDER = """
import os, socket, sys
control = socket.socket(fileno=int(sys.argv[1]))
control.send(b"%d" % os.getpid())
while family := control.recv(16):
    with socket.socket(int(family)) as made:
        socket.send_fds(control, [b"0"], [made.fileno()])
"""
_PATIENCE_S = 20.0


class HeldNetwork:
    """Held open by a process that ends with `close`, or with ours. Methods block for a moment."""

    def __init__(self, namespaces: Sequence[str]) -> None:
        """`namespaces` are options of bubblewrap next to the network. Nothing is started yet."""
        self._options = (*namespaces, "--unshare-net", "--cap-drop", "ALL", "--ro-bind", "/", "/")
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._holder = 0
        self._closed = False

    def holder(self) -> int:
        """Return the process that holds the network. It is started if there is none, or it ended.

        ToolError: It does not start, or is closed: a call that was abandoned may still go on.
        """
        with self._lock:
            if self._closed:
                raise ToolError("Nothing was run: the sandbox was closed meanwhile.")
            if self._process is None or self._process.poll() is not None:
                self._end()
                self._start()
            return self._holder

    def new_socket(self, family: int) -> socket.socket:
        """Return an unconnected TCP socket of the network."""
        self.holder()
        with self._lock:
            try:
                assert self._control is not None
                self._control.send(b"%d" % family)
                _, (made,), _, _ = socket.recv_fds(self._control, 16, 1)
            except (OSError, ValueError) as error:
                raise ToolError(
                    "The sandbox's network has ended. Start the server again."
                ) from error
        return socket.socket(fileno=made)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_PATIENCE_S)
        python = (sys.executable, "-I", "-S", "-c", _HOLDER, str(theirs.fileno()))
        with theirs, signals_held():
            self._process = subprocess.Popen(
                [shutil.which("bwrap") or "bwrap", *self._options, "--", *python],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        if not (said := self._control.recv(16)):
            raise ToolError(
                "Nothing was run: bubblewrap cannot make a network for the sandbox. A person has "
                "to run `openmanus doctor`."
            )
        self._holder = int(said)

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()  # the holder ends when it reads that
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            self._process.kill()
            self._process.wait()
        self._control = self._process = None
