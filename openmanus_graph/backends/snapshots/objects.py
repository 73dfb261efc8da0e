"""The store of all snapshots of a home folder: content-addressed objects in one SQLite file.

Three kinds of objects, each named by the digest of its bytes: pieces of files (up to `PIECE`
bytes), lists of the pieces of larger files, and trees, which list a folder. What is equal is kept
once, whichever threads have it. A snapshot is the tree of a workspace's root.
"""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_file
from openmanus_graph.backends.persistence.schema import sqlite_version

SNAPSHOTS = "snapshots.db"
"""Beside the threads' database: it may grow large, and can be deleted without harm to them."""
PIECE = 1 << 20
"""Bytes of a file that are one object: of a log that grows, only its end is stored anew."""
HOLE = bytes(PIECE)
"""The piece that a hole in a sparse file is read as."""
DIGEST_CHARS = 40
_DIGEST_OF_HOLE = hashlib.sha256(HOLE).hexdigest()[:DIGEST_CHARS]
SPARE_BYTES = 1 << 20
"""That must stay free on the disk."""

_VERSION = 2
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS objects (digest BLOB PRIMARY KEY, data BLOB NOT NULL)",
    """
    CREATE TABLE IF NOT EXISTS snapshots (
        thread TEXT NOT NULL, id TEXT NOT NULL, root BLOB NOT NULL, PRIMARY KEY (thread, id)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS restores (
        thread TEXT PRIMARY KEY, came_back TEXT NOT NULL, under_way TEXT NOT NULL
    )
    """,
    # Of version 2.
    "CREATE TABLE IF NOT EXISTS databases (thread TEXT PRIMARY KEY, url TEXT NOT NULL)",
)
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 500
"""One statement writes, and one transaction holds, no more than that."""

Kind = Literal["file", "folder", "link", "left out"]


class TreeEntry(NamedTuple):
    """One entry of a folder in a snapshot."""

    kind: Kind
    mode: int
    """Permission bits."""
    size: int
    """Bytes of a file."""
    content: str
    """Digest of a file's piece, list of pieces or a folder's tree; a link's target; why an entry
    is left out."""


class MissingObjectError(Exception):
    """An object is not in the store, or damaged."""


class ObjectStore(ABC):
    """A store of objects, in which folders can be written and read. Methods block."""

    moved_objects = moved_bytes = 0
    """Read and written so far."""

    @abstractmethod
    def read(self, digest: str) -> bytes:
        """Return an object. MissingObjectError if it is gone or damaged."""

    @abstractmethod
    def read_ahead(self, digests: Iterable[str]) -> None:
        """Announce what is likely to be read next, in this order, so that several are fetched."""

    @abstractmethod
    def adding(self) -> AbstractContextManager["NewObjects"]:
        """Give what takes new objects, which are saved at the end."""

    @abstractmethod
    def require_room(self, sizes: Iterable[int]) -> None:
        """Raise OSError if files of these sizes surely do not fit."""

    @abstractmethod
    def name_snapshot(self, thread: str, snapshot: str, root: Path) -> None:
        """Keep a snapshot of a folder for a thread."""

    def tree(self, digest: str) -> dict[str, TreeEntry]:
        """Return a folder's entries by name. MissingObjectError as `read`."""
        rows = cast("list[Any]", json.loads(self.read(digest)))
        return {row[0]: TreeEntry(*row[1:]) for row in rows}

    def files_in(self, tree: str, folder: str = "") -> Iterator[tuple[str, TreeEntry]]:
        """Yield all that a tree holds, by path; a folder before its entries."""
        waiting = [(folder, tree)]
        while waiting:
            folder, tree = waiting.pop()
            entries = self.tree(tree)
            folders = [entry.content for entry in entries.values() if entry.kind == "folder"]
            self.read_ahead(reversed(folders))
            for name, entry in entries.items():
                path = f"{folder}/{name}" if folder else name
                yield path, entry
                if entry.kind == "folder":
                    waiting.append((path, entry.content))

    def _count(self, moved: Iterable[bytes]) -> None:
        for data in moved:
            self.moved_objects += 1
            self.moved_bytes += len(data)

    def pieces(self, entry: TreeEntry) -> list[str]:
        """Return the digests of the pieces of a file."""
        if entry.size <= PIECE:
            return [entry.content]
        return cast("list[str]", json.loads(self.read(entry.content)))


