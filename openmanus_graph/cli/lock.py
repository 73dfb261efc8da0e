"""One process per thread. The lock goes with the process, however that dies."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

from openmanus_graph.cli.failures import RunError, prepare_home
from openmanus_graph.config.resolve import safe_name


@contextlib.contextmanager
def hold_thread(home: Path, thread: str) -> Generator[None]:
    """Hold a thread while it runs. RunError when another process holds it."""
    prepare_home(home)
    (home / "locks").mkdir(exist_ok=True)
    path = home / "locks" / f"{safe_name(thread)}.lock"
    lock = FileLock(path, timeout=0, thread_local=False)  # the server changes threads
    try:
        lock.acquire()
    except Timeout as error:
        raise RunError(
            f"Thread {thread} is in use by another process. Wait for it, or stop it first."
        ) from error
    try:
        yield
    finally:
        lock.release()


def is_running(home: Path, thread: str) -> bool:
    """Say whether a process holds the thread; one that crashed holds nothing any more."""
    try:
        with hold_thread(home, thread):
            return False
    except RunError:
        return True
