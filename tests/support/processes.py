"""Other processes, which may end while they are looked at."""

import psutil


def line_of(process: psutil.Process) -> str:
    """Return a process's command line; empty if it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
