"""The store of all snapshots of a home folder: content-addressed objects in one SQLite file.

There are three kinds of objects, each named by the digest of its bytes: pieces of files (up to
`PIECE` bytes), lists of the pieces of larger files, and trees, which list a folder. Equal objects
are kept once for all threads. A snapshot is the tree of a workspace's root.
"""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from typing_extensions import override

from openmanus_graph.backends.persistence.database import open_file

SNAPSHOTS = "snapshots.db"
"""A separate file: it may grow large, and can be deleted without harm to the threads."""
PIECE = 1 << 20
"""Bytes of a file that are one object: of a log that grows, only the end is stored again."""
HOLE = bytes(PIECE)
"""The piece that a hole in a sparse file is read as."""
DIGEST_CHARS = 40
_DIGEST_OF_HOLE = hashlib.sha256(HOLE).hexdigest()[:DIGEST_CHARS]
SPARE_BYTES = 1 << 20
"""That must stay free on the disk."""

VERSIONS = (
    (
        "CREATE TABLE objects (digest {bytes} PRIMARY KEY, data {bytes} NOT NULL)",
        """
        CREATE TABLE snapshots (
            thread TEXT NOT NULL, id TEXT NOT NULL, root {bytes} NOT NULL, PRIMARY KEY (thread, id)
        )
        """,
        """
        CREATE TABLE restores (
            thread TEXT PRIMARY KEY, came_back TEXT NOT NULL, under_way TEXT NOT NULL
        )
        """,
        "CREATE TABLE databases (thread TEXT PRIMARY KEY, url TEXT NOT NULL)",
    ),
)
"""The tables of the file, by version."""
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 500
"""The most that one statement writes."""

Kind = Literal["file", "folder", "link", "left out"]


class TreeEntry(NamedTuple):
    kind: Kind
    mode: int
    """Permission bits."""
    size: int
    """Bytes of a file."""
    content: str
    """Digest of a file's only piece, its list of pieces or a folder's tree; a link's target; why
    an entry is left out."""


class MissingObjectError(Exception):
    """An object is not in the store, or damaged."""


class ObjectStore:
    """A store of objects, in which folders can be written and read. Methods block."""

    moved_objects = moved_bytes = 0
    """Read and written since `begin_transfer`."""

    def begin_transfer(self) -> None:
        self.moved_objects = self.moved_bytes = 0

    def read(self, digest: str) -> bytes:
        """Return an object. MissingObjectError if it is gone or damaged."""
        raise NotImplementedError

    def write(self, objects: Mapping[str, bytes]) -> None:
        raise NotImplementedError

    def read_ahead(self, digests: Iterable[str]) -> None:
        """Announce the next likely reads, in this order, so that several are fetched at once."""

    @contextmanager
    def adding(self) -> Generator["NewObjects"]:
        """Collect new objects, which are saved at the end."""
        new = NewObjects(self.write)
        yield new
        new.save()

    def require_room(self, sizes: Iterable[int]) -> None:
        """Raise OSError if files of these sizes surely do not fit."""

    def name_snapshot(self, thread: str, snapshot: str, root: Path) -> None:
        """Keep a snapshot of a folder for a thread."""

    def tree(self, digest: str) -> dict[str, TreeEntry]:
        """Return a folder's entries by name. MissingObjectError as `read`."""
        rows = cast("list[Any]", json.loads(self.read(digest)))
        return {row[0]: TreeEntry(*row[1:]) for row in rows}

    def files_in(self, tree: str, folder: str = "") -> Iterator[tuple[str, TreeEntry]]:
        """Yield all entries of a tree by path, a folder before its entries."""
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
        if entry.size <= PIECE:
            return [entry.content]
        return cast("list[str]", json.loads(self.read(entry.content)))


