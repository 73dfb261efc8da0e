"""A Jupyter kernel in the sandbox, and its message protocol."""

import base64
import contextlib
import io
import itertools
import json
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from openmanus_graph.backends.sandbox.confinement import Sandbox
from openmanus_graph.backends.sandbox.shell import describe_kernel
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS, newest_line, shorten_file
from openmanus_graph.runtime.workspace import find

if TYPE_CHECKING:
    from jupyter_client.session import Session


MOST_BYTES = 16 << 20
"""Of one message."""
_MOST_FRAMES = 100
_RETRY_S = 0.02
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
_MORE, _LONG, _COMMAND = 1, 2, 4


class KernelChannel:
    """Connects as soon as the kernel listens; what is sent before that waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._greeted = self._ready = False
        self._waiting, self._unsent, self._unread = bytearray(), bytearray(), bytearray()
        self._frames: list[bytes] = []
        self._size = 0
        """Bytes of the frames."""

    def send_multipart(self, frames: Sequence[bytes], **_: Any) -> None:
        """Send a message as far as possible now. `receive` sends the rest."""
        written = bytearray()
        for number, frame in enumerate(frames):
            written += _written(frame, _MORE if number < len(frames) - 1 else 0)
        (self._unsent if self._ready else self._waiting).extend(written)
        if self._socket is not None and self._ready:
            with contextlib.suppress(OSError):  # full, or lost, which `receive` notices
                del self._unsent[: self._socket.send(self._unsent)]

    def receive(self, timeout_s: float) -> list[bytes] | None:
        """Return the next message; None if none comes in time.

        Raises:
            OSError: The connection is lost, or what comes is not a message or too large.
        """
        deadline = time.monotonic() + timeout_s
        while (message := self._next()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if self._socket is None and not self._connect():
                time.sleep(min(left, _RETRY_S))
            elif self._socket is not None:
                self._transfer(self._socket, left)
        return message

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _connect(self) -> bool:
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            connection.connect(str(self._path))
        except OSError:  # it does not listen yet
            connection.close()
            return False
        self._socket, self._greeted = connection, False
        self._unsent, self._unread = bytearray(_GREETING + _written(_READY, _COMMAND)), bytearray()
        return True

    def _transfer(self, connection: socket.socket, timeout_s: float) -> None:
        """Send and read what is possible now. Connect again if the kernel does not listen yet."""
        waiting = select.poll()
        waiting.register(connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        try:
            for _, event in waiting.poll(int(timeout_s * 1000) + 1):
                if event & select.POLLOUT:
                    del self._unsent[: connection.send(self._unsent)]
                if event & ~select.POLLOUT:
                    if not (data := connection.recv(1 << 16)):
                        raise ConnectionError("it was closed")
                    self._unread += data
        except OSError:
            if self._ready:
                raise
            connection.close()  # something in between listens before the kernel does
            self._socket = None
            time.sleep(min(timeout_s, _RETRY_S))

    def _next(self) -> list[bytes] | None:
        """Take the next message from what has been read, if all of it is there."""
        while (found := self._next_frame()) is not None:
            flags, frame = found
            if flags & _COMMAND:
                if frame.startswith(_READY[:6]) and not self._ready:
                    self._ready = True
                    self._unsent += self._waiting
                continue
            self._frames.append(frame)
            self._size += len(frame)
            if not flags & _MORE:
                message, self._frames, self._size = self._frames, [], 0
                return message
        return None

    def _next_frame(self) -> tuple[int, bytes] | None:
        unread = self._unread
        if not self._greeted:
            if len(unread) < len(_GREETING):
                return None
            del unread[: len(_GREETING)]
            self._greeted = True
        if len(unread) < 2:
            return None
        flags = unread[0]
        begin = 9 if flags & _LONG else 2
        size = int.from_bytes(unread[1:begin])
        if len(unread) < begin:
            return None
        if self._size + size > MOST_BYTES or len(self._frames) == _MOST_FRAMES:
            raise ConnectionError("a message is too large")
        if len(unread) < begin + size:
            return None
        frame = bytes(unread[begin : begin + size])
        del unread[: begin + size]
        return flags, frame


def _written(frame: bytes, flags: int) -> bytes:
    """Return a frame as it is sent."""
    if len(frame) > 0xFF:
        return bytes([flags | _LONG]) + len(frame).to_bytes(8) + frame
    return bytes([flags, len(frame)]) + frame


_PROGRAMS = [Path(__file__).with_name(f"{name}.py") for name in ("kernel_program", "cell_tools")]
_PNG_URL = "data:image/png;base64,"
"""Begins a picture that the cell has shown and that is not a file."""
_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
_MESSAGE_PARTS = ("header", "parent_header", "metadata", "content")
_INVALID_MESSAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Errors that the session raises for invalid frames and wrong signatures."""
_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 2
"""Seconds an interrupted cell has to stop."""
_POLL_S = 0.05
_MAX_SPOOL_BYTES = 16 << 20
"""Bytes of output kept before the file is emptied."""


