"""Moves a thread's files with it: fetched when a machine takes it up, put back after each call.

The database records where they are (`file_locations`), and a worker that has lost the thread cannot
change that. Without `workspace_url` they stay where they are, and other machines refuse the thread.
"""

import asyncio
import json
import os
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from openmanus_graph.backends.persistence.backend import DamagedRowError, Database, read_json
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.leases import hold_run_lease
from openmanus_graph.backends.snapshots import take, thread_snapshots
from openmanus_graph.backends.snapshots.objects import MissingObjectError
from openmanus_graph.backends.snapshots.remote_objects import FilesUnavailableError, RemoteObjects
from openmanus_graph.backends.snapshots.restore import restore_snapshot
from openmanus_graph.config.homes import make_folder, write_once
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import WORKER_SEPARATOR, Session
from openmanus_graph.runtime.session_registry import prepare_runs_with
from openmanus_graph.runtime.workspace import OWN_WORKSPACE, Workspace
from openmanus_graph.state.settings import Settings

_FILES, _PRIVATE = "shared_files.json", "shared_private.json"
"""In the private folder: the indexes of the files that were put or fetched last."""
_STAYS = ("python", "browser", "incoming", take.INDEX, _FILES, _PRIVATE, OWN_WORKSPACE)
"""Parts of the private folder that stay on their machine: packages, logins, our indexes and paths.
"""
_HOME_ID = "home_id"
_CLOSER = "shared files"
_taken_up: dict[str, "ThreadFiles"] = {}
"""The files of the threads that this process works on."""


async def prepare_files(session: Session, workers: Sequence[Session], emit: Emit) -> Sequence[str]:
    """Fetch files that were used elsewhere, then restore those of an earlier point."""
    fetched = await take_up_files(session, emit)
    return [*fetched, *await asyncio.to_thread(thread_snapshots.bring_back, session, workers)]


async def take_up_files(session: Session, emit: Emit) -> Sequence[str]:
    """Fetch a thread's files before its run begins, and return notices.

    ConfigError: they are on another machine. StorageError: the database or the store cannot be
    reached.
    """
    settings = session.settings
    if not session.checkpointed or not _may_be_elsewhere(settings):
        return []
    if settings.storage.workspace_url is not None:
        await hold_run_lease(session, session.key)
    files = await asyncio.to_thread(ThreadFiles, session.key, settings)
    async with take.progress_shown(files.progress, emit):
        notices = await asyncio.to_thread(files.take_up)
    _taken_up[session.key] = files
    session.closers_of_run[_CLOSER] = partial(_leave, session.key)
    return notices


async def put_files_back(session: Session, emit: Emit) -> None:
    """Put a thread's changed files back. StorageError: it fails, or the thread was lost."""
    files = _taken_up.get(session.key.partition(WORKER_SEPARATOR)[0])
    if files is None:
        return
    try:
        async with take.progress_shown(files.progress, emit):
            notices = await asyncio.to_thread(files.put_back)
    except StorageError:
        files.failed = True
        raise
    for text in notices:
        notice(emit, text)


def require_files(thread: str, settings: Settings) -> None:
    """Raise ConfigError if a thread's files are on another machine and cannot come here. Blocks."""
    if _may_be_elsewhere(settings):
        ThreadFiles(thread, settings).find()


def _may_be_elsewhere(settings: Settings) -> bool:
    return settings.storage.workspace_url is not None or not settings.database.is_local


def _leave(thread: str) -> None:
    """Put back the changes of a cancelled run, if possible."""
    files = _taken_up.pop(thread, None)
    if files is not None and not files.failed:
        with suppress(ConfigError, StorageError, OSError):  # the run is over in any case
            files.put_back()


@dataclass(frozen=True)
class FileLocation:
    host: str
    """Name of the machine, for people."""
    home: str
    """Identifies the home folder of the worker that had them last."""
    root: str
    """The workspace there."""
    inode: int = 0
    """Of that folder, by which other machines know it if they share its disk."""
    outputs: str = ""
    """The folder of long outputs there, as the conversation names it."""
    store: str = ""
    """`workspace_url`, if the files were put there."""
    files: str = ""
    """Digest of the workspace in the store."""
    private: str = ""
    """Digest of the private folder in the store."""
    behind: bool = False
    """Whether the files on the machine are newer than those in the store, which failed."""


