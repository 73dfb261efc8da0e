"""Walks a workspace: what lies there, by path, with what tells whether it changed."""

import errno
import os
import re
import stat
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from itertools import islice

from openmanus_graph.backends.snapshots.objects import Kind
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.atomic_files import is_part
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.safety.folder_walk import Folder, TooDeepError, walk
from openmanus_graph.state.settings import StorageSettings

CACHES = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints")
HISTORIES = (".git", ".hg", ".svn", ".jj")
IGNORED = (*HISTORIES, *CACHES)
"""Names that snapshots leave alone, wherever they are."""
MAX_ENTRIES = 250_000
"""Of a workspace, ignored ones not counted."""
TOO_LARGE = "too large"
UNREADABLE = "unreadable"
TOO_DEEP = "too deep"
OWN_HISTORY = "a history of its own"

Stamp = tuple[int, int, int, int, int]
"""Mode, size in bytes, times of modification and change in ns, inode: equal for an equal file."""


@dataclass(frozen=True)
class Extent:
    """How much of a folder is held."""

    max_bytes: int
    """The largest files above it are left out."""
    ignored: Sequence[str]
    """Names and patterns of what is left alone."""

    @classmethod
    def of_snapshots(cls, limits: StorageSettings) -> "Extent":
        """Return how much a snapshot holds that people go back to."""
        return cls(limits.snapshot_max_mb << 20, (*IGNORED, *limits.snapshot_ignore))


class TooManyFilesError(ConfigError):
    """A workspace has more entries than snapshots are made for."""


@dataclass
class Scan:
    """What lies in a workspace; paths are relative to it."""

    stamps: dict[str, Stamp] = field(default_factory=dict[str, Stamp])
    """Of files, folders and links, by path; a folder stands before its entries."""
    folders: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The names in each folder, sorted; the root's path is empty."""
    unreadable: set[str] = field(default_factory=set[str])
    """Folders that cannot be listed."""
    too_deep: set[str] = field(default_factory=set[str])
    """Folders that lie too deep to be looked into."""
    parts: list[str] = field(default_factory=list[str])
    """Files of ours under way, or left half-written by a process that was killed."""
    ignored: list[str] = field(default_factory=list[str])
    """What snapshots leave alone: ignored names, sockets, pipes and devices."""

    def note_failure(self, folder: str, error: OSError) -> None:
        """Note a folder that cannot be looked into, unless it is gone."""
        self.folders[folder] = []
        if isinstance(error, TooDeepError):
            self.too_deep.add(folder)
        elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            self.unreadable.add(folder)

    @property
    def histories(self) -> list[str]:
        """Of what is left alone, what has a history of its own."""
        return [path for path in self.ignored if path.rpartition("/")[2] in HISTORIES]


def scan(workspace: Workspace, ignore: Sequence[str]) -> Scan:
    """Look through a workspace without following links. Blocks.

    Args:
        workspace: What is protected from tools is left alone, and not even named.
        ignore: Names and patterns to leave alone.

    Raises:
        TooManyFilesError: There are more than `MAX_ENTRIES`.
        OSError: The workspace itself cannot be read.
    """
    found, protected = Scan(), workspace.protected_inside()
    with opened_folder(workspace, workspace.root) as top:
        for folder in walk(top, found.note_failure):
            try:
                _scan_folder(folder, ignore, protected, found)
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


def _scan_folder(folder: Folder, ignore: Sequence[str], protected: Set[str], found: Scan) -> None:
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
        if is_ignored(name, ignore) or kind_of(status.st_mode) is None:
            found.ignored.append(path)
            continue
        found.stamps[path] = stamp_of(status)
        names.append(name)
        if stat.S_ISDIR(status.st_mode):
            folder.below.append(name)


def is_ignored(name: str, ignore: Sequence[str]) -> bool:
    """Say whether entries of this name are left alone."""
    return _pattern_of(tuple(ignore)).match(name) is not None


@lru_cache
def _pattern_of(ignore: tuple[str, ...]) -> re.Pattern[str]:
    """Return one pattern for all: every entry of a workspace is looked at."""
    return re.compile("|".join(map(translate, ignore)) or "(?!)")


def stamp_of(status: os.stat_result) -> Stamp:
    """Return an entry's stamp; a folder's has its permissions only."""
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode, 0, 0, 0, 0)
    return (
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    )


def kind_of(mode: int) -> Kind | None:
    """Return what snapshots call a kind of entry; None for sockets, pipes and devices."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else None


def permissions(mode: int) -> int:
    """Return which bits of an entry's mode are held.

    A folder's setgid and sticky bits are, so that folders of a group stay that; of a file neither
    setuid nor setgid, as its owner is not held.
    """
    return stat.S_IMODE(mode) & (0o3777 if stat.S_ISDIR(mode) else 0o777)


def join(folder: str, name: str) -> str:
    """Return the path of an entry of a folder."""
    return f"{folder}/{name}" if folder else name


def too_large(found: Scan, max_bytes: int) -> set[str]:
    """Return the largest files of a workspace, so many that the others fit into a limit."""
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
