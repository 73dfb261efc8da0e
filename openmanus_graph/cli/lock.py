"""One process per thread. The lock goes with the process, however that dies."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

from openmanus_graph.cli.failures import RunError, is_storage_fault, prepare_home
from openmanus_graph.config.resolve import safe_name


@contextlib.contextmanager
def hold_thread(home: Path, thread: str) -> Generator[None]:
    """Hold a thread while it runs.

    Raises:
        RunError: Another process holds it, or there can be no lock.
        OSError: The disk is full or gone.
    """
    prepare_home(home)
    path = home / "locks" / f"{safe_name(thread)}.lock"
    lock = FileLock(path, timeout=0, thread_local=False)  # the server changes threads
    try:
        path.parent.mkdir(exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise RunError(
            f"Thread {thread} is in use by another process. Wait for it, or stop it first."
        ) from error
    except OSError as error:
        if is_storage_fault(error):
            raise
        raise RunError(f"{path} cannot be locked: {error.strerror}. Move it away.") from error
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
