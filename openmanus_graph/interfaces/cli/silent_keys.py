"""Keeps what is typed during a run off the screen."""

import contextlib
import sys
from collections.abc import Generator


@contextlib.contextmanager
def silent_keys() -> Generator[None]:
    """Do not echo keys for the length of a block: they would stand in the middle of what is drawn.

    They are not lost: the next prompt reads them. Where standard input is no terminal of POSIX,
    nothing changes. A shell restores the echo after a program that was killed.
    """
    try:
        import termios

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (ImportError, OSError, ValueError):  # Windows; no terminal; closed
        yield
        return
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSANOW, before)
