"""Takes a snapshot of a workspace: reads what changed since the last one, and stores that."""

import asyncio
import errno
import json
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import translate
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from openmanus_graph.backends.snapshots import objects
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.atomic_files import is_part
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.workspace import Workspace, opened_folder, put_file
from openmanus_graph.safety.folder_walk import Folder, TooDeepError, walk
from openmanus_graph.safety.open_beneath import open_entry, read_beneath
from openmanus_graph.state.server_settings import StorageSettings

CACHES = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints")
HISTORIES = (".git", ".hg", ".svn", ".jj")
IGNORED = (*HISTORIES, *CACHES)
"""Names that snapshots leave alone, wherever they are."""
MAX_ENTRIES = 250_000
"""Limit for a workspace, without ignored entries."""
TOO_LARGE = "too large"
UNREADABLE = "unreadable"
TOO_DEEP = "too deep"
OWN_HISTORY = "a repository"

Stamp = tuple[int, int, int, int, int]
"""Mode, size in bytes, times of modification and change in ns, inode: equal for an equal file."""


@dataclass(frozen=True)
class Extent:
    max_bytes: int
    """Above it, the largest files are left out."""
    ignored: Sequence[str]
    """Names and patterns of entries that are left alone."""

    @classmethod
    def of_snapshots(cls, limits: StorageSettings) -> "Extent":
        """Return the extent of snapshots to which people go back."""
        return cls(limits.snapshot_max_mb << 20, (*IGNORED, *limits.snapshot_ignore))


class TooManyFilesError(ConfigError):
    """A workspace has more entries than snapshots are made for."""


@dataclass
class Scan:
    """The entries of a workspace; paths are relative to it."""

    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])
    """Of files, folders and links, by path; a folder comes before its entries."""
    folders: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The names in each folder, sorted; the root's path is empty."""
    unreadable: set[str] = field(default_factory=set[str])
    """Folders that cannot be listed."""
    too_deep: set[str] = field(default_factory=set[str])
    """Folders that are too deep to be opened."""
    parts: list[str] = field(default_factory=list[str])
    """Our temporary files, perhaps left half-written by a process that was killed."""
    ignored: list[str] = field(default_factory=list[str])
    """Ignored names, sockets, pipes and devices."""

    def note_failure(self, folder: str, error: OSError) -> None:
        """Note a folder that cannot be opened, unless it is gone."""
        self.folders[folder] = []
        if isinstance(error, TooDeepError):
            self.too_deep.add(folder)
        elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            self.unreadable.add(folder)


def scan(workspace: Workspace, ignore: Sequence[str]) -> Scan:
    """Look through a workspace without following links or naming protected entries. Blocks.

    TooManyFilesError: it has more than `MAX_ENTRIES`. OSError: it cannot be read.
    """
    found, protected = Scan(), workspace.protected_inside()
    pattern = re.compile("|".join(map(translate, ignore)) or "(?!)")
    with opened_folder(workspace, workspace.root) as top:
        for folder in walk(top, found.note_failure):
            try:
                _scan_folder(folder, pattern, protected, found)
            except OSError as error:
                if not folder.path:
                    raise
                found.note_failure(folder.path, error)
            if len(found.stamps) > MAX_ENTRIES:
                raise TooManyFilesError(
                    f"The workspace {workspace.root} holds more than {MAX_ENTRIES:,} files. Name a "
                    "smaller folder, or leave some out with [storage] snapshot_ignore."
                )
    return found


def _scan_folder(
    folder: Folder, ignored: re.Pattern[str], protected: Set[str], found: Scan
) -> None:
    names = found.folders[folder.path] = []
    with os.scandir(folder.descriptor) as entries:
        listed = sorted(entry.name for entry in islice(entries, MAX_ENTRIES + 1))
    for name in listed:
        path = join(folder.path, name)
        if path in protected:
            continue
        if is_part(name):
            found.parts.append(path)
            continue
        try:
            status = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
        except OSError:
            continue  # gone since it was listed
        if ignored.match(name) or kind_of(status.st_mode) is None:
            found.ignored.append(path)
            continue
        found.stamps[path] = stamp_of(status)
        names.append(name)
        if stat.S_ISDIR(status.st_mode):
            folder.below.append(name)


