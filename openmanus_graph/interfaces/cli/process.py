"""The process of a command: its standard streams, the lines and keys typed, and its end.

It must be loaded before modules that register exit handlers, see `_end_at_once`.
"""

import asyncio
import atexit
import contextlib
import errno
import io
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Generator, Sequence
from typing import TextIO

from typing_extensions import Buffer, override

from openmanus_graph.errors import ConfigError


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

    Call it first: without it the next file to be opened, for example a database, takes a closed
    stream's number and gets the output of this process and its children.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(_open_devnull(os.O_RDONLY))
    # Opened for reading, so that writes to a missing stdout fail like those to a full disk.
    sys.stdout = _secured(sys.stdout, os.O_RDONLY)
    sys.stderr = _secured(sys.stderr, os.O_WRONLY)


def write_out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def is_stdout_closed() -> bool:
    """Return True if this process was started without a stdout."""
    raw = _raw_stdout()
    return raw is not None and raw.missing


def stdout_failure() -> str | None:
    """Flush stdout, and return why writing to it failed, or None."""
    sys.stdout.flush()
    raw = _raw_stdout()
    return raw.failure.strerror if raw is not None and raw.failure is not None else None


def _raw_stdout() -> _StandardStream | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _StandardStream) else None


def _secured(stream: TextIO | None, flags: int) -> TextIO:
    if stream is None:
        raw = _StandardStream(_open_devnull(flags), missing=True)
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace")
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # an in-memory stream
    return io.TextIOWrapper(
        io.BufferedWriter(_StandardStream(stream.fileno(), missing=False)),
        encoding=stream.encoding if stream.isatty() else "utf-8",  # a terminal keeps its encoding
        errors="replace",
        line_buffering=stream.line_buffering or stream.write_through,
    )


def _open_devnull(flags: int) -> int:
    """Open the null device, which takes the lowest free number: that of the closed stream."""
    descriptor = os.open(os.devnull, flags)
    os.set_inheritable(descriptor, True)
    return descriptor


def read_stdin() -> str:
    """Return the text of stdin, bytes that are not UTF-8 replaced. ConfigError: it is not text."""
    data = sys.stdin.buffer.read()
    _require_text(data)
    return data.decode("utf-8", "replace")


def _require_text(data: bytes) -> None:
    from openmanus_graph.backends.files.text_file import detect_encoding

    if data and detect_encoding(data) is None:
        raise ConfigError("stdin is not text. Give a file to the agent by --file PATH.")


def has_line_editor() -> bool:
    """Return True if there is a terminal that the line editor can work with."""
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") != "dumb"


class StdinLines:
    """Reads stdin, a terminal's or a pipe's, line by line."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._buffer = b""
        self._ended = False
        self.interactive = sys.stdin.isatty() and sys.stderr.isatty()

    async def ask(
        self, prompt: str, *, draft: str = "", choices: Sequence[str] = (), letters: str = ""
    ) -> str | None:
        """Return the next line, None at the end of the input.

        Only a terminal shows the prompt, and only the line editor has the draft, which can be
        changed, the choices, which the arrow keys put into the line, and the letters, which need no
        Enter.
        """
        if has_line_editor():
            from openmanus_graph.interfaces.cli.editor import LineEditor

            way, width = "↑↓ or type " if choices else "", shutil.get_terminal_size().columns - 1
            text = textwrap.fill(f"{way}{prompt}".replace("= ", "=\N{NO-BREAK SPACE}"), width)
            prompt = text.replace("\N{NO-BREAK SPACE}", " ") + " "  # the editor would break words
            return await LineEditor(choices=choices, letters=letters).ask(prompt, draft=draft)
        if self.interactive:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        while b"\n" not in self._buffer and not self._ended:
            await self._wait_until_readable()
            piece = os.read(self._descriptor, 65536)
            self._buffer += piece
            self._ended = not piece
        line, newline, self._buffer = self._buffer.partition(b"\n")
        if not self.interactive:
            _require_text(line)
        return line.decode("utf-8", "replace") if line or newline else None

    async def _wait_until_readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        with contextlib.suppress(PermissionError):  # a file, which is always readable
            loop.add_reader(self._descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(self._descriptor)


@contextlib.contextmanager
def silent_keys() -> Generator[None]:
    """Keep keys as they are typed during a block, without echo in the middle of what is drawn.

    A terminal that edits lines itself applies Backspace before the next prompt shows its draft, and
    drops what is longer than 4,095 characters. The next prompt reads the keys. Nothing changes if
    stdin is not a POSIX terminal. A shell restores the terminal after a program that was killed.
    """
    if not sys.stdin.isatty():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    silent = [*before]
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(terminal, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSANOW, before)


_codes: list[int] = []
_entered: list[bool] = []


@contextlib.contextmanager
def quick_exit() -> Generator[None]:
    """End the process with the exit code of the block after all exit handlers have run.

    The interpreter is not taken apart: freeing every object of some two thousand modules takes a
    fifth of a command's CPU time, and the operating system frees their memory at once. A traceback
    or a signal still ends the process in the usual way.
    """
    _entered.append(True)
    try:
        yield
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _codes.append(ended.code or 0)
        raise


def is_own_process() -> bool:
    """Return True if the process ends with the command, False if another program calls it."""
    return bool(_entered)


# Exit handlers are called in reverse order. This module is loaded before those that close
# databases, sessions and browsers, remove folders and send traces, so that its own comes last.
@atexit.register
def _end_at_once() -> None:
    if not _codes:
        return
    logging.shutdown()  # the one handler that was there before this one
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:  # a server over them closes them
            stream.flush()
    os._exit(_codes[0])