class SnapshotStore(ObjectStore):
    """Objects, and which threads name which snapshots. Methods block, and raise sqlite3.Error."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._lock_file = home / "snapshots.adding"
        self.file = home / SNAPSHOTS
        self._database = open_file(self.file, _make_tables)

    @override
    @contextmanager
    def adding(self) -> Generator["NewObjects"]:
        """Give what takes new objects, which are saved at the end; no sweep runs meanwhile."""
        with self._locked(fcntl.LOCK_SH):
            new = NewObjects(self._write)
            yield new
            new.save()

    def _write(self, objects: Mapping[str, bytes]) -> None:
        marks = ", ".join(["(?, ?)"] * len(objects))
        rows = ((bytes.fromhex(digest), data) for digest, data in objects.items())
        self._database.run(
            f"INSERT OR IGNORE INTO objects VALUES {marks}", list(itertools.chain(*rows))
        )
        self._count(objects.values())

    @override
    def require_room(self, sizes: Iterable[int]) -> None:
        needed = SPARE_BYTES + 2 * sum(sizes)  # what is stored goes through a log first
        if shutil.disk_usage(self.home).free < needed:  # others need it, too
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @override
    def read(self, digest: str) -> bytes:
        rows = self._database.run(
            "SELECT data FROM objects WHERE digest = ?", (bytes.fromhex(digest),)
        )
        if not rows or digest_of(rows[0][0]) != digest:
            raise MissingObjectError(digest)
        return bytes(rows[0][0])

    @override
    def read_ahead(self, digests: Iterable[str]) -> None:
        """Do nothing: each is read in a moment."""

    def has(self, digest: str) -> bool:
        """Say whether there is such an object."""
        found = self._database.run(
            "SELECT 1 FROM objects WHERE digest = ?", (bytes.fromhex(digest),)
        )
        return bool(found)

    @override
    def name_snapshot(self, thread: str, snapshot: str, root: Path) -> None:
        self._database.run(
            "INSERT OR REPLACE INTO snapshots (thread, id, root) VALUES (?, ?, ?)",
            (thread, snapshot, os.fsencode(root)),
        )

    def root_of(self, thread: str, snapshot: str) -> Path | None:
        """Return the folder that a thread's snapshot was taken of; None if it has none such."""
        rows = self._database.run(
            "SELECT root FROM snapshots WHERE thread = ? AND id = ?", (thread, snapshot)
        )
        return Path(os.fsdecode(rows[0][0])) if rows else None

    def share(self, thread: str, copy: str, root: Path | None = None) -> None:
        """Let a copy of a thread go back to the thread's snapshots, in a folder of its own."""
        given = None if root is None else os.fsencode(root)
        self._database.run(
            "INSERT OR IGNORE INTO snapshots SELECT ?, id, coalesce(?, root) FROM snapshots"
            " WHERE thread = ?",
            (copy, given, thread),
        )

    def move(self, thread: str, before: Path, root: Path) -> None:
        """Let a thread go back in another folder to what was taken of one before."""
        self._database.run(
            "UPDATE snapshots SET root = ? WHERE thread = ? AND root = ?",
            (os.fsencode(root), thread, os.fsencode(before)),
        )

    def restored(self, thread: str) -> tuple[str, str]:
        """Return for which going back a thread's files were restored, and which restore began.

        Returns:
            The id of the line of checkpoints that the thread came back by, and the snapshot whose
            restore has not ended; both empty if there is none.
        """
        rows = self._database.run(
            "SELECT came_back, under_way FROM restores WHERE thread = ?", (thread,)
        )
        return (rows[0][0], rows[0][1]) if rows else ("", "")

    def record_restore(self, thread: str, came_back: str, under_way: str) -> None:
        """Record what `restored` returns."""
        self._database.run(
            "INSERT OR REPLACE INTO restores (thread, came_back, under_way) VALUES (?, ?, ?)",
            (thread, came_back, under_way),
        )

    def record_database(self, thread: str, url: str) -> None:
        """Record in which database a thread is that several machines may share."""
        self._database.run("INSERT OR REPLACE INTO databases VALUES (?, ?)", (thread, url))

    def threads_in(self, url: str) -> list[str]:
        """Return the threads that were recorded to be in a database."""
        rows = self._database.run("SELECT thread FROM databases WHERE url = ?", (url,))
        return [row[0] for row in rows]

    def forget_threads(self, threads: Iterable[str]) -> None:
        """Forget threads, and sweep the objects that no other thread names."""
        with self._locked(fcntl.LOCK_EX):
            named = False
            for thread in threads:
                self._database.run("DELETE FROM restores WHERE thread = ?", (thread,))
                self._database.run("DELETE FROM databases WHERE thread = ?", (thread,))
                gone = "DELETE FROM snapshots WHERE thread = ? RETURNING id"
                named = bool(self._database.run(gone, (thread,))) or named
            if named:
                self._sweep()

    def _sweep(self) -> None:
        used: set[str] = set()
        for (snapshot,) in self._database.run("SELECT DISTINCT id FROM snapshots"):
            self._mark(snapshot, used)
        rows = self._database.run("SELECT digest FROM objects")
        unused = [row[0] for row in rows if row[0].hex() not in used]
        for batch in _batches(unused, _BATCH_ROWS):
            marks = ", ".join("?" * len(batch))
            self._database.run(f"DELETE FROM objects WHERE digest IN ({marks})", batch)

    def _mark(self, tree: str, used: set[str]) -> None:
        """Add all that a tree needs to a set; trees that are in it already were walked before."""
        waiting = [tree]
        while waiting:
            digest = waiting.pop()
            if digest in used:
                continue
            used.add(digest)
            for entry in self._tree_if_there(digest).values():
                if entry.kind == "folder":
                    waiting.append(entry.content)
                elif entry.kind == "file" and entry.content not in used:
                    used.add(entry.content)
                    if entry.size > PIECE and self.has(entry.content):
                        used.update(self.pieces(entry))

    def _tree_if_there(self, digest: str) -> dict[str, TreeEntry]:
        try:
            return self.tree(digest)
        except MissingObjectError:
            return {}

    @contextmanager
    def _locked(self, how: int) -> Generator[None]:
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


