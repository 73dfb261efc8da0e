"""One channel to a kernel: ZeroMQ's protocol (ZMTP 3) over a Unix socket.

ZeroMQ's own sockets keep whatever the other side sends in our memory, parts of a message without
any limit, and a program in the sandbox is the other side. Here nothing is read before it is asked
for, and a message has a limit.
"""

import contextlib
import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
        """Send a message, as far as that can be done now, and the rest while one is awaited."""
        written = bytearray()
        for number, frame in enumerate(frames):
            written += _written(frame, _MORE if number < len(frames) - 1 else 0)
        (self._unsent if self._ready else self._waiting).extend(written)
        if self._socket is not None and self._ready:
            with contextlib.suppress(OSError):  # full, or lost: whoever waits for an answer sees it
                self._send_some(self._socket)

    def receive(self, timeout_s: float) -> list[bytes] | None:
        """Return the next message; None if none comes in time.

        Raises:
            OSError: The connection is lost, or what comes is no message or too large.
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
        """Close the connection."""
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

    def _send_some(self, connection: socket.socket) -> None:
        del self._unsent[: connection.send(self._unsent)]

    def _transfer(self, connection: socket.socket, timeout_s: float) -> None:
        """Send and read what can be now. Where the kernel's end is not there yet, begin again."""
        waiting = select.poll()
        waiting.register(connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        try:
            for _, event in waiting.poll(int(timeout_s * 1000) + 1):
                if event & select.POLLOUT:
                    self._send_some(connection)
                if event & ~select.POLLOUT:
                    if not (data := connection.recv(1 << 16)):
                        raise ConnectionError("it was closed")
                    self._unread += data
        except OSError:
            if self._ready:
                raise
            connection.close()  # something between us listens before the kernel does
            self._socket = None
            time.sleep(min(timeout_s, _RETRY_S))

    def _next(self) -> list[bytes] | None:
        """Take the next message from what has been read, if all of it is there."""
        unread = self._unread
        if not self._greeted:
            if len(unread) < len(_GREETING):
                return None
            del unread[: len(_GREETING)]
            self._greeted = True
        while len(unread) >= 2:
            flags = unread[0]
            begin = 9 if flags & _LONG else 2
            size = int.from_bytes(unread[1:begin])
            if len(unread) < begin:
                return None
            self._check(size)
            if len(unread) < begin + size:
                return None
            frame = bytes(unread[begin : begin + size])
            del unread[: begin + size]
            if flags & _COMMAND:
                self._obey(frame)
                continue
            self._frames.append(frame)
            self._size += size
            if not flags & _MORE:
                message, self._frames, self._size = self._frames, [], 0
                return message
        return None

    def _check(self, size: int) -> None:
        if self._size + size > MOST_BYTES or len(self._frames) == _MOST_FRAMES:
            raise ConnectionError("a message is too large")

    def _obey(self, command: bytes) -> None:
        if command.startswith(_READY[:6]) and not self._ready:
            self._ready = True
            self._unsent += self._waiting


def _written(frame: bytes, flags: int) -> bytes:
    """Return a frame as it is sent."""
    if len(frame) > 0xFF:
        return bytes([flags | _LONG]) + len(frame).to_bytes(8) + frame
    return bytes([flags, len(frame)]) + frame
