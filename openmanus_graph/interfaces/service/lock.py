"""One worker per thread: a file lock where threads lie in a file, a lease where they are shared.

A file lock is released by the kernel when its process ends, however; a lease when its time is over.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

from filelock import FileLock, Timeout

from openmanus_graph.config.resolve import database_url, safe_name, storage_settings
from openmanus_graph.interfaces.service.failures import RunError, is_storage_fault, prepare_home

LOOK_S = 0.5
"""More than the moment for which `is_running` holds a lock that nobody has."""


@contextlib.contextmanager
def hold_thread(
    home: Path, thread: str, on_loss: Callable[[], None] = lambda: None
) -> Generator[None]:
    """Lock a thread while a run works on it. Blocks.

    Args:
        home: Our folder.
        thread: The thread's id.
        on_loss: Called in another OS thread if a worker on another machine takes it over.

    Raises:
        RunError: Another process holds the lock, or it cannot be created.
        OSError: The disk is full or gone.
        StorageError: The database cannot be reached.
    """
    prepare_home(home)
    lock = _file_lock(home, thread) if database_url().is_local else _lease(thread, on_loss)
    with lock:
        yield


@contextlib.asynccontextmanager
async def holding_thread(
    home: Path, thread: str, on_loss: Callable[[], None] = lambda: None
) -> AsyncGenerator[None]:
    """Do as `hold_thread`, off the event loop."""
    lock = contextlib.ExitStack()
    await asyncio.to_thread(lock.enter_context, hold_thread(home, thread, on_loss))
    try:
        yield
    finally:
        await asyncio.shield(asyncio.to_thread(lock.close))


def is_running(home: Path, thread: str) -> bool:
    """Say whether a process holds the thread's lock; a crashed process holds none. Blocks.

    The home is only read, so that it works where the home cannot be written, too.
    """
    if not database_url().is_local:
        from openmanus_graph.backends.persistence.database import open_database
        from openmanus_graph.backends.persistence.leases import holder_of

        return holder_of(open_database(database_url()), thread) is not None
    try:
        descriptor = os.open(_lock_path(home, thread), os.O_RDONLY | os.O_CLOEXEC)
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


@contextlib.contextmanager
def _file_lock(home: Path, thread: str) -> Generator[None]:
    path = _lock_path(home, thread)
    # The server acquires and releases it on different OS threads.
    lock = FileLock(path, timeout=LOOK_S, thread_local=False)
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


@contextlib.contextmanager
def _lease(thread: str, on_loss: Callable[[], None]) -> Generator[None]:
    from openmanus_graph.backends.persistence.database import open_database
    from openmanus_graph.backends.persistence.leases import (
        ThreadInUseError,
        give_back_lease,
        take_lease,
    )

    database, user = open_database(database_url()), object()
    try:
        take_lease(database, thread, storage_settings().lease_s, user, on_loss, alone=True)
    except ThreadInUseError as error:
        raise RunError(str(error)) from error
    try:
        yield
    finally:
        give_back_lease(database, thread, user)


def _lock_path(home: Path, thread: str) -> Path:
    return home / "locks" / f"{safe_name(thread)}.lock"
