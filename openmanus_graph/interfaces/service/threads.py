"""Access to the home folder's threads and their open questions."""

import itertools
import json
import os
import shlex
from collections.abc import Sequence

from langgraph.types import StateSnapshot

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.interjections import open_interjections
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.ledger import open_ledger
from openmanus_graph.backends.persistence.model_call_records import ModelCallRecords
from openmanus_graph.backends.persistence.places import PlacesTable
from openmanus_graph.backends.persistence.rows import DamagedRowError
from openmanus_graph.backends.persistence.threads import DAMAGED, Thread, Threads
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots.objects import SNAPSHOTS, SnapshotStore
from openmanus_graph.backends.snapshots.remote_objects import RemoteObjects
from openmanus_graph.backends.snapshots.thread_snapshots import forget_deleted
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import (
    database_url,
    private_folders,
    storage_settings,
)
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.failures import prepare_home
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.output import printable

QUESTION_CHARS = 160
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
    fitting = [known.id for known in threads.all() if known.id.startswith(given)]
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
    newest = ", ".join(known.id for known in threads.all()[:5])
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


def forget_thread(thread: str) -> None:
    """Delete all that is kept of a thread except its checkpoints and its workspace. Blocks."""
    home, url = openmanus_home(), database_url()
    database = open_database(url)
    open_ledger(url).forget_thread(thread)
    open_interjections(url).forget_thread(thread)
    JournalTable(database).forget_thread(thread)
    if (workspace_url := storage_settings().workspace_url) is not None:
        RemoteObjects(workspace_url, thread, url).forget()
    PlacesTable(database).forget_thread(thread)
    ModelCallRecords(database).forget_thread(thread)
    if (home / SNAPSHOTS).exists():
        snapshots = SnapshotStore(home)
        snapshots.forget_threads([thread])
        if not url.is_local:
            forget_deleted(snapshots, url)
    for folder in private_folders(home, thread):
        remove_folder(folder)
    Threads(database).delete(thread)  # last, so that one half deleted can be deleted again


def questions_of(state: StateSnapshot) -> str:
    """Write the open questions, a line each: id, the step or helper that asks, and what it asks."""
    lines: list[str] = []
    for event in map(interrupt_event, state.interrupts):
        asker = f"[{event['plan_step']}]" if event.get("plan_step") else ""
        calls = [f"{call['tool']} {json.dumps(call['args'])}:" for call in event["calls"]]
        text = printable(" ".join([asker, *calls, *event["question"].split()]).strip())
        lines.append(f"\n  {event['id']}  {text[:QUESTION_CHARS]}")
    return "".join(lines)
