"""Takes a snapshot of a workspace: reads what changed since the one before, and stores that."""

import errno
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from openmanus_graph.backends.snapshots.objects import (
    HOLE,
    PIECE,
    NewObjects,
    ObjectStore,
    TreeEntry,
    digest_of,
    list_of,
)
from openmanus_graph.backends.snapshots.scan import (
    OWN_HISTORY,
    TOO_DEEP,
    TOO_LARGE,
    UNREADABLE,
    Extent,
    Scan,
    Stamp,
    join,
    kind_of,
    permissions,
    scan,
    stamp_of,
    too_large,
)
from openmanus_graph.runtime.workspace import (
    Workspace,
    opened_folder,
    put_file,
)
from openmanus_graph.safety.open_beneath import open_entry, read_beneath

_INDEX_BYTES = 512 << 20
INDEX = "snapshot_index.json"
"""In the private folder: what the newest snapshot holds, so that the next reads only changes."""
CLOCK_TICK_NS = 50_000_000
"""A file may be written again without a new time of change within a tick of its file system."""
READ_ATTEMPTS = 3
"""For a file that changes while it is read."""
_BLOCK = 512
"""Bytes of what the system counts as a file's blocks."""


@dataclass(frozen=True)
class Index:
    """What a workspace's newest snapshot holds."""

    root: Path
    snapshot: str = ""
    stamps: Mapping[str, Stamp | None] = field(default_factory=dict[str, Stamp | None])
    """By path. None: it may have changed since without another stamp, and is read again."""
    contents: Mapping[str, str] = field(default_factory=dict[str, str])
    """As a `TreeEntry`'s, by path; what is left out has none."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a path's content is not held."""
    torn: tuple[str, ...] = ()
    """Files that changed each time they were read."""


