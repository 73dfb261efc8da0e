"""Access to the home folder's threads and their open questions."""

import shlex

from langgraph.types import StateSnapshot

from openmanus_graph.backends.persistence.database import DATABASE, DamagedRowError, open_database
from openmanus_graph.backends.persistence.interjections import open_interjections
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.ledger import open_ledger
from openmanus_graph.backends.persistence.threads import DAMAGED, Thread, Threads
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots.objects import SNAPSHOTS, SnapshotStore
from openmanus_graph.config.resolve import openmanus_home, private_folders
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.failures import prepare_home
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.output import printable

QUESTION_CHARS = 100


def open_threads() -> Threads:
    """Open the home folder's table of threads, read-only where it cannot be written.

    ConfigError when there is no database yet and none can be made.
    """
    home = openmanus_home()
    if not (home / DATABASE).exists():
        prepare_home(home)
    return Threads(open_database(home))


def find_thread(thread: str) -> Thread | None:
    """Return a thread, or None when there is none of that name."""
    return open_threads().find(thread)


def known_thread(thread: str) -> Thread:
    """Return a thread. ConfigError, naming the newest, for one that does not exist."""
    threads = open_threads()
    found = threads.find(thread)
    if found is not None:
        return found
    newest = ", ".join(known.id for known in threads.all()[:5])
    raise ConfigError(
        f"There is no thread {thread!r} in {openmanus_home()}. "
        + (f"The newest are: {newest}." if newest else "There are none yet.")
    )


def whole_thread(thread: str) -> Thread:
    """Return a thread to resume. DamagedRowError if its agent and options are unreadable."""
    known = known_thread(thread)
    if known.status != DAMAGED:
        return known
    name = shlex.quote(thread)
    raise DamagedRowError(
        f"The row of thread {thread} in {openmanus_home() / DATABASE} is damaged, so its agent and "
        f"options are not known. Its conversation may be whole (openmanus show {name}); go on by "
        f"saying them again: openmanus run --thread {name} --agent NAME --workspace FOLDER TASK."
    )


def forget_thread(thread: str) -> None:
    """Delete all that is kept of a thread except its checkpoints and its workspace. Blocks."""
    home = openmanus_home()
    database = open_database(home)
    open_ledger(home).forget_thread(thread)
    open_interjections(home).forget_thread(thread)
    JournalTable(database).forget_thread(thread)
    if (home / SNAPSHOTS).exists():
        SnapshotStore(home).forget_thread(thread)
    for folder in private_folders(home, thread):
        remove_folder(folder)
    Threads(database).delete(thread)  # last, so that one half deleted can be deleted again


def questions_of(state: StateSnapshot) -> str:
    """Write the open questions, a line each."""
    asked = ((one.id, interrupt_event(one)["question"]) for one in state.interrupts)
    return "".join(
        f"\n  {name}  {printable(' '.join(text.split()))[:QUESTION_CHARS]}" for name, text in asked
    )