class SnapshotStore(ObjectStore):
    """Objects, and which threads have which snapshots. Methods block, and raise StorageError."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._lock_file = home / "snapshots.adding"
        self.file = home / SNAPSHOTS
        self._database = open_file(self.file, VERSIONS)
        self._run = self._database.run

    @override
    @contextmanager
    def adding(self) -> Generator["NewObjects"]:
        with self._locked(fcntl.LOCK_SH), super().adding() as new:  # no sweep runs meanwhile
            yield new

    @override
    def write(self, objects: Mapping[str, bytes]) -> None:
        marks = ", ".join(["(?, ?)"] * len(objects))
        rows = ((bytes.fromhex(digest), data) for digest, data in objects.items())
        self._run(
            f"INSERT INTO objects VALUES {marks} ON CONFLICT DO NOTHING",
            list(itertools.chain(*rows)),
        )
        self._count(objects.values())

    @override
    def require_room(self, sizes: Iterable[int]) -> None:
        needed = SPARE_BYTES + 2 * sum(sizes)  # data goes through a log first
        if shutil.disk_usage(self.home).free < needed:  # others need it, too
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @override
    def read(self, digest: str) -> bytes:
        rows = self._run("SELECT data FROM objects WHERE digest = ?", (bytes.fromhex(digest),))
        if not rows or digest_of(rows[0][0]) != digest:
            raise MissingObjectError(digest)
        return bytes(rows[0][0])

    def has(self, digest: str) -> bool:
        found = self._run("SELECT 1 FROM objects WHERE digest = ?", (bytes.fromhex(digest),))
        return bool(found)

    @override
    def name_snapshot(self, thread: str, snapshot: str, root: Path) -> None:
        self._run(
            "INSERT INTO snapshots (thread, id, root) VALUES (?, ?, ?)"
            " ON CONFLICT (thread, id) DO UPDATE SET root = excluded.root",
            (thread, snapshot, os.fsencode(root)),
        )

    def root_of(self, thread: str, snapshot: str) -> Path | None:
        """Return the folder of which a thread's snapshot was taken; None if there is none."""
        rows = self._run(
            "SELECT root FROM snapshots WHERE thread = ? AND id = ?", (thread, snapshot)
        )
        return Path(os.fsdecode(rows[0][0])) if rows else None

    def share(self, thread: str, copy: str, root: Path | None = None) -> None:
        """Let a copy of a thread go back to the thread's snapshots, perhaps in another folder."""
        given = None if root is None else os.fsencode(root)
        self._run(
            "INSERT INTO snapshots SELECT ?, id, coalesce(?, root) FROM snapshots WHERE thread = ?"
            " ON CONFLICT DO NOTHING",
            (copy, given, thread),
        )

    def move(self, thread: str, before: Path, root: Path) -> None:
        """Let a thread go back in one folder to snapshots of another one."""
        self._run(
            "UPDATE snapshots SET root = ? WHERE thread = ? AND root = ?",
            (os.fsencode(root), thread, os.fsencode(before)),
        )

    def restored(self, thread: str) -> tuple[str, str]:
        """Return the newest restore of a thread's files; both texts are empty if there is none.

        The first is the id of the line of checkpoints by which the thread went back, the second the
        snapshot whose restore has not ended.
        """
        rows = self._run("SELECT came_back, under_way FROM restores WHERE thread = ?", (thread,))
        return (rows[0][0], rows[0][1]) if rows else ("", "")

    def record_restore(self, thread: str, came_back: str, under_way: str) -> None:
        self._run(
            "INSERT INTO restores (thread, came_back, under_way) VALUES (?, ?, ?)"
            " ON CONFLICT (thread) DO UPDATE"
            " SET came_back = excluded.came_back, under_way = excluded.under_way",
            (thread, came_back, under_way),
        )

    def record_database(self, thread: str, url: str) -> None:
        self._run(
            "INSERT INTO databases VALUES (?, ?)"
            " ON CONFLICT (thread) DO UPDATE SET url = excluded.url",
            (thread, url),
        )

    def threads_in(self, url: str) -> list[str]:
        rows = self._run("SELECT thread FROM databases WHERE url = ?", (url,))
        return [row[0] for row in rows]

    def forget_threads(self, threads: Iterable[str]) -> None:
        """Forget threads, and sweep the objects that no other thread names."""
        named = [self.forget_names(thread) for thread in threads]
        if any(named):
            self.sweep()

    def forget_names(self, thread: str) -> bool:
        """Forget a thread, whose objects the next sweep deletes; False if it has no snapshots."""
        self._run("DELETE FROM restores WHERE thread = ?", (thread,))
        self._run("DELETE FROM databases WHERE thread = ?", (thread,))
        return bool(self._run("DELETE FROM snapshots WHERE thread = ? RETURNING id", (thread,)))

    def sweep(self) -> int:
        """Delete the objects that no thread names, and return their bytes."""
        swept = 0
        with self._locked(fcntl.LOCK_EX):
            used: set[str] = set()
            for (snapshot,) in self._run("SELECT DISTINCT id FROM snapshots"):
                self._mark(snapshot, used)
            rows = self._run("SELECT digest FROM objects")
            unused = [row[0] for row in rows if row[0].hex() not in used]
            for start in range(0, len(unused), _BATCH_ROWS):
                batch = unused[start : start + _BATCH_ROWS]
                marks = ", ".join("?" * len(batch))
                delete = f"DELETE FROM objects WHERE digest IN ({marks}) RETURNING length(data)"
                swept += sum(size for (size,) in self._run(delete, batch))
            self._database.give_back_space()
        return swept

    def stored_bytes(self) -> int:
        """Return the bytes of all objects."""
        return int(self._run("SELECT coalesce(sum(length(data)), 0) FROM objects")[0][0])

    def _mark(self, tree: str, used: set[str]) -> None:
        """Add all objects of a tree to a set, whose trees were walked before."""
        waiting = [tree]
        while waiting:
            digest = waiting.pop()
            if digest in used:
                continue
            used.add(digest)
            try:
                entries = self.tree(digest)
            except MissingObjectError:
                continue
            for entry in entries.values():
                if entry.kind == "folder":
                    waiting.append(entry.content)
                elif entry.kind == "file" and entry.content not in used:
                    used.add(entry.content)
                    if entry.size > PIECE and self.has(entry.content):
                        used.update(self.pieces(entry))

    @contextmanager
    def _locked(self, how: int) -> Generator[None]:
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


class NewObjects:
    """Takes objects and saves them, many at once."""

    def __init__(self, write: Callable[[Mapping[str, bytes]], None]) -> None:
        self._write = write
        self._unsaved: dict[str, bytes] = {}
        self._unsaved_bytes = 0

    def add(self, data: bytes) -> str:
        """Store an object soon, and return its digest."""
        digest = digest_of(data)
        if digest not in self._unsaved:
            self._unsaved[digest] = data
            self._unsaved_bytes += len(data)
            if self._unsaved_bytes > _BATCH_BYTES or len(self._unsaved) >= _BATCH_ROWS:
                self.save()
        return digest

    def save(self) -> None:
        if self._unsaved:
            self._write(self._unsaved)
        self._unsaved, self._unsaved_bytes = {}, 0


def digest_of(data: bytes) -> str:
    return _DIGEST_OF_HOLE if data is HOLE else hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]


def list_of(items: Sequence[Any]) -> bytes:
    """Return the bytes of a list of pieces, or of a folder's names and entries."""
    return json.dumps(items, separators=(",", ":")).encode()