def find_location(database: Database, thread: str) -> FileLocation | None:
    """Return where a thread's files are; None if it never had any. Blocks."""
    rows = database.run("SELECT location FROM file_locations WHERE thread = ?", (thread,))
    try:
        return FileLocation(**read_json(rows[0][0])) if rows else None
    except (StorageError, TypeError) as error:
        raise DamagedRowError(
            f"The row with the location of the files of thread {thread} is damaged: {error}."
        ) from error


def record_location(database: Database, thread: str, location: FileLocation) -> None:
    """Record where a thread's files are. Blocks. LeaseLostError: another worker has the thread."""
    database.run(
        "INSERT INTO file_locations (thread, location) VALUES (?, ?)"
        " ON CONFLICT (thread) DO UPDATE SET location = excluded.location",
        (thread, json.dumps(asdict(location))),
        worker_of=thread,
    )


@dataclass
class _Part:
    """One of the two folders that move with a thread."""

    workspace: Workspace
    name: str
    """File name of the index."""
    index: take.Index = field(init=False)

    def __post_init__(self) -> None:
        self.index = take.read_index(self.workspace, self.name)

    def save(self) -> None:
        """Save the index if possible; else all files are read again."""
        with suppress(OSError):
            take.write_index(self.workspace, self.index, self.name)


