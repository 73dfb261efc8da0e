"""The threads of the home folder's database: found by what users call them, locked, deleted.

A thread has one worker at a time. A file lock ensures that if the threads are in a local file:
the kernel releases it when its process ends. A lease does if they are in a shared database: it
ends after its time.

This module loads nothing of graphs and models, so that listing threads is instant.
"""

import asyncio
import contextlib
import fcntl
import itertools
import os
import shlex
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from openmanus_graph.backends.persistence.backend import DamagedRowError
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import DAMAGED, Thread, Threads, describe_unused
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots.objects import SNAPSHOTS, SnapshotStore
from openmanus_graph.config import resolve
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.errors import ConfigError, TrustedToolError
from openmanus_graph.interfaces.service.accounts import current_user
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.own_process import RunError, is_storage_fault, prepare_home
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.server_settings import StorageSettings

if TYPE_CHECKING:
    from openmanus_graph.backends.persistence.memory import Memory, Note

OnLoss = Callable[[], None]
MIN_BEGINNING = 4
"""Characters of an id that may be given instead of all of it: a shorter one is a name."""
SHORT_ID_CHARS = 8
LOOK_S = 0.5
"""More than the moment for which `is_running` holds a lock that no run holds."""


@contextlib.contextmanager
def hold_thread(
    home: Path, thread: str, on_loss: OnLoss = lambda: None, url: DatabaseUrl | None = None
) -> Generator[None]:
    """Lock a thread while a run works on it. Blocks. `on_loss`: another worker took it over."""
    prepare_home(home)
    url = url or resolve.database_url()
    give_back = _take_lock(home, thread) if url.is_local else _take_lease(url, thread, on_loss)
    try:
        yield
    finally:
        give_back()


@contextlib.asynccontextmanager
async def holding_thread(
    home: Path, thread: str, on_loss: OnLoss = lambda: None
) -> AsyncGenerator[None]:
    lock = contextlib.ExitStack()
    await asyncio.to_thread(lock.enter_context, hold_thread(home, thread, on_loss))
    try:
        yield
    finally:
        await asyncio.shield(asyncio.to_thread(lock.close))


def _take_lock(home: Path, thread: str) -> Callable[[], None]:
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
    return lock.release


def _take_lease(url: DatabaseUrl, thread: str, on_loss: OnLoss) -> Callable[[], None]:
    from openmanus_graph.backends.persistence import leases

    database, user = open_database(url), object()
    try:
        leases.take_lease(
            database, thread, resolve.storage_settings().lease_s, user, on_loss, alone=True
        )
    except leases.ThreadInUseError as error:
        raise RunError(str(error)) from error
    return partial(leases.give_back_lease, database, thread, user)


def is_running(home: Path, thread: str) -> bool:
    """Return True if a process holds the thread's lock; a crashed process holds none. Blocks.

    Only reads the home, so it also works if the home cannot be written.
    """
    if not resolve.database_url().is_local:
        from openmanus_graph.backends.persistence.leases import holder_of

        return holder_of(open_database(resolve.database_url()), thread) is not None
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


def _lock_path(home: Path, thread: str) -> Path:
    return home / "locks" / f"{resolve.safe_name(thread)}.lock"


def open_threads() -> Threads:
    """Open the table of threads, read-only if need be. ConfigError if it cannot be created."""
    url = resolve.database_url()
    if url.is_local and not url.file.exists():
        prepare_home(url.file.parent)
    return Threads(open_database(url))


def find_thread(thread: str) -> Thread | None:
    return open_threads().find(thread)


def thread_id(given: str | None) -> str:
    """Return the id of the thread that the user means: the latest if none is given.

    `given` is its id, or at least four characters that only its id begins with. ConfigError if
    several threads begin like this, or there is none.
    """
    threads = open_threads()
    if given is None:
        newest = threads.newest(1)
        if not newest:
            raise ConfigError(f"There are no threads in {openmanus_home()} yet.")
        return newest[0].id
    if threads.find(given) is not None or len(given) < MIN_BEGINNING:
        return given
    fitting = threads.beginning_with([given])
    if len(fitting) > 1:
        raise ConfigError(
            f"{len(fitting)} threads begin with {given!r}: {', '.join(fitting[:5])}"
            f"{' ...' if len(fitting) > 5 else ''}. Write more of the id."
        )
    return fitting[0] if fitting else given


