"""Restores a snapshot in a workspace, and puts aside what would be lost by that."""

import errno
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots import objects, take
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.atomic_files import (
    OPEN_NEW,
    change_mode,
    copy_entry,
    part_name,
    remove_tree,
    status,
)
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.safety.open_beneath import open_entry
from openmanus_graph.state.server_settings import StorageSettings

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


@dataclass
class Restored:
    """The result of a restore; paths are relative to the workspace."""

    written: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    put_aside: list[str] = field(default_factory=list[str])
    """Entries of no snapshot, which are in the aside folder now."""
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """Entries that could not be restored, and why."""
    left_alone: list[str] = field(default_factory=list[str])
    """Entries that snapshots do not hold, unchanged."""


def restore_snapshot(
    store: objects.ObjectStore,
    snapshot: str,
    workspace: Workspace,
    extent: take.Extent,
    newest: take.Index,
    aside: Path,
    *,
    keeps_new: bool = False,
) -> Restored:
    """Restore a snapshot in a workspace. Blocks.

    Each file is replaced atomically, and restoring again after a crash finishes it. Removed entries
    that are not in the newest snapshot are moved to a folder.

    Args:
        workspace: Nothing else works in it.
        newest: The index of its newest snapshot, whose entries can be restored again.
        aside: Folder for entries that no snapshot holds; created if needed.
        keeps_new: Leave these where they are, unless the place is needed.

    Raises:
        ConfigError: The snapshot is gone, or the disk is full, and what to do.
    """
    try:
        target = dict(store.files_in(snapshot))
    except objects.MissingObjectError as error:
        raise ConfigError(
            f"The snapshot {snapshot} of {workspace.root} is gone, or damaged, so its files cannot "
            "be restored. They were not changed."
        ) from error
    restoring = _Restoring(store, workspace, target, newest, aside)
    try:
        restoring.find(extent)
        restoring.remove_what_is_not_there(keeps_new=keeps_new)
        restoring.write_what_differs()
        restoring.set_modes_of_folders()
    except OSError as error:
        raise ConfigError(
            f"The files in {workspace.root} cannot all be restored: {error.strerror}. Make room, "
            "and do the same again: it continues where it stopped, and nothing is lost."
            + (f" What no snapshot held is in {aside} now." if restoring.done.put_aside else "")
        ) from error
    restoring.done.left_alone += [*restoring.found.ignored, *sorted(restoring.found.too_deep)]
    return restoring.done