def read_index(workspace: Workspace, name: str = INDEX) -> Index:
    """Return the index of a workspace; an empty one if there is none of this folder. Blocks."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        saved = cast(
            "dict[str, Any]", json.loads(read_beneath(workspace.private, name, _INDEX_BYTES))
        )
        if saved["root"] == os.fspath(workspace.root):
            entries = cast("dict[str, list[Any]]", saved["entries"])
            stamps = {path: _stamp(entry[0]) for path, entry in entries.items()}
            contents = {path: str(entry[1]) for path, entry in entries.items() if entry[1]}
            left_out = {str(path): str(why) for path, why in saved["left_out"].items()}
            return Index(workspace.root, str(saved["snapshot"]), stamps, contents, left_out)
    return Index(workspace.root)


def _stamp(saved: list[int] | None) -> Stamp | None:
    if saved is None:
        return None
    mode, size, modified, changed, inode = saved
    return mode, size, modified, changed, inode


def write_index(workspace: Workspace, index: Index, name: str = INDEX) -> None:
    """Save an index. Blocks. OSError if that fails."""
    entries = {path: [stamp, index.contents.get(path)] for path, stamp in index.stamps.items()}
    saved = {
        "root": os.fspath(workspace.root),
        "snapshot": index.snapshot,
        "entries": entries,
        "left_out": dict(index.left_out),
    }
    put_file(workspace, workspace.private / name, json.dumps(saved).encode(), synced=False)


def take_snapshot(
    store: ObjectStore, thread: str, workspace: Workspace, extent: Extent, before: Index
) -> Index:
    """Store what changed since the index was made, and return the new index. Blocks.

    Args:
        store: Takes it.
        thread: May go back to the snapshot.
        workspace: Its folder.
        extent: How much a snapshot holds, and what it leaves alone.
        before: Of the snapshot before.

    Raises:
        ConfigError: The workspace has too many files.
        OSError: It cannot be read.
        sqlite3.Error: The store cannot be written.
    """
    began = time.time_ns()
    found = scan(workspace, extent.ignored)
    left_out = dict.fromkeys(too_large(found, extent.max_bytes), TOO_LARGE)
    left_out |= dict.fromkeys(found.unreadable, UNREADABLE)
    left_out |= dict.fromkeys(found.too_deep, TOO_DEEP)
    left_out |= dict.fromkeys(found.histories, OWN_HISTORY)
    if before.snapshot and found.stamps == before.stamps and left_out == before.left_out:
        store.name_snapshot(thread, before.snapshot, workspace.root)
        return before
    changed = (path for path, stamp in found.stamps.items() if before.stamps.get(path) != stamp)
    store.require_room(found.stamps[path][1] for path in changed if path not in left_out)
    for path in found.histories:  # named, so that going back misses one that is gone
        folder, _, name = path.rpartition("/")
        found.folders[folder].append(name)
    with store.adding() as new:
        taking = _Taking(workspace, found, before, new, began - CLOCK_TICK_NS)
        taking.left_out |= left_out
        for folder in reversed(found.folders):  # a folder's tree names those of its folders
            taking.add_folder(folder)
        new.save()
        snapshot = taking.trees[""]
        store.name_snapshot(thread, snapshot, workspace.root)
    stamps = {path: taking.stamps.get(path, stamp) for path, stamp in found.stamps.items()}
    return Index(
        workspace.root,
        snapshot,
        stamps,
        taking.contents,
        taking.left_out,
        tuple(sorted(taking.torn)),
    )


class _Taking:
    """One snapshot in the making."""

    def __init__(
        self, workspace: Workspace, found: Scan, before: Index, new: NewObjects, settled_ns: int
    ) -> None:
        self._workspace, self._found, self._before, self._new = workspace, found, before, new
        self._settled_ns = settled_ns
        """What has changed since may change again without another stamp."""
        self.stamps: dict[str, Stamp | None] = {}
        """Of files that were read, where they are not those of the scan."""
        self.contents: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.trees: dict[str, str] = {}
        self.torn: list[str] = []

    def add_folder(self, folder: str) -> None:
        """Store what is new in a folder, whose own folders are stored already."""
        names, entries = sorted(self._found.folders[folder]), list[list[Any]]()
        changed = [name for name in names if self._must_read(join(folder, name))]
        if changed:
            self._read_changed(folder, changed)
        for name in names:
            path = join(folder, name)
            if (entry := self._entry(path)) is not None:
                entries.append([name, *entry])
                if entry.kind != "left out":
                    self.contents[path] = entry.content
        tree = list_of(entries)
        self.trees[folder] = digest = digest_of(tree)
        if digest != (self._before.contents.get(folder) if folder else self._before.snapshot):
            self._new.add(tree)

    def _must_read(self, path: str) -> bool:
        if path in self.left_out or stat.S_ISDIR((stamp := self._found.stamps[path])[0]):
            return False
        if self._before.stamps.get(path) == stamp and path in self._before.contents:
            self.contents[path] = self._before.contents[path]
            return False
        return True

    def _read_changed(self, folder: str, names: list[str]) -> None:
        """Read files and links of one folder; those that are gone or unreadable are no error."""
        try:
            with opened_folder(self._workspace, self._workspace.root / folder) as descriptor:
                for name in names:
                    self._read(descriptor, name, join(folder, name))
        except OSError:
            for path in (join(folder, name) for name in names):
                if path not in self.contents:
                    self.left_out.setdefault(path, UNREADABLE)

    def _read(self, folder: int, name: str, path: str) -> None:
        try:
            if stat.S_ISLNK(self._found.stamps[path][0]):
                self.contents[path] = os.readlink(name, dir_fd=folder)
            else:
                with os.fdopen(open_entry(folder, name, path), "rb") as file:
                    self._read_file(file, path)
        except FileNotFoundError:
            self.stamps[path] = None  # gone since the scan
        except OSError:  # unreadable, or another kind of entry since the scan
            self.left_out[path] = UNREADABLE

    def _read_file(self, file: BinaryIO, path: str) -> None:
        for _ in range(READ_ATTEMPTS):
            stamp = stamp_of(os.fstat(file.fileno()))
            self.contents[path] = add_file(file, stamp[1], self._new)
            after = stamp_of(os.fstat(file.fileno()))
            settled = max(stamp[2], stamp[3]) < self._settled_ns
            self._found.stamps[path] = stamp
            self.stamps[path] = stamp if stamp == after and settled else None
            if stamp == after:
                return
            file.seek(0)
        self.torn.append(path)

    def _entry(self, path: str) -> TreeEntry | None:
        """Return what the tree says of a path; None if it is gone."""
        if (why := self.left_out.get(path)) is not None:
            return TreeEntry("left out", 0, 0, why)
        mode, size, *_ = self._found.stamps[path]
        kind = kind_of(mode)
        if kind == "folder":
            return TreeEntry("folder", permissions(mode), 0, self.trees[path])
        content = self.contents.get(path)
        if kind is None or content is None:
            return None
        if kind == "link":
            return TreeEntry("link", 0, 0, content)
        return TreeEntry("file", permissions(mode), size, content)


def add_file(file: BinaryIO, size: int, new: NewObjects) -> str:
    """Store a file's first bytes, in pieces, and return the digest that a `TreeEntry` has of it."""
    digests = [new.add(piece) for piece in pieces_in(file, size)]
    return digests[0] if size <= PIECE else new.add_list(digests)


def pieces_in(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield a file's first bytes in pieces, at least one; its holes are not read."""
    has_holes = os.fstat(file.fileno()).st_blocks * _BLOCK < size
    data_at = 0
    for start in range(0, size or 1, PIECE):
        if has_holes and data_at <= start:
            data_at = _next_data(file, start, size)
        if data_at >= start + PIECE <= size:
            yield HOLE
            continue
        file.seek(start)
        yield file.read(min(PIECE, size - start))


def _next_data(file: BinaryIO, start: int, size: int) -> int:
    """Return where a file's next data begins, from a place on; its size if there is none."""
    descriptor = file.fileno()
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else start
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)  # where the buffer takes it to be