class ThreadFiles:
    """The files of a thread and their transfers. Methods block.

    They raise ConfigError, which says what to do, if the files are elsewhere or too many, and
    StorageError if the database or the store cannot be reached, or the thread was lost.
    """

    def __init__(self, thread: str, settings: Settings) -> None:
        workspace = Workspace.of(settings)
        self._thread, self._home = thread, settings.home
        self._database = open_database(settings.database)
        url, limit = settings.storage.workspace_url, settings.storage.workspace_max_mb
        self._store = None if url is None else RemoteObjects(url, thread, settings.database)
        self._extent = take.Extent(limit << 20, take.CACHES)
        stays = tuple(workspace.private / name for name in _STAYS)
        private = Workspace(workspace.private, workspace.private, stays)
        self._workspace = workspace
        self._files = _Part(workspace, _FILES)
        self._private = _Part(private, _PRIVATE)
        self._recorded: FileLocation | None = None
        self._reported = set[str]()
        self._lock = threading.Lock()
        self._coming_bytes: int | None = None
        """Size of the files that are fetched, including those that are here; None for a put."""
        self.failed = False
        """Whether the database or the store failed: the end of the run does not wait for them."""

    def find(self) -> FileLocation | None:
        """Return where the files are, if they must be fetched; ConfigError if they cannot be."""
        self._recorded = place = find_location(self._database, self._thread)
        if place is None or self._are_here(place):
            return None
        if self._store is None or place.store != str(self._store.url) or place.behind:
            raise ConfigError(_elsewhere(self._thread, place))
        return place

    def take_up(self) -> list[str]:
        """Fetch the files if another worker has used them, put back new ones, return notices."""
        place, store, notices = self.find(), self._store, list[str]()
        if place is not None and store is not None:
            store.begin_transfer()
            self._coming_bytes = 0
            notices = [f"The thread's files, last used on {place.host}, come from {store.url}."]
            notices += self._fetch_part(self._files, place.files, store)
            self._fetch_part(self._private, place.private, store)
            self._workspace.add_former_outputs(Path(place.outputs))
        return notices + self.put_back()

    def progress(self) -> str:
        """Describe how far the transfer under way is; "" before it has moved anything."""
        if self._store is None or not self._store.moved_objects:
            return ""
        megabytes, objects = self._store.moved_bytes >> 20, self._store.moved_objects
        if self._coming_bytes is None:
            way, most = "go to", ""
        else:
            way, most = "come from", f" of at most {self._coming_bytes >> 20:,}"
        moved = f"{megabytes:,}{most} MB in {objects:,} objects so far"
        return f"The thread's files {way} {self._store.url}: {moved}."

    def put_back(self) -> list[str]:
        """Put changes into the store, if there is one, record the location, return notices."""
        with self._lock:
            here = self._here()
            if self._store is None:
                if not thread_snapshots.is_empty(self._workspace.root):
                    self._record(here)
                return []
            self._store.begin_transfer()
            self._coming_bytes = None
            try:
                for part in (self._files, self._private):
                    part.index = take.take_snapshot(
                        self._store, self._thread, part.workspace, self._extent, part.index
                    )
            except take.TooManyFilesError as error:
                raise ConfigError(f"{error} They are too many to be kept in a store.") from error
            except FilesUnavailableError:
                self._record(replace(self._recorded or here, behind=True))
                raise
            put = replace(
                here,
                store=str(self._store.url),
                files=self._files.index.snapshot,
                private=self._private.index.snapshot,
            )
            if self._record(put):
                self._files.save()
                self._private.save()
            return list(self._new_notices())

    def _record(self, place: FileLocation) -> bool:
        """Record where the files are; False if that was known."""
        if place == self._recorded:
            return False
        record_location(self._database, self._thread, place)
        self._recorded = place
        return True

    def _here(self) -> FileLocation:
        root = self._workspace.root
        inode = root.stat().st_ino if root.is_dir() else 0
        return FileLocation(
            host=socket.gethostname(),
            home=home_id(self._home),
            root=os.fspath(root),
            inode=inode,
            outputs=os.fspath(self._workspace.outputs),
        )

    def _are_here(self, place: FileLocation) -> bool:
        """Return True if the newest files of the thread are in its folder on this machine."""
        here = self._here()
        if self._store is None:
            shared = (place.root, place.inode) == (here.root, here.inode)
            return place.home == here.home or shared
        if (place.home, place.root) == (here.home, here.root):
            root = self._workspace.root
            return not place.files or (root.is_dir() and not thread_snapshots.is_empty(root))
        return bool(place.files) and place.files == self._files.index.snapshot

    def _fetch_part(self, part: _Part, digest: str, store: RemoteObjects) -> list[str]:
        aside = thread_snapshots.aside_folder(self._home, self._thread)
        try:
            entries = store.files_in(digest)
            coming = {path: one for path, one in entries if one.kind != "left out"}
        except MissingObjectError as error:
            raise StorageError(
                f"The files of thread {self._thread} are gone from {store.url}, or damaged. Resume "
                "it on the machine where it was used last, which puts them there again."
            ) from error
        self._coming_bytes = (self._coming_bytes or 0) + sum(one.size for one in coming.values())
        fetched = {path: one.content for path, one in coming.items()}
        known = part.index
        # Saved first: after a fetch that was cut off, its files are known not to be the person's.
        stamps = {**dict.fromkeys(fetched), **known.stamps}
        contents = {**fetched, **known.contents}
        part.index = take.Index(part.workspace.root, "", stamps, contents, known.left_out)
        part.save()
        done = restore_snapshot(
            store, digest, part.workspace, self._extent, part.index, aside, keeps_new=True
        )
        return list(thread_snapshots.describe_differences(done, aside))

    def _new_notices(self) -> Iterator[str]:
        left_out = {**self._private.index.left_out, **self._files.index.left_out}
        new = sorted(left_out.keys() - self._reported)
        self._reported.update(new)
        url = self._recorded.store if self._recorded else ""
        large = ", more than [storage] workspace_max_mb. Another machine will not have that."
        reasons = {take.TOO_LARGE: large, take.TOO_DEEP: ", which lies too deep."}
        other = ", which cannot be read."
        for reason in (*reasons.values(), other):
            if paths := [path for path in new if reasons.get(left_out[path], other) == reason]:
                yield f"Not kept in {url}: {thread_snapshots.named_paths(paths)}{reason}"
        if torn := self._files.index.torn:
            names = thread_snapshots.named_paths(torn)
            yield f"Part of {names} may be missing in {url}: changed while it was read."


def home_id(home: Path) -> str:
    """Return the id of a home folder, unique on all machines; made on first use.

    OSError: it cannot be written.
    """
    file = home / _HOME_ID
    make_folder(home)
    write_once(file, secrets.token_hex(16))
    return file.read_text("ascii", "replace").strip()


def _elsewhere(thread: str, place: FileLocation) -> str:
    there = f"The files of thread {thread} are in {place.root} on {place.host}"
    if place.behind:
        return (
            f"{there}, and could not be put into {place.store or 'the store'} when it was used "
            "there last. Resume it there first, which puts them back."
        )
    if place.store:
        return (
            f"{there}, and in {place.store}. Set [storage] workspace_url (OPENMANUS_WORKSPACE_URL) "
            "to that store here too."
        )
    return (
        f"{there}, and not on this machine. Resume it there, or set [storage] workspace_url "
        "(OPENMANUS_WORKSPACE_URL) on both, so that files go with their thread, and resume it "
        "there once."
    )


prepare_runs_with(prepare_files)