@dataclass
class _Restoring:
    """One restore under way. OSError: there is no room; other errors are noted by path."""

    store: objects.ObjectStore
    workspace: Workspace
    target: dict[str, objects.TreeEntry]
    newest: take.Index
    aside: Path
    found: take.Scan = field(default_factory=take.Scan)
    done: Restored = field(default_factory=Restored)

    def find(self, extent: take.Extent) -> None:
        """Look through the workspace, including folders that became unreadable."""
        self.found = take.scan(self.workspace, extent.ignored)
        target = self.target
        closed = [
            path
            for path in self.found.unreadable
            if path in target and target[path].kind == "folder"
        ]
        for path in closed:
            with suppress(OSError), self._folder_of(path) as (folder, name):
                change_mode(folder, name, 0o700)
        if closed:
            self.found = take.scan(self.workspace, extent.ignored)

    def remove_what_is_not_there(self, *, keeps_new: bool) -> None:
        """Remove entries that the snapshot does not have, or has as another kind."""
        for path in self.found.parts:
            with self._noting(path), self._folder_of(path) as (folder, name):
                os.unlink(name, dir_fd=folder)
        for path in reversed(self.found.stamps):  # a folder comes after its entries
            wanted, kind = self.target.get(path), take.kind_of(self.found.stamps[path][0])
            if wanted is not None and wanted.kind in (kind, "left out"):
                continue
            if self._lies_in_left_out(path):
                continue
            with self._noting(path), self._folder_of(path) as (folder, name):
                if kind == "folder":
                    self._remove_folder(folder, name, path, needed=wanted is not None)
                    continue
                if not self._is_held(folder, name, path):
                    if keeps_new and wanted is None:
                        continue
                    self._put_aside(folder, name, path)
                os.unlink(name, dir_fd=folder)
                self.done.removed.append(path)

    def _remove_folder(self, folder: int, name: str, path: str, *, needed: bool) -> None:
        """Remove a folder. One that is not empty is kept, unless its name is needed."""
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not needed:
                return
            self._put_aside(folder, name, path)
        self.done.removed.append(path)

    def write_what_differs(self) -> None:
        """Write entries that the workspace does not have, or has with other content."""
        differing = list(self._changed_entries())
        self.store.read_ahead(one.content for _, one in differing if one.kind == "file")
        for path, wanted in differing:  # a folder comes before its entries
            with self._noting(path), self._folder_of(path) as (folder, name):
                if wanted.kind == "folder":
                    if status(folder, name) is None:
                        os.mkdir(name, 0o700, dir_fd=folder)
                        self.done.written.append(path)
                elif not self._is_same(folder, name, path, wanted):
                    self._write(folder, name, path, wanted)
                    self.done.written.append(path)

    def _changed_entries(self) -> Iterator[tuple[str, objects.TreeEntry]]:
        """Yield the entries that may differ, and note those that no snapshot holds."""
        for path, wanted in self.target.items():
            if wanted.kind != "left out":
                if not self._is_unchanged(path, wanted):
                    yield path, wanted
            elif path in self.found.stamps:
                self.done.left_alone.append(path)
            elif path not in self.found.ignored:
                self.done.missing[path] = f"no snapshot holds it ({wanted.content})"

    def set_modes_of_folders(self) -> None:
        for path, wanted in reversed(self.target.items()):
            if wanted.kind == "folder":
                with self._noting(path), self._folder_of(path) as (folder, name):
                    _set_mode(folder, name, wanted.mode)

    def _lies_in_left_out(self, path: str) -> bool:
        """Return True if an entry is in a folder whose content is not in the snapshot."""
        above = (str(parent) for parent in Path(path).parents)
        return any(
            folder in self.target and self.target[folder].kind == "left out" for folder in above
        )

    def _is_unchanged(self, path: str, wanted: objects.TreeEntry) -> bool:
        """Return True if an entry is surely as wanted, without opening it."""
        stamp = self.found.stamps.get(path)
        if stamp is None or take.kind_of(stamp[0]) != wanted.kind:
            return False
        if wanted.kind == "folder":
            return True  # permissions are set at the end
        same_mode = wanted.kind == "link" or take.permissions(stamp[0]) == wanted.mode
        known = self.newest.contents.get(path) if self.newest.stamps.get(path) == stamp else None
        return same_mode and known == wanted.content

    def _is_same(self, folder: int, name: str, path: str, wanted: objects.TreeEntry) -> bool:
        found = status(folder, name)
        if found is None or take.kind_of(found.st_mode) != wanted.kind:
            return False
        if wanted.kind == "link":
            return os.readlink(name, dir_fd=folder) == wanted.content
        if found.st_size != wanted.size or self._content(folder, name, path) != wanted.content:
            return False
        _set_mode(folder, name, wanted.mode)
        return True

    def _write(self, folder: int, name: str, path: str, wanted: objects.TreeEntry) -> None:
        temporary = part_name()
        try:
            if wanted.kind == "link":
                os.symlink(wanted.content, temporary, dir_fd=folder)
            else:
                self._write_file(folder, temporary, wanted)
            if status(folder, name) is not None and not self._is_held(folder, name, path):
                self._put_aside(folder, name, path)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)

    def _write_file(self, folder: int, name: str, wanted: objects.TreeEntry) -> None:
        pieces = self.store.pieces(wanted) if wanted.size else []
        if len(pieces) > 1:  # a single one was announced with the file
            self.store.read_ahead(pieces)
        with os.fdopen(os.open(name, OPEN_NEW, 0o600, dir_fd=folder), "wb") as file:
            for digest in pieces:
                if digest == objects.digest_of(objects.HOLE):
                    file.seek(objects.PIECE, os.SEEK_CUR)
                else:
                    file.write(self.store.read(digest))
            file.truncate()
            os.fchmod(file.fileno(), wanted.mode)

    def _content(self, folder: int, name: str, path: str) -> str:
        """Return a file's digest or a link's target, as a `TreeEntry` has it."""
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return os.readlink(name, dir_fd=folder)
        if self.newest.stamps.get(path) == take.stamp_of(found) and path in self.newest.contents:
            return self.newest.contents[path]
        with os.fdopen(open_entry(folder, name, path), "rb") as file:
            pieces = [objects.digest_of(data) for data in take.pieces_in(file, found.st_size)]
        return pieces[0] if len(pieces) == 1 else objects.digest_of(objects.list_of(pieces))

    def _is_held(self, folder: int, name: str, path: str) -> bool:
        """Return True if the newest snapshot holds an entry with its present content."""
        try:
            return self.newest.contents.get(path) == self._content(folder, name, path)
        except OSError:
            return False

    def _put_aside(self, folder: int, name: str, path: str) -> None:
        """Put an entry into the aside folder. A file or link also stays at its place."""
        target = self.aside / path
        self.aside.mkdir(parents=True, exist_ok=True)
        # Not through a link that may have been moved there in the place of a folder.
        with opened_folder(Workspace(self.aside, self.aside), target.parent, create=True):
            pass
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            _move_folder(folder, name, target)
        elif stat.S_ISREG(found.st_mode) and _link(folder, name, found, target):
            pass
        else:
            copy_entry(folder, name, target)
        self.done.put_aside.append(path)

    @contextmanager
    def _folder_of(self, path: str) -> Generator[tuple[int, str]]:
        """Open the folder of an entry for writing, and give the entry's name in it."""
        place = self.workspace.root / path
        with opened_folder(self.workspace, place.parent) as folder:
            mode = os.fstat(folder).st_mode
            if mode & 0o300 != 0o300:
                with suppress(PermissionError):
                    os.fchmod(folder, stat.S_IMODE(mode) | 0o700)
            yield folder, place.name

    @contextmanager
    def _noting(self, path: str) -> Generator[None]:
        """Note that an entry cannot be restored. OSError if there is no room for any."""
        try:
            yield
        except objects.MissingObjectError:
            self.done.missing[path] = "its content is gone from the store"
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            self.done.missing[path] = error.strerror or str(error)


