"""Deletes threads that were kept long enough, and says where the megabytes are.

Each step leaves a thread listed until its last row is deleted, so that after a kill the next prune
finishes it. One prune works at a time, on all machines that share a database.
"""

import contextlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from openmanus_graph.backends.persistence.checkpoints import checkpointer_class
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import TABLES_OF_THREAD, Threads
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots.objects import SNAPSHOTS, SnapshotStore
from openmanus_graph.backends.snapshots.thread_snapshots import forget_deleted
from openmanus_graph.config import resolve
from openmanus_graph.config.homes import WORKSPACES, openmanus_home
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.threads import forget_thread, hold_thread
from openmanus_graph.runtime.workspace import OWN_WORKSPACE
from openmanus_graph.state.addresses import DatabaseUrl

DAY_S = 86400
_LOCK = "prune of old threads"
"""Held like a thread by who prunes."""
_CLAIM = (
    "INSERT INTO chores (name, at) VALUES ('prune', ?) ON CONFLICT (name) DO UPDATE"
    " SET at = excluded.at WHERE chores.at NOT BETWEEN ? AND ? RETURNING at"
)
Pruned = tuple[Sequence[str], int]
"""Threads, and the bytes of their rows and files."""


class Storage:
    """All that is stored of the threads in a home folder and its database. Methods block."""

    def __init__(self) -> None:
        self.home, self._settings = openmanus_home(), resolve.storage_settings()
        self._url = self._settings.database_url or DatabaseUrl.in_folder(self.home)
        self._database = open_database(self._url)
        self._threads = Threads(self._database)
        self._saver = checkpointer_class(self._url).of_database(self._url)

    def close(self) -> None:
        self._saver.close()

    def delete(self, thread: str, workers: Counter[str] | None = None) -> None:
        """Delete a thread that the caller holds.

        With `workers`, how many threads work in each folder, its own workspace is deleted as well,
        and the caller sweeps the snapshots.
        """
        workspace = self._own_workspace(thread)
        if workers is not None and workspace is not None and workers[str(workspace)] <= 1:
            remove_folder(workspace)
        self._saver.delete_thread(thread)
        forget_thread(thread, later=workers is not None, known=self._settings)

    def expired(self, keep_s: Mapping[str, float]) -> Pruned:
        """Return what a prune would delete, without snapshots."""
        threads = self._threads.expired(keep_s)
        return threads, sum(one.total() for one in self.used(threads).values())

    def prune(
        self,
        keep_s: Mapping[str, float],
        *,
        daily: bool = False,
        halted: Callable[[], bool] = lambda: False,
    ) -> Pruned:
        """Delete the threads that `Threads.expired` names, unless a run works on them.

        With `daily`, only if no process has done so for a day. RunError: another process prunes.
        """
        gone, freed, now = list[str](), 0, int(time.time())
        with hold_thread(self.home, _LOCK):
            if daily and not self._database.run(_CLAIM, (now, now - DAY_S + 1, now)):
                return gone, freed
            workers = self._threads.workspaces()
            for thread in self._threads.expired(keep_s):
                if halted():
                    break
                # RunError: a run works on it. It may also have ended just now.
                with contextlib.suppress(RunError), hold_thread(self.home, thread, url=self._url):
                    if self._threads.expired(keep_s, only=thread):
                        freed += sum(one.total() for one in self.used([thread]).values())
                        self.delete(thread, workers)
                        gone.append(thread)
            if (self.home / SNAPSHOTS).exists():
                if gone and not self._url.is_local:
                    forget_deleted(SnapshotStore(self.home), self._url)
                freed += SnapshotStore(self.home).sweep()
            for database in (self._database, self._saver.database):
                database.give_back_space()
        return gone, freed

    def _own_workspace(self, thread: str) -> Path | None:
        """Return the thread's default workspace, if it was made for the thread."""
        for folder in resolve.private_folders(self.home, thread):
            with contextlib.suppress(OSError):
                path = Path(os.fsdecode((folder / OWN_WORKSPACE).read_bytes()))
                if path.parts[-2:] == (WORKSPACES, resolve.safe_name(thread)):
                    return path
        return None

    def used(self, threads: Sequence[str] | None = None) -> Mapping[str, Counter[str]]:
        """Return bytes by kind and thread, by default of all threads, without snapshots."""
        found = defaultdict[str, Counter[str]](Counter)
        tables = [(self._database, name, "thread", kind) for name, kind in TABLES_OF_THREAD.items()]
        tables += [(self._database, "threads", "id", "threads")]
        saver = self._saver
        tables += [(saver.database, name, "thread_id", "checkpoints") for name in saver.columns]
        for database, table, column, kind in tables:
            select = f"SELECT {column}, sum({database.row_bytes(table)}) FROM {table}"
            which = "" if threads is None else f" WHERE {column} = ?"
            for one in [()] if threads is None else [(thread,) for thread in threads]:
                for thread, size in database.run(f"{select}{which} GROUP BY {column}", one):
                    found[kind][str(thread)] += int(size)
        for thread in [*found["threads"]] if threads is None else threads:
            for folder in resolve.private_folders(self.home, thread):
                found["private folders"][thread] += folder_bytes(folder)
            if (workspace := self._own_workspace(thread)) is not None:
                found["workspaces"][thread] += folder_bytes(workspace)
        return found


def prune_when_due(server_keep_s: Mapping[str, float], halted: Callable[[], bool]) -> Pruned:
    """Prune as `[storage] keep` says, else as the server does, if nobody has for a day. Blocks."""
    kept = {**server_keep_s, **resolve.storage_settings().keep}
    if not kept:
        return (), 0
    with contextlib.closing(Storage()) as storage:
        return storage.prune(kept, daily=True, halted=halted)


def folder_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # gone meanwhile
                total += Path(place, name).lstat().st_size
    return total
