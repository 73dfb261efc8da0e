"""File locks: one process per thread. A lock is released when its process ends, however."""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

from openmanus_graph.config.resolve import safe_name
from openmanus_graph.interfaces.service.failures import RunError, is_storage_fault, prepare_home


@contextlib.contextmanager
def hold_thread(home: Path, thread: str) -> Generator[None]:
    """Lock a thread while a run works on it.

    Raises:
        RunError: Another process holds the lock, or it cannot be created.
        OSError: The disk is full or gone.
    """
    prepare_home(home)
    path = _lock_file(home, thread)
    lock = FileLock(
        path, timeout=0, thread_local=False
    )  # the server acquires and releases it on different OS threads
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
    """Say whether a process holds the thread's lock; a crashed process holds none.

    The home is only read, so that it works where the home cannot be written, too.
    """
    try:
        descriptor = os.open(_lock_file(home, thread), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False  # it was never locked
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # it is locked; or the disk has no locks, and the file exists while it is held
        return True
    finally:
        os.close(descriptor)
    return False


def _lock_file(home: Path, thread: str) -> Path:
    return home / "locks" / f"{safe_name(thread)}.lock"
