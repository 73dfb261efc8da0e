"""A command on a terminal of its own (a pty), with somebody typing."""

import contextlib
import os
import pty
import re
import sys
import termios
import threading
import time

from tests.support.cli import Cli
from tests.support.limits import BACKSTOP_S

_OWN_TERMINAL = (
    sys.executable,
    "-c",
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])",
)
"""Makes the terminal that of the session, which `openmanus` then leads."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """Runs a command; what is shown is read as it comes. A context manager."""

    def __init__(
        self, cli: Cli, *args: str, columns: int = 100, redirect: str | None = None
    ) -> None:
        self._cli = cli
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, columns))
        with (
            os.fdopen(slave, "r+b", buffering=0) as terminal,
            (cli.cwd / redirect).open("wb") if redirect else contextlib.nullcontext() as out,
        ):
            self._process = cli.launch(
                args, terminal, out or terminal, terminal,
                env={"TERM": "xterm-256color"}, wrapper=() if cli.zygote else _OWN_TERMINAL,
            )  # fmt: skip
        self.raw = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        """What was shown so far, without colours and cursor movements."""
        return _COLOURS.sub("", self.raw).replace("\r", "")

    def expect(self, text: str) -> None:
        """Wait until the text is on the terminal."""
        end = time.monotonic() + BACKSTOP_S
        with self._changed:
            while text not in self.shown:
                ended = time.monotonic() > end or not self._reader.is_alive()
                assert not ended, f"{text!r} was not shown:\n{self.shown}"
                self._changed.wait(0.2)

    def type(self, text: str) -> None:
        """Type; `\\x03` is Ctrl-C, `\\x04` the end of input."""
        os.write(self._master, text.encode())

    def kill(self) -> None:
        """End the command as nobody can prevent."""
        self._process.kill()

    def finish(self) -> int:
        """Wait for the end and return the exit code."""
        code = self._process.wait(BACKSTOP_S)
        self._reader.join(BACKSTOP_S)
        self._cli.note(self.shown, self.shown)
        return code

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # how a pty says that the other side is closed
                return
            with self._changed:
                self.raw += data.decode("utf-8", "replace")
                self._changed.notify_all()
