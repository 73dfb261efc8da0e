"""The snapshots of a thread: taken by its nodes, and restored if a run goes back."""

import asyncio
import datetime
import difflib
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.config import get_config

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.backends.persistence.usage import RunUsage
from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots import take
from openmanus_graph.backends.snapshots.objects import MissingObjectError, SnapshotStore, TreeEntry
from openmanus_graph.backends.snapshots.restore import Restored, restore_snapshot
from openmanus_graph.backends.snapshots.take import Index
from openmanus_graph.config.resolve import private_folders, safe_name
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.runtime.checkpoint_lineage import GAP_KEY, SNAPSHOT_KEY, outer_namespace
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.open_beneath import MOST_PARTS, shown
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.server_settings import StorageSettings

NAMED_PATHS = 5
"""How many paths a notice names."""
FORGET_EVERY_S = 3600.0
"""How often a process looks for threads that were deleted on other machines."""
_next_forgetting: dict[tuple[Path, str], float] = {}
"""By home folder and database, on the monotonic clock."""


async def snapshot_files(
    session: Session, state: Mapping[str, Any], emit: Emit, *, only_first: bool = False
) -> dict[str, Any]:
    """Take a snapshot of the workspace if a call may have changed files since the newest one.

    Only for the outermost graph of a thread with checkpoints: threads do not go back in other
    graphs. Notices name what is left out, or why no snapshot could be taken. With `only_first` one
    is taken only if it is the first of the run, whatever calls did: a person may have changed files
    since the run before. Returns the state's update, empty if nothing changed.
    """
    if current_replay() is not None or not session.checkpointed or session.is_nested:
        return {}
    if outer_namespace(get_config()):
        return {}
    limits, is_first = session.settings.storage, session.find_cached(ThreadSnapshots) is None
    is_due = is_first if only_first else session.files_may_differ
    if not is_due or not limits.snapshot_max_mb:
        return {}
    session.files_may_differ = False  # before: what changes meanwhile is looked at again
    try:
        snapshots = await session.cached_off_loop(ThreadSnapshots, lambda: snapshots_of(session))
        async with take.progress_shown(snapshots.progress, emit):
            snapshot = await asyncio.to_thread(snapshots.take, session.workspace, limits)
    except take.TooManyFilesError as error:
        return note_gap(str(error), state, emit)
    except (OSError, StorageError) as error:
        session.files_may_differ = True
        return note_gap(f"It could not be stored: {str(error).rstrip('.')}.", state, emit)
    usage: RunUsage | None = session.find_cached(RunUsage)
    if usage is not None and (size := snapshots.size) is not None:
        await asyncio.to_thread(usage.note_files, size)
    for text in snapshots.new_notices():
        notice(emit, text)
    update = {SNAPSHOT_KEY: snapshot, GAP_KEY: ""}
    return {key: value for key, value in update.items() if value != state.get(key, "")}


def note_gap(why: str, state: Mapping[str, Any], emit: Emit) -> dict[str, Any]:
    """Return the state's update if no snapshot could be taken, and report it once."""
    if why != state.get(GAP_KEY):
        notice(emit, f"No snapshot holds what changed now. Going back restores older files. {why}")
    return {GAP_KEY: why}


TORN = "torn"
_GAPS = {
    take.TOO_LARGE: (
        "Snapshots leave out {}: more than [storage] snapshot_max_mb. Going back does not restore "
        "that."
    ),
    take.UNREADABLE: (
        "Snapshots leave out {}, which cannot be read. Going back does not restore that."
    ),
    take.TOO_DEEP: (
        f"Snapshots leave out {{}}: it lies too deep, below {MOST_PARTS} folders or a very long "
        "path. Going back does not restore that."
    ),
    TORN: "The snapshot may hold half of {}, written to as it was read.",
}
"""Notices of what a snapshot leaves out, by the reason."""