def _set_mode(folder: int, name: str, mode: int) -> None:
    """Set permissions if they differ: those of other users' files cannot be set at all."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if take.permissions(found.st_mode) != mode:
        change_mode(folder, name, mode)


def _move_folder(folder: int, name: str, target: Path) -> None:
    try:
        os.rename(name, target, src_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_entry(folder, name, target)
        remove_tree(folder, name)


def _link(folder: int, name: str, found: os.stat_result, target: Path) -> bool:
    """Link a file to another path, unless the workspace could change it there later."""
    if found.st_nlink != 1:  # it can be written under its other name
        return False
    try:
        os.link(name, target, src_dir_fd=folder, follow_symlinks=False)
    except OSError:  # another disk, or no hard links
        return False
    return True


def copy_snapshot(
    store: objects.SnapshotStore,
    snapshot: str,
    source: Workspace,
    root: Path,
    limits: StorageSettings,
) -> Restored:
    """Copy a workspace as it was at a snapshot to a new folder. Blocks.

    Entries that snapshots leave alone are copied as they are now; `left_alone` names them.
    ConfigError: the snapshot is gone, or the disk is full. OSError: the folder cannot be made.
    """
    root.mkdir(parents=True)
    try:
        target = Workspace(root.resolve(), source.private)
        extent = take.Extent.of_snapshots(limits)
        done = restore_snapshot(store, snapshot, target, extent, take.Index(root), root)
        done.left_alone = []
        if source.root.is_dir():
            left = dict.fromkeys([*take.scan(source, extent.ignored).ignored, *done.missing])
            _copy_left_alone(source, root, left, done)
    except BaseException:
        remove_folder(root)
        raise
    return done


def _copy_left_alone(source: Workspace, root: Path, paths: Iterable[str], done: Restored) -> None:
    for path in paths:
        copy = root / path
        try:
            with opened_folder(source, (source.root / path).parent) as folder:
                mode = os.stat(copy.name, dir_fd=folder, follow_symlinks=False).st_mode
                if not copy.parent.is_dir() or take.kind_of(mode) is None:
                    continue
                copy_entry(folder, copy.name, copy)
        except OSError:
            done.missing.setdefault(path, "it cannot be copied")
            continue
        done.missing.pop(path, None)
        done.left_alone.append(path)
