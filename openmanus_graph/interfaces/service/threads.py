"""The threads of the home folder's database, found by what people call them.

What lists or finds threads loads nothing of graphs and models: it answers at once.
"""

import itertools
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from openmanus_graph.backends.persistence.backend import DamagedRowError
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.memory import Memory, Note, open_memory
from openmanus_graph.backends.persistence.threads import (
    DAMAGED,
    Thread,
    Threads,
    describe_unused,
)
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots.objects import SNAPSHOTS, SnapshotStore
from openmanus_graph.backends.snapshots.remote_objects import RemoteObjects
from openmanus_graph.backends.snapshots.thread_snapshots import forget_deleted
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url, private_folders, storage_settings
from openmanus_graph.errors import ConfigError, TrustedToolError
from openmanus_graph.interfaces.service.failures import prepare_home
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.runtime.output import printable

MIN_BEGINNING = 4
"""Characters of an id that may stand for it: a shorter one is a name of its own."""


def open_threads() -> Threads:
    """Open the table of threads, read-only where it cannot be written.

    ConfigError when there is no database yet and none can be made.
    """
    url = database_url()
    if url.is_local and not url.file.exists():
        prepare_home(url.file.parent)
    return Threads(open_database(url))


def find_thread(thread: str) -> Thread | None:
    """Return a thread, or None when there is none of that name."""
    return open_threads().find(thread)


def thread_id(given: str | None) -> str:
    """Return the id of the thread that a person means.

    Args:
        given: Its id, or at least four characters that only its id begins with; None: the latest.

    Raises:
        ConfigError: Several threads begin so, or there is none at all.
    """
    threads = open_threads()
    if given is None:
        newest = threads.page(1, None, "")
        if not newest:
            raise ConfigError(f"There are no threads in {openmanus_home()} yet.")
        return newest[0][1].id
    if threads.find(given) is not None or len(given) < MIN_BEGINNING:
        return given
    fitting = threads.beginning_with([given])
    if len(fitting) > 1:
        raise ConfigError(
            f"{len(fitting)} threads begin with {given!r}: {', '.join(fitting[:5])}"
            f"{' ...' if len(fitting) > 5 else ''}. Write more of the id."
        )
    return fitting[0] if fitting else given


def short_ids(ids: Sequence[str], least: int) -> list[str]:
    """Return for each id its shortest unique beginning, at least so long, as `thread_id` takes."""
    ordered = sorted(ids)
    needed = dict.fromkeys(ids, least)
    for one, next_one in itertools.pairwise(ordered):
        common = len(os.path.commonprefix((one, next_one)))
        needed[one], needed[next_one] = (max(needed[name], common + 1) for name in (one, next_one))
    return [name[: needed[name]] for name in ids]


def known_thread(thread: str) -> Thread:
    """Return a thread. ConfigError, naming the newest, for one that does not exist."""
    threads = open_threads()
    found = threads.find(thread)
    if found is not None:
        return found
    newest = ", ".join(known.id for _, known in threads.page(5, None, ""))
    raise ConfigError(
        f"There is no thread {thread!r} in {_place()}. "
        + (f"The newest are: {newest}." if newest else "There are none yet.")
    )


def _place() -> str:
    """Say where the threads are: in the home folder, or in another database."""
    url = database_url()
    return str(url.file.parent if url.is_local else url)


def whole_thread(thread: str) -> Thread:
    """Return a thread to resume. DamagedRowError if its agent and options are unreadable."""
    known = known_thread(thread)
    if known.status != DAMAGED:
        return known
    name = shlex.quote(thread)
    raise DamagedRowError(
        f"The row of thread {thread} in {database_url()} is damaged, so its agent and "
        f"options are not known. Its conversation may be whole (openmanus show {name}); go on by "
        f"saying them again: openmanus run --thread {name} --agent NAME --workspace FOLDER TASK."
    )


def with_stored(options: RunOptions, known: Thread) -> RunOptions:
    """Return the given options, and the thread's where none is given; say which do not count."""
    if unused := describe_unused(known.id, known.unused, options.stored()):
        sys.stderr.write(f"{printable(unused)}\n")
    return options.over(known.options)


def forget_thread(thread: str) -> None:
    """Delete all that is kept of a thread except its checkpoints and its workspace. Blocks."""
    home, url = openmanus_home(), database_url()
    if (workspace_url := storage_settings().workspace_url) is not None:
        RemoteObjects(workspace_url, thread, url).forget()
    if (home / SNAPSHOTS).exists():
        snapshots = SnapshotStore(home)
        snapshots.forget_threads([thread])
        if not url.is_local:
            forget_deleted(snapshots, url)
    for folder in private_folders(home, thread):
        remove_folder(folder)
    Threads(open_database(url)).delete(thread)  # last: half deleted, it can be deleted again


def own_notes() -> Memory:
    """Return the notes of the person and of the working folder's project. Blocks."""
    return open_memory(database_url(), storage_settings())


def save_note(
    memory: Memory, path: str, text: str | None, before: str | None, *, trusted: bool
) -> None:
    """Write a new note, change one, or confirm one. Blocks.

    Args:
        memory: Holds it.
        path: Of the note.
        text: The new text; None: it stays.
        before: The text that the person saw; None: there was no note.
        trusted: Whether the person confirms all of it, also for what was foreign.

    Raises:
        TrustedToolError: It was changed meanwhile, or cannot be as it is wanted.
    """
    if before is None and text is not None:
        memory.create(path, text, untrusted=False)
    elif text is not None and text != before:
        memory.edit(path, lambda now: _unless_changed(path, now, before, text), untrusted=None)
    if trusted:
        memory.trust(path, before if text is None else text)


def note_row(note: Note) -> dict[str, Any]:
    """Return what is known of a note but its text."""
    return {
        "path": note.path,
        "characters": len(note.text),
        "changed": note.changed.isoformat(),
        "untrusted": note.untrusted,
    }


def _unless_changed(path: str, now: str, before: str | None, text: str) -> str:
    if now != before:
        raise TrustedToolError(
            f"{path} was changed while you edited it; it was left as it is. Edit it again."
        )
    return text