class ThreadSnapshots:
    """The snapshots of a thread, in one process. Methods block."""

    def __init__(self, thread: str, home: Path) -> None:
        self.store = SnapshotStore(home)
        self._thread, self._home = thread, home
        self._index = Index(Path())
        self._reported = set[tuple[str, str]]()

    def take(self, workspace: Workspace, limits: StorageSettings) -> str:
        """Take a snapshot and return its id. ConfigError, OSError, StorageError: it failed."""
        before = self._known(workspace)
        self.store.begin_transfer()
        self._index = take.take_snapshot(
            self.store, self._thread, workspace, take.Extent.of_snapshots(limits), before
        )
        if self._index is not before:
            with suppress(OSError):  # the next process reads all files again
                take.write_index(workspace, self._index)
        return self._index.snapshot

    @property
    def size(self) -> int | None:
        """Bytes of the files when the newest snapshot was taken; None if they are as before."""
        return self._index.size

    def progress(self) -> str:
        """Describe how far the snapshot under way is; "" before it has stored much."""
        megabytes = self.store.moved_bytes >> 20
        if not megabytes:
            return ""
        return f"A snapshot of the files is taken, to go back to: {megabytes:,} MB so far."

    def restore(self, snapshot: str, workspace: Workspace, limits: StorageSettings) -> list[str]:
        """Restore a snapshot and return notices. ConfigError: it cannot be, and what to do."""
        aside = aside_folder(self._home, self._thread)
        newest = self._known(workspace)
        extent = take.Extent.of_snapshots(limits)
        taken_of = self.store.root_of(self._thread, snapshot)
        if taken_of is not None and taken_of != workspace.root:  # files of a copied thread
            self.store.move(self._thread, taken_of, workspace.root)
        done = restore_snapshot(self.store, snapshot, workspace, extent, newest, aside)
        with suppress(ConfigError, OSError, StorageError):  # else what was written is read again
            self.take(workspace, limits)
        return list(describe_restore(done, aside))

    def absence(self, snapshot: str) -> str:
        """Describe that there is no snapshot, or that it is not here; empty if it is."""
        if not snapshot:
            return "There is no snapshot of the files at that point. They were not changed."
        if not self.store.has(snapshot):
            return (
                f"The snapshot of that point is not in {self.store.file}: it was deleted, or taken "
                "on another machine. The files were not changed."
            )
        return ""

    def refusal(self, snapshot: str, root: Path) -> str:
        """Describe why a snapshot is not to be restored in a folder; empty if it can be."""
        if absence := self.absence(snapshot):
            return absence
        taken_of = self.store.root_of(self._thread, snapshot)
        if taken_of not in (None, root) and not is_empty(root):
            return f"The files were in {taken_of} then. Those in {root} are left as they are."
        return ""

    def is_copied(self, snapshot: str, root: Path) -> bool:
        """Return True if the thread is a copy whose files were never in its folder."""
        if not snapshot or not is_empty(root):
            return False
        return self.store.root_of(self._thread, snapshot) != root and self.store.has(snapshot)

    def new_notices(self) -> Iterator[str]:
        """Yield notices of what the newest snapshot leaves out, each once."""
        gaps = {*self._index.left_out.items(), *((path, TORN) for path in self._index.torn)}
        new = sorted(gaps - self._reported)
        self._reported |= gaps
        for why, text in _GAPS.items():
            if paths := [path for path, found in new if found == why]:
                yield text.format(named_paths(paths))

    def newest(self, workspace: Workspace) -> str:
        """Return the id of the newest snapshot of the files; empty if none was taken."""
        return self._known(workspace).snapshot

    def _known(self, workspace: Workspace) -> Index:
        """Return the index of the workspace, if the store has its snapshot."""
        if self._index.root != workspace.root:
            self._index = take.read_index(workspace)
        if self.store.root_of(self._thread, self._index.snapshot) is None:
            self._index = Index(workspace.root)
        return self._index


def aside_folder(home: Path, thread: str) -> Path:
    """Return a new name of a folder for files that a restore puts aside."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    return home / "aside" / f"{safe_name(thread)}-{now}"


def is_empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None


def bring_back(session: Session, workers: Sequence[Session]) -> list[str]:
    """Restore files and handles for a run that goes back, and return notices for the person.

    ConfigError: the files cannot be restored, and what to do.
    """
    lineage, limits = session.lineage, session.settings.storage
    if not session.checkpointed or not (lineage.came_back or lineage.snapshot):
        return []
    try:
        snapshots, workspace = snapshots_of(session), session.workspace
        came_back, under_way = snapshots.store.restored(session.key)
        if lineage.came_back and lineage.came_back != came_back:
            for one in (*workers, session):
                one.close()
        elif not under_way and not snapshots.is_copied(lineage.snapshot, workspace.root):
            return []
        if not limits.snapshot_max_mb or not (lineage.snapshot or snapshots.newest(workspace)):
            return []  # switched off, or no call may have changed files
        if refusal := snapshots.refusal(lineage.snapshot, workspace.root):
            notices = [refusal]
        else:
            snapshots.store.record_restore(session.key, came_back, lineage.snapshot)
            notices = snapshots.restore(lineage.snapshot, workspace, limits)
            session.files_may_differ = True  # from the snapshot that the state names
            notices += describe_gap(lineage.gap)
        snapshots.store.record_restore(session.key, lineage.came_back or came_back, "")
    except (OSError, StorageError) as error:  # no reason for a run to fail
        return [f"The snapshots of the files cannot be read, so they are as they are: {error}"]
    return notices


def snapshots_of(session: Session) -> ThreadSnapshots:
    """Return the snapshots of a session's thread. Blocks the first time."""
    settings = session.settings

    def opened() -> ThreadSnapshots:
        snapshots = ThreadSnapshots(session.key, settings.home)
        if not settings.database.is_local:
            _keep_up(snapshots.store, session.key, settings.database)
        return snapshots

    return session.cached_across_runs((ThreadSnapshots, settings.home), opened)


def _keep_up(store: SnapshotStore, thread: str, url: DatabaseUrl) -> None:
    """Record the thread's database, and sometimes forget threads that are no longer in it."""
    if Threads(open_database(url)).existing([thread]):
        store.record_database(thread, url.identity)
    due, now = (store.home, url.identity), time.monotonic()
    if now >= _next_forgetting.get(due, now):
        _next_forgetting[due] = now + FORGET_EVERY_S
        forget_deleted(store, url)


