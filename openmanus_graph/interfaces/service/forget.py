"""Deletes what is kept of a thread."""

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.interjections import JournalTable, open_interjections
from openmanus_graph.backends.persistence.ledger import open_ledger
from openmanus_graph.backends.persistence.model_call_records import ModelCallRecords
from openmanus_graph.backends.persistence.threads import PlacesTable, Threads
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots.objects import SNAPSHOTS, SnapshotStore
from openmanus_graph.backends.snapshots.remote_objects import RemoteObjects
from openmanus_graph.backends.snapshots.thread_snapshots import forget_deleted
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url, private_folders, storage_settings


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