MOST_PICTURES = 20
"""Of one cell."""
_MOST_PICTURE_LINES = 1000
"""Lines of the list of pictures that are read: one picture may be shown again and again."""


@dataclass(frozen=True)
class CellResult:
    text: str
    pictures: tuple[str, ...]
    outcome: Literal["ok", "error", "interrupted", "dead"]
    reason: str = ""
    """Why the kernel died."""


class Kernel:
    """A handle of the session. `pool` runs its blocking methods, one at a time.

    The pool's thread lives as long as the kernel: sockets belong to one thread, and the
    sandbox dies with the thread that started it.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="openmanus-kernel")
        self.stop = threading.Event()
        """Set from another thread to interrupt the running cell."""
        self._memory: Any = None
        """The variables in the kernel's memory by the last reply; untrusted, from the sandbox."""
        self._run, self._files = sandbox.layout.run, sandbox.layout.files
        self.pool.submit(self._start).result()

    @property
    def alive(self) -> bool:
        return self._tree.alive()

    def execute(
        self, code: str, timeout_s: float, max_chars: int = MIN_OBSERVATION_CHARS
    ) -> CellResult:
        """Run a cell and return at most `max_chars` characters. Blocks; call it on `pool`."""
        code = code.encode("utf-8", "replace").decode()
        self._files.remove(self._run / "pictures")
        with self._sandbox.call(self._tree):
            cell: dict[str, Any] = {"code": code, "silent": False, "store_history": False}
            # After an error the kernel would refuse the requests that come at the same moment.
            cell |= {"allow_stdin": False, "stop_on_error": False}
            message_id = self._send(self._shell, "execute_request", cell)
            reply = self._reply(self._shell, message_id, time.monotonic() + timeout_s)
            outcome = _outcome(reply) if reply else self._interrupt(message_id)
        if self._tree.reason:  # its changes could not be fetched
            outcome = "dead"
        text, pictures = self._new_output(max_chars), self._pictures()
        if len(pictures) > MOST_PICTURES:
            text += f"[Only the first {MOST_PICTURES} pictures are shown.]\n"
        if reply is not None and "status" not in reply:
            text += "[Python did not say how the code ended.]\n"
        why = self.why() if outcome == "dead" else ""
        return CellResult(text, pictures[:MOST_PICTURES], outcome, why)

    def newest_line(self) -> str:
        """Return the newest line that the running cell has written; any thread may ask."""
        return newest_line(self._spool, self._read_offset)

    def handle_state(self) -> str:
        """Describe what cells have left in the kernel's memory, for the model."""
        return describe_kernel(self._memory)

    def close(self) -> None:
        self.stop.set()
        self._sandbox.end(self._tree)
        try:
            self.pool.submit(self._opened.close).result()
        except RuntimeError:  # the interpreter ends, and has ended its threads already
            self._opened.close()
        self.pool.shutdown()

    def _start(self) -> None:
        sandbox, inside = self._sandbox, self._sandbox.backend.inside
        connection: dict[str, Any] = dict(zip(_PORTS, range(1, 6), strict=True))
        connection |= {"transport": "ipc", "ip": inside(self._run / "k")}
        connection |= {"key": secrets.token_hex(16), "signature_scheme": "hmac-sha256"}
        for port in range(1, 7):  # sockets of a kernel that has ended
            self._files.remove(self._run / f"k-{port}")
        self._files.write(self._run / "kernel.json", json.dumps(connection).encode())
        for one in _PROGRAMS:
            self._files.write(self._run / one.name, one.read_bytes())
        paths = (self._run / _PROGRAMS[0].name, self._run, self._run / "kernel.json")
        argv = [inside(path) for path in paths]
        with contextlib.ExitStack() as opened:
            opened.callback(self.pool.shutdown, wait=False)
            child_end, parent_end = os.pipe()
            lifeline = opened.enter_context(os.fdopen(child_end, "rb"))
            # Held open: the kernel ends when it is closed, however this process ends.
            opened.enter_context(os.fdopen(parent_end, "wb"))
            spool = self._run / "python.out"
            self._files.remove(spool)
            self._spool = opened.enter_context(self._files.create(spool))
            """Its output, read by the open file: a cell may replace the one of its name."""
            output = self._spool.fileno()
            self._tree = sandbox.start_python(argv, output=output, given=lifeline.fileno())
            opened.callback(sandbox.end, self._tree)
            lifeline.close()
            from jupyter_client.session import Session  # takes a while, as the kernel's start does

            self._session = Session(username="openmanus", key=connection["key"].encode())
            self._shell, self._control = (
                KernelChannel(sandbox.backend.reach(self._run / f"k-{connection[port]}"))
                for port in ("shell_port", "control_port")
            )
            opened.callback(self._shell.close)
            opened.callback(self._control.close)
            with sandbox.call(self._tree):
                # Both: an interrupt must not wait until a channel is connected.
                ready = self._answers(self._shell) and self._answers(self._control)
            if not ready:
                sandbox.end(self._tree)
                self._spool.seek(0)
                printed = self._spool.read()[-1500:].decode("utf-8", "replace").strip()
                raise ToolError(
                    f"Python did not start in the sandbox. It said: {printed or 'nothing'}"
                )
            self.tools = opened.enter_context(socket.socket(socket.AF_UNIX))
            """Leads to the object `tools` of cells, except on another machine."""
            if not sandbox.backend.elsewhere:
                self.tools.connect(str(sandbox.backend.reach(self._run / "k-6")))
            self._opened = opened.pop_all()
        self._read_offset = os.fstat(self._spool.fileno()).st_size

    def _send(self, channel: KernelChannel, kind: str, content: dict[str, Any]) -> str:
        """Send a request; return its message id, which the reply refers to."""
        stream: Any = channel  # the session asks no more of it than that
        message: Any = self._session.send(stream, kind, content)
        return str(message["header"]["msg_id"])

    def _answers(self, channel: KernelChannel) -> bool:
        """Return True when the kernel has started. Blocks."""
        message_id = self._send(channel, "kernel_info_request", {})
        return self._reply(channel, message_id, time.monotonic() + _START_TIMEOUT_S) is not None

    def _reply(
        self, channel: KernelChannel, message_id: str, deadline: float
    ) -> dict[str, Any] | None:
        """Wait for the reply to a request; None on timeout or when the kernel has died."""
        while time.monotonic() < deadline and not self.stop.is_set():
            alive = self._tree.alive()
            try:
                frames = channel.receive(_POLL_S)
            except OSError:
                self._end_lost()
                return None
            if frames is not None:
                message = read_message(self._session, frames)
                if message and message["parent_header"].get("msg_id") == message_id:
                    self._memory = message["content"].get("memory", self._memory)
                    return dict(message["content"])
            elif not alive:
                return None
        return None

    def _end_lost(self) -> None:
        """Kill a kernel whose connection is lost, unless it ends by itself: that says more."""
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self._tree.alive() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if self._tree.alive():
            self._tree.kill(
                "Its connection was closed, or it sent more than "
                f"{MOST_BYTES >> 20} MB in one message."
            )

    def _interrupt(self, message_id: str) -> Literal["interrupted", "dead"]:
        """Interrupt a cell; kill the kernel if it does not stop.

        The first interrupt cancels code that awaits, and the second one raises in any code.
        """
        self.stop.clear()
        for _ in range(2):
            if not self._tree.alive():
                return "dead"
            interrupt_id = self._send(self._control, "interrupt_request", {})
            stopped = self._reply(self._shell, message_id, time.monotonic() + _STOP_TIMEOUT_S)
            # The cell may end by itself meanwhile; the interrupt must not hit the next one.
            if stopped and self._reply(
                self._control, interrupt_id, time.monotonic() + _START_TIMEOUT_S
            ):
                return "interrupted"
        self._tree.kill("It did not stop when it was interrupted.")
        return "dead"

    def why(self) -> str:
        if not self._tree.reason and self._tree.out_of_memory():
            return f"It used more than {self._sandbox.settings.memory_mb} MB of memory."
        return self._tree.reason or f"It ended by itself, {self._tree.ending()}."

    def _new_output(self, max_chars: int) -> str:
        """Read the output since the last call, also that of background threads."""
        file, start = self._spool, self._read_offset
        self._read_offset = end = os.fstat(file.fileno()).st_size
        text = shorten_file(
            file, self._sandbox.workspace, start=start, end=end, max_chars=max_chars
        )
        if end > _MAX_SPOOL_BYTES and os.fstat(file.fileno()).st_size == end:
            # The kernel writes at the file's end, wherever that is, so this is safe.
            os.ftruncate(self._spool.fileno(), 0)
            self._read_offset = 0
        return text

    def _pictures(self) -> tuple[str, ...]:
        """Return the files of shown pictures, at most one more than used. The list is untrusted."""
        workspace, found = self._sandbox.workspace, dict[str, None]()
        listed = io.BytesIO(self._files.read(self._run / "pictures"))
        for line in itertools.islice(listed, _MOST_PICTURE_LINES):
            if len(found) > MOST_PICTURES:
                break
            name = line.decode("utf-8", "replace").rstrip("\n")
            with contextlib.suppress(ToolError, OSError, ValueError):
                if name.startswith(_PNG_URL):
                    picture = base64.b64decode(name.removeprefix(_PNG_URL))
                    found[workspace.relative(workspace.keep(picture, ".png"))] = None
                elif (named := find(workspace, name)) and named.is_file:
                    found[named.path] = None
        return tuple(found)


def _outcome(reply: dict[str, Any]) -> Literal["ok", "error"]:
    """Read the kernel's answer; `exit()` and `sys.exit(0)` are not failures."""
    normal = ("", "0", "None", "False")  # `unittest.main()` exits with False
    exited_normally = reply.get("ename") == "SystemExit" and reply.get("evalue") in normal
    return "ok" if reply.get("status") == "ok" or exited_normally else "error"


def read_message(session: "Session", frames: list[bytes]) -> dict[str, Any] | None:
    """Return a message as a dict; None if it is invalid or its signature is wrong."""
    try:
        _, parts = session.feed_identities(frames)
        message: dict[str, Any] = session.deserialize(parts)
    except _INVALID_MESSAGE:
        return None
    return message if all(isinstance(message[name], dict) for name in _MESSAGE_PARTS) else None