def continued_id(given: str) -> str:
    """Return the id that begins so, if it is one of ours; a name may begin like other names."""
    if len(given) < MIN_BEGINNING or find_thread(given) is not None:
        return given
    ours = [one for one in open_threads().beginning_with([given]) if short_id(one) != one]
    return thread_id(given) if ours else given


def short_id(thread: str) -> str:
    """Return the beginning of a thread's id that is enough for commands; a given name whole."""
    with contextlib.suppress(ValueError):
        uuid.UUID(thread)
        return thread[:SHORT_ID_CHARS]
    return thread


def short_ids(ids: Sequence[str], least: int) -> list[str]:
    """Return for each id its shortest unique beginning of at least this length."""
    needed = dict.fromkeys(ids, least)
    for one, next_one in itertools.pairwise(sorted(ids)):
        common = len(os.path.commonprefix((one, next_one)))
        for name in (one, next_one):
            needed[name] = max(needed[name], common + 1)
    return [name[: needed[name]] for name in ids]


def known_thread(thread: str) -> Thread:
    """Return a thread. ConfigError, which names the newest threads, if it does not exist."""
    threads = open_threads()
    found = threads.find(thread)
    if found is not None:
        return found
    url = resolve.database_url()
    newest = ", ".join(known.id for known in threads.newest(5))
    raise ConfigError(
        f"There is no thread {thread!r} in {url.file.parent if url.is_local else url}. "
        + (f"The newest are: {newest}." if newest else "There are none yet.")
    )


def whole_thread(thread: str) -> Thread:
    """Return a thread to resume. DamagedRowError if its agent and options are unreadable."""
    known = known_thread(thread)
    if known.status != DAMAGED:
        return known
    name = shlex.quote(thread)
    raise DamagedRowError(
        f"The row of thread {thread} in {resolve.database_url()} is damaged, so its agent and "
        f"options are not known. Its conversation may be whole (openmanus show {name}); continue "
        f"by naming them: openmanus run --thread {name} --agent NAME --workspace FOLDER TASK."
    )


def with_stored(options: RunOptions, known: Thread) -> RunOptions:
    """Return the given options, with the thread's as defaults. Prints which ones have no effect."""
    if unused := describe_unused(known.id, known.unused, options.stored()):
        sys.stderr.write(f"{printable(unused)}\n")
    return options.over(known.options)


def forget_thread(
    thread: str, *, later: bool = False, known: StorageSettings | None = None
) -> None:
    """Delete all that is kept of a thread except its checkpoints and its workspace. Blocks.

    With `later`, the caller sweeps the snapshots of several threads at once.
    """
    from openmanus_graph.backends.snapshots.remote_objects import RemoteObjects
    from openmanus_graph.backends.snapshots.thread_snapshots import forget_deleted

    home, settings = openmanus_home(), known or resolve.storage_settings()
    url = settings.database_url or DatabaseUrl.in_folder(home)
    for folder in resolve.private_folders(home, thread):  # first: this makes room on a full disk
        remove_folder(folder)
    if settings.workspace_url is not None:
        RemoteObjects(settings.workspace_url, thread, url).forget()
    if (home / SNAPSHOTS).exists():
        snapshots = SnapshotStore(home)
        snapshots.forget_names(thread) if later else snapshots.forget_threads([thread])
        if not url.is_local and not later:
            forget_deleted(snapshots, url)
    Threads(open_database(url)).delete(thread)  # last: half deleted, it can be deleted again


def own_notes() -> "Memory":
    from openmanus_graph.backends.persistence.memory import open_memory

    owner = current_user().name
    return open_memory(resolve.database_url(), resolve.storage_settings(), owner)


def save_note(
    memory: "Memory", path: str, text: str | None, before: str | None, *, trusted: bool
) -> None:
    """Write a new note (`before` is None), change one, or confirm one (`trusted`). Blocks."""

    def replaced(now: str) -> str:
        if now != before:
            raise TrustedToolError(
                f"{path} was changed while you edited it; it was not changed. Edit it again."
            )
        return text or ""

    if before is None and text is not None:
        memory.create(path, text, untrusted=False)
    elif text is not None and text != before:
        memory.edit(path, replaced, untrusted=None)
    if trusted:
        memory.trust(path, before if text is None else text)


def note_row(note: "Note") -> dict[str, Any]:
    return {
        "path": note.path,
        "characters": len(note.text),
        "changed": note.changed.isoformat(),
        "untrusted": note.untrusted,
    }