def _make_tables(db: sqlite3.Connection, place: str) -> None:
    """Bring the tables of a file up to date. StorageError: they are of a later version."""
    if sqlite_version(db, place, _VERSION) == _VERSION:
        return
    if not db.execute("SELECT 1 FROM sqlite_master").fetchone():  # a new file
        db.execute("PRAGMA auto_vacuum = FULL")
        db.execute("VACUUM")  # else that comes too late
    for statement in _SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {_VERSION}")


class NewObjects:
    """Takes objects and saves them, many at once."""

    def __init__(self, write: Callable[[Mapping[str, bytes]], None]) -> None:
        self._write = write
        self._unsaved: dict[str, bytes] = {}
        self._unsaved_bytes = 0

    def add(self, data: bytes) -> str:
        """Store an object and return its digest."""
        digest = digest_of(data)
        if digest not in self._unsaved:
            self._unsaved[digest] = data
            self._unsaved_bytes += len(data)
            if self._unsaved_bytes > _BATCH_BYTES or len(self._unsaved) >= _BATCH_ROWS:
                self.save()
        return digest

    def add_list(self, items: Sequence[Any]) -> str:
        """Store a list of pieces, or of a folder's names and entries, and return its digest."""
        return self.add(list_of(items))

    def save(self) -> None:
        """Write what is not saved yet."""
        if self._unsaved:
            self._write(self._unsaved)
        self._unsaved, self._unsaved_bytes = {}, 0


def digest_of(data: bytes) -> str:
    """Return the name of an object."""
    return _DIGEST_OF_HOLE if data is HOLE else hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]


def list_of(items: Sequence[Any]) -> bytes:
    """Return the bytes of a list of pieces, or of a folder's names and entries."""
    return json.dumps(items, separators=(",", ":")).encode()


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
