"""Standard streams that survive closed descriptors, full disks and broken pipes."""

import errno
import io
import os
import sys
from typing import TextIO

from typing_extensions import Buffer, override


class _StandardStream(io.FileIO):
    """Writes never raise, so that an unwritable stream does not end a run.

    The failure is stored for `stdout_failure`; later output is discarded.
    """

    def __init__(self, descriptor: int, *, missing: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.missing = missing
        """The caller had closed it."""
        self.failure: OSError | None = None

    @override
    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EPIPE:  # a reader that closed the pipe wants no more
                self.failure = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


def secure_standard_streams() -> None:
    """Make the standard streams safe to use, UTF-8 on pipes and files whatever the locale.

    Call it first: without it the next file to be opened, a database say, takes a closed stream's
    number and gets the output of this process and its children.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(_open_nowhere(os.O_RDONLY))
    # Opened for reading, so that writes to a missing stdout fail like those to a full disk.
    sys.stdout = _secured(sys.stdout, os.O_RDONLY)
    sys.stderr = _secured(sys.stderr, os.O_WRONLY)


def write_out(text: str) -> None:
    """Write to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def is_stdout_closed() -> bool:
    """Say whether this process was started without a stdout."""
    raw = _raw(sys.stdout)
    return raw is not None and raw.missing


def stdout_failure() -> str | None:
    """Flush stdout, and return why writing to it failed, or None."""
    sys.stdout.flush()
    raw = _raw(sys.stdout)
    return raw.failure.strerror if raw is not None and raw.failure is not None else None


def _raw(stream: TextIO) -> _StandardStream | None:
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, _StandardStream) else None


def _secured(stream: TextIO | None, flags: int) -> TextIO:
    if stream is None:
        raw = _StandardStream(_open_nowhere(flags), missing=True)
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace")
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # an in-memory stream
    return io.TextIOWrapper(
        io.BufferedWriter(_StandardStream(stream.fileno(), missing=False)),
        encoding=stream.encoding if stream.isatty() else "utf-8",  # a terminal keeps its encoding
        errors="replace",
        line_buffering=stream.line_buffering or stream.write_through,
    )


def _open_nowhere(flags: int) -> int:
    """Open the null device, which takes the lowest free number: that of the closed stream."""
    descriptor = os.open(os.devnull, flags)
    os.set_inheritable(descriptor, True)
    return descriptor