def forget_deleted(store: SnapshotStore, url: DatabaseUrl) -> None:
    """Delete snapshots and private folders of threads that another machine has deleted. Blocks.

    These threads were seen in the database before, and are no longer in it.
    """
    recorded = store.threads_in(url.identity)
    deleted = set(recorded) - Threads(open_database(url)).existing(recorded)
    if deleted:
        store.forget_threads(deleted)
    for folder in (one for thread in deleted for one in private_folders(store.home, thread)):
        remove_folder(folder)


def describe_gap(gap: str) -> list[str]:
    """Describe that a snapshot lacks the newest changes before a point, if it does."""
    return [f"The newest changes before that point are in no snapshot: {gap}"] if gap else []


def describe_restore(done: Restored, aside: Path) -> Iterator[str]:
    changed = len(done.written) + len(done.removed)
    if changed:
        yield f"Files were turned back: {len(done.written)} written, {len(done.removed)} removed."
    yield from describe_differences(done, aside)


def describe_differences(done: Restored, aside: Path) -> Iterator[str]:
    """Yield sentences about files that differ, or differed before, from the snapshot."""
    if done.put_aside:
        yield f"What no snapshot held lies in {aside} now: {named_paths(done.put_aside)}."
    if done.missing:
        why = "; ".join(sorted(set(done.missing.values())))
        yield f"Not restored: {named_paths(list(done.missing))} ({why})."
    if done.left_alone:
        yield f"Left as they are, since snapshots do not hold them: {named_paths(done.left_alone)}."


def named_paths(paths: Sequence[str]) -> str:
    """Name the first paths, and how many more there are."""
    more = len(paths) - NAMED_PATHS
    names = ", ".join(map(printable, paths[:NAMED_PATHS]))
    return f"{names} and {more} more" if more > 0 else names


MAX_TEXT_BYTES = 1 << 20
"""Larger files are compared by size and digest only: their lines would take minutes."""


@dataclass(frozen=True)
class Change:
    """One path that differs. `before` or `after` is None if the path was not there."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None

    @property
    def kind(self) -> str:
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def changes_between(store: SnapshotStore, before: str, after: str) -> list[Change]:
    """Return the differences between two snapshots, by path; an empty name is an empty snapshot.

    Blocks. MissingObjectError: a snapshot is gone.
    """
    found, waiting = list[Change](), [(before, after, "")]
    while waiting:
        before, after, folder = waiting.pop()
        if before == after:
            continue
        old = store.tree(before) if before else {}
        new = store.tree(after) if after else {}
        for name in old.keys() | new.keys():
            was, now, path = old.get(name), new.get(name), take.join(folder, name)
            if was == now:
                continue
            tree_before = was.content if was is not None and was.kind == "folder" else ""
            tree_after = now.content if now is not None and now.kind == "folder" else ""
            if not (tree_before and tree_after and was and now and was.mode == now.mode):
                found.append(Change(path, was, now))
            waiting.append((tree_before, tree_after, path))
    return sorted(found, key=lambda change: change.path)


def unified_diff(store: SnapshotStore, change: Change) -> str:
    """Return a change as a unified diff, or as a line that describes it. Blocks."""
    name = shown(change.path)
    old, new = _lines(store, change.before), _lines(store, change.after)
    if old is None or new is None or old == new:
        return f"{change.kind} {name}: {_described(change.before)} -> {_described(change.after)}\n"
    old_name = f"a/{name}" if change.before else "/dev/null"
    new_name = f"b/{name}" if change.after else "/dev/null"
    lines = difflib.unified_diff(old, new, old_name, new_name)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def change_as_json(store: SnapshotStore, change: Change) -> dict[str, object]:
    """Return a change for programs and the page. Blocks."""
    return {
        "path": change.path.encode("utf-8", "replace").decode(),
        "change": change.kind,
        "before": _entry_as_json(change.before),
        "after": _entry_as_json(change.after),
        "diff": unified_diff(store, change),
    }


def _entry_as_json(entry: TreeEntry | None) -> dict[str, object] | None:
    if entry is None:
        return None
    target = shown(entry.content) if entry.kind == "link" else None
    return {"kind": entry.kind, "mode": f"{entry.mode:o}", "size": entry.size, "target": target}


def _lines(store: SnapshotStore, entry: TreeEntry | None) -> list[str] | None:
    if entry is None:
        return []
    if entry.kind != "file" or entry.size > MAX_TEXT_BYTES:
        return None
    try:
        text = b"".join(map(store.read, store.pieces(entry))).decode()
    except (UnicodeDecodeError, MissingObjectError):
        return None
    return None if "\0" in text else list(io.StringIO(text, newline="\n"))


def _described(entry: TreeEntry | None) -> str:
    if entry is None:
        return "nothing"
    if entry.kind == "file":
        return f"file of {entry.size} bytes, mode {entry.mode:o}, {entry.content[:12]}"
    if entry.kind == "folder":
        return f"folder, mode {entry.mode:o}"
    return f"link to {shown(entry.content)}" if entry.kind == "link" else entry.content