def stamp_of(status: os.stat_result) -> Stamp:
    """Return an entry's stamp; a folder's has its permissions only."""
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        return (mode, 0, 0, 0, 0)
    return (mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def kind_of(mode: int) -> objects.Kind | None:
    """Return the kind of an entry; None for sockets, pipes and devices."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else None


def permissions(mode: int) -> int:
    """Return the bits of an entry's mode that a snapshot holds.

    These include a folder's setgid and sticky bits, for folders of a group, but not a file's setuid
    and setgid bits, as its owner is not held.
    """
    return stat.S_IMODE(mode) & (0o3777 if stat.S_ISDIR(mode) else 0o777)


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def too_large(found: Scan, max_bytes: int) -> set[str]:
    """Return the largest files of a workspace that must be left out to fit into a limit."""
    sizes = {path: one[1] for path, one in found.stamps.items() if stat.S_ISREG(one[0])}
    excess, chosen = sum(sizes.values()) - max_bytes, set[str]()
    if excess <= 0:
        return chosen
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        if excess <= 0:
            break
        chosen.add(path)
        excess -= sizes[path]
    return chosen


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
    root: Path
    snapshot: str = ""
    stamps: Mapping[str, Stamp | None] = field(default_factory=dict[str, Stamp | None])
    """By path. None: it may change without another stamp, and is read again."""
    contents: Mapping[str, str] = field(default_factory=dict[str, str])
    """`TreeEntry.content` by path, without entries that are left out."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a path's content is not held."""
    torn: tuple[str, ...] = ()
    """Files that changed each time they were read."""
    size: int | None = None
    """Bytes of all files; None if it was read from a file."""


def read_index(workspace: Workspace, name: str = INDEX) -> Index:
    """Return the index of a workspace, or an empty one. Blocks."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        saved = cast(
            "dict[str, Any]", json.loads(read_beneath(workspace.private, name, _INDEX_BYTES))
        )
        if saved["root"] == os.fspath(workspace.root):
            entries = cast("dict[str, list[Any]]", saved["entries"])
            stamps: dict[str, Stamp | None] = {
                path: cast("Stamp", (*entry[0],)) if entry[0] is not None else None
                for path, entry in entries.items()
            }
            contents = {path: str(entry[1]) for path, entry in entries.items() if entry[1]}
            left_out = {str(path): str(why) for path, why in saved["left_out"].items()}
            return Index(workspace.root, str(saved["snapshot"]), stamps, contents, left_out)
    return Index(workspace.root)


def write_index(workspace: Workspace, index: Index, name: str = INDEX) -> None:
    """Save an index. Blocks."""
    entries = {path: [stamp, index.contents.get(path)] for path, stamp in index.stamps.items()}
    saved = {
        "root": os.fspath(workspace.root),
        "snapshot": index.snapshot,
        "entries": entries,
        "left_out": dict(index.left_out),
    }
    put_file(workspace, workspace.private / name, json.dumps(saved).encode(), synced=False)


def take_snapshot(
    store: objects.ObjectStore, thread: str, workspace: Workspace, extent: Extent, before: Index
) -> Index:
    """Store what changed since the last snapshot, and return the new index. Blocks.

    The thread can go back to the snapshot. ConfigError: the workspace has too many files. OSError:
    it cannot be read. StorageError: the store cannot be written.
    """
    began = time.time_ns()
    found = scan(workspace, extent.ignored)
    left_out = dict.fromkeys(too_large(found, extent.max_bytes), TOO_LARGE)
    left_out |= dict.fromkeys(found.unreadable, UNREADABLE)
    left_out |= dict.fromkeys(found.too_deep, TOO_DEEP)
    histories = [path for path in found.ignored if path.rpartition("/")[2] in HISTORIES]
    left_out |= dict.fromkeys(histories, OWN_HISTORY)
    if before.snapshot and found.stamps == before.stamps and left_out == before.left_out:
        store.name_snapshot(thread, before.snapshot, workspace.root)
        return before
    changed = (path for path, stamp in found.stamps.items() if before.stamps.get(path) != stamp)
    store.require_room(found.stamps[path][1] for path in changed if path not in left_out)
    for path in histories:  # named, so that a restore reports one that is gone
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
        sum(stamp[1] for stamp in found.stamps.values()),
    )


@dataclass
class _Taking:
    workspace: Workspace
    found: Scan
    before: Index
    new: objects.NewObjects
    settled_ns: int
    """Files that changed later may change again without another stamp."""
    stamps: dict[str, Stamp | None] = field(default_factory=dict[str, Stamp | None])
    """Of files that were read, if they differ from the scan."""
    contents: dict[str, str] = field(default_factory=dict[str, str])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    trees: dict[str, str] = field(default_factory=dict[str, str])
    torn: list[str] = field(default_factory=list[str])

    def add_folder(self, folder: str) -> None:
        """Store new content of a folder, whose own folders are stored already."""
        names, entries = sorted(self.found.folders[folder]), list[list[Any]]()
        changed = [name for name in names if self._must_read(join(folder, name))]
        if changed:
            self._read_changed(folder, changed)
        for name in names:
            path = join(folder, name)
            if (entry := self._entry(path)) is not None:
                entries.append([name, *entry])
                if entry.kind != "left out":
                    self.contents[path] = entry.content
        tree = objects.list_of(entries)
        self.trees[folder] = digest = objects.digest_of(tree)
        if digest != (self.before.contents.get(folder) if folder else self.before.snapshot):
            self.new.add(tree)

    def _must_read(self, path: str) -> bool:
        if path in self.left_out or stat.S_ISDIR((stamp := self.found.stamps[path])[0]):
            return False
        if self.before.stamps.get(path) == stamp and path in self.before.contents:
            self.contents[path] = self.before.contents[path]
            return False
        return True

    def _read_changed(self, folder: str, names: list[str]) -> None:
        """Read files and links of one folder. Missing and unreadable ones are not an error."""
        try:
            with opened_folder(self.workspace, self.workspace.root / folder) as descriptor:
                for name in names:
                    self._read(descriptor, name, join(folder, name))
        except OSError:
            for path in (join(folder, name) for name in names):
                if path not in self.contents:
                    self.left_out.setdefault(path, UNREADABLE)

    def _read(self, folder: int, name: str, path: str) -> None:
        try:
            if stat.S_ISLNK(self.found.stamps[path][0]):
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
            self.contents[path] = add_file(file, stamp[1], self.new)
            after = stamp_of(os.fstat(file.fileno()))
            settled = max(stamp[2], stamp[3]) < self.settled_ns
            self.found.stamps[path] = stamp
            self.stamps[path] = stamp if stamp == after and settled else None
            if stamp == after:
                return
            file.seek(0)
        self.torn.append(path)

    def _entry(self, path: str) -> objects.TreeEntry | None:
        if (why := self.left_out.get(path)) is not None:
            return objects.TreeEntry("left out", 0, 0, why)
        mode, size, *_ = self.found.stamps[path]
        kind = kind_of(mode)
        if kind == "folder":
            return objects.TreeEntry("folder", permissions(mode), 0, self.trees[path])
        content = self.contents.get(path)
        if kind is None or content is None:
            return None
        if kind == "link":
            return objects.TreeEntry("link", 0, 0, content)
        return objects.TreeEntry("file", permissions(mode), size, content)


def add_file(file: BinaryIO, size: int, new: objects.NewObjects) -> str:
    """Store a file's first bytes in pieces, and return the digest for its `TreeEntry`."""
    digests = [new.add(piece) for piece in pieces_in(file, size)]
    return digests[0] if size <= objects.PIECE else new.add(objects.list_of(digests))


def pieces_in(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield a file's first bytes in pieces, at least one; its holes are not read."""
    has_holes = os.fstat(file.fileno()).st_blocks * _BLOCK < size
    data_at = 0
    for start in range(0, size or 1, objects.PIECE):
        if has_holes and data_at <= start:
            data_at = _next_data(file, start, size)
        if data_at >= start + objects.PIECE <= size:
            yield objects.HOLE
            continue
        file.seek(start)
        yield file.read(min(objects.PIECE, size - start))


def _next_data(file: BinaryIO, start: int, size: int) -> int:
    """Return where a file's next data begins after `start`; its size if there is none."""
    descriptor = file.fileno()
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else start
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)  # where the buffer takes it to be


FIRST_PROGRESS_S, LONGEST_PAUSE_S = 5.0, 60.0
"""Before the first notice; after it each pause is twice as long, up to the second limit."""


@asynccontextmanager
async def progress_shown(progress: Callable[[], str], emit: Emit) -> AsyncGenerator[None]:
    """Emit each new sentence that `progress` returns as a notice, if something takes long."""

    async def show() -> None:
        shown, pause_s = "", FIRST_PROGRESS_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if (text := progress()) != shown:
                shown = text
                notice(emit, text, "info")

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()
