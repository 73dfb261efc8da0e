"""A command on a terminal of its own (a pty), with somebody typing and an emulator that shows."""

import codecs
import contextlib
import os
import pty
import re
import sys
import termios
import threading
import time
from collections.abc import Callable

import pyte

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
ROWS = 40


class _Screen(pyte.HistoryScreen):
    """Answers the questions that programs ask their terminal."""

    def __init__(self, columns: int, answer: Callable[[str], object]) -> None:
        super().__init__(columns, ROWS, history=10_000)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Terminal:
    """Runs a command; what is shown is read as it comes. A context manager."""

    def __init__(
        self,
        cli: Cli,
        *args: str,
        columns: int = 100,
        redirect: str | None = None,
        stdin: str | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self._cli = cli
        self._typing = threading.Lock()
        self._replies: list[threading.Thread] = []
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (ROWS, columns))
        with (
            os.fdopen(slave, "r+b", buffering=0) as terminal,
            (cli.cwd / redirect).open("wb") if redirect else contextlib.nullcontext() as out,
            (cli.cwd / stdin).open("rb") if stdin else contextlib.nullcontext() as given,
        ):
            self._process = cli.launch(
                args, given or terminal, out or terminal, terminal,
                env={"TERM": "xterm-256color", **(env or {})},
                wrapper=() if cli.zygote else _OWN_TERMINAL,
            )  # fmt: skip
        self.raw = ""
        self.emulated = _Screen(columns, self._reply)
        self._stream = pyte.Stream(self.emulated)
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether something may still be written."""
        return self._reader.is_alive()

    @property
    def shown(self) -> str:
        """What was written so far, without colours and cursor movements."""
        return _COLOURS.sub("", self.raw).replace("\r", "")

    @property
    def screen(self) -> str:
        """What a person sees now, and what has scrolled off the top."""
        with self._changed:
            screen = self.emulated
            gone = ["".join(line[x].data for x in range(screen.columns)) for line in
                    screen.history.top]  # fmt: skip
            return "\n".join(line.rstrip() for line in (*gone, *screen.display)).rstrip()

    def expect(self, text: str) -> None:
        """Wait until the text was written to the terminal."""
        self._wait(lambda: text in self.shown, text)

    def see(self, text: str, times: int = 1) -> None:
        """Wait until the text is on the emulated screen, so many times."""
        self._wait(lambda: self.screen.count(text.rstrip(" ")) >= times, text)

    def _wait(self, true: Callable[[], bool], text: str) -> None:
        end = time.monotonic() + BACKSTOP_S
        with self._changed:
            while not true():
                ended = time.monotonic() > end or not self._reader.is_alive()
                if ended and true():
                    return
                assert not ended, f"{text!r} was not shown:\n{self.screen}\n{self.shown[-3000:]}"
                self._changed.wait(0.2)

    def type(self, text: str) -> None:
        """Type; `\\x03` is Ctrl-C, `\\x04` the end of input."""
        data = text.encode()
        with self._typing:
            while data:  # a pty takes a few kilobytes at a time
                data = data[os.write(self._master, data) :]

    def _reply(self, data: str) -> None:
        """Answer the program, as terminals do: after a paste that is still on its way."""

        def send() -> None:
            with contextlib.suppress(OSError):  # the program has ended
                self.type(data)

        self._replies.append(threading.Thread(target=send))
        self._replies[-1].start()

    def paste(self, text: str) -> None:
        """Paste, as terminals do where a program asks for brackets around it."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int) -> None:
        """Change the width; the command gets the signal."""
        with self._changed:
            self.emulated.resize(ROWS, columns)
            termios.tcsetwinsize(self._master, (ROWS, columns))

    def hang_up(self) -> None:
        """Close the terminal's window."""
        master, self._master = self._master, os.open(os.devnull, os.O_RDWR)
        os.close(master)

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
        for reply in self._replies:
            reply.join()
        os.close(self._master)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # how a pty says that the other side is closed
                return
            if not data:
                return
            with self._changed:
                text = decoder.decode(data)
                self.raw += text
                self._stream.feed(text)
                self._changed.notify_all()
