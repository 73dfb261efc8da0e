"""Writes a snapshot to a new folder, for a thread that begins in another thread's past."""

import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.backends.snapshots.restore import Restored, restore_snapshot
from openmanus_graph.backends.snapshots.scan import Extent, scan
from openmanus_graph.backends.snapshots.take import Index
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import StorageSettings


def copy_snapshot(
    store: SnapshotStore, snapshot: str, source: Workspace, root: Path, limits: StorageSettings
) -> Restored:
    """Make a folder of what a snapshot of a workspace holds. Blocks.

    What snapshots leave alone is copied as it is now. If anything fails, the folder is removed.

    Args:
        store: Of the home folder.
        snapshot: To write.
        source: The workspace that it was taken of.
        root: The new folder, which does not exist.
        limits: What snapshots leave alone.

    Raises:
        ConfigError: The snapshot is gone, or the disk is full.
        OSError: The folder cannot be made.
    """
    root.mkdir(parents=True)
    try:
        target = Workspace(root.resolve(), source.private)
        extent = Extent.of_snapshots(limits)
        done = restore_snapshot(store, snapshot, target, extent, Index(root), root)
        done.left_alone = []
        if source.root.is_dir():
            _copy_left_alone(source.root, root, _left_alone(source, extent, done), done)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    return done


def _left_alone(source: Workspace, extent: Extent, done: Restored) -> list[str]:
    return list(dict.fromkeys([*scan(source, extent.ignored).ignored, *done.missing]))


def _copy_left_alone(source: Path, root: Path, paths: Iterable[str], done: Restored) -> None:
    for path in paths:
        place, copy = source / path, root / path
        try:
            mode = place.lstat().st_mode
            if not copy.parent.is_dir() or not is_copyable(mode):
                continue
            if stat.S_ISDIR(mode):
                shutil.copytree(place, copy, symlinks=True, ignore=uncopyable)
            else:
                shutil.copy2(place, copy, follow_symlinks=False)
        except (OSError, shutil.Error):
            done.missing.setdefault(path, "it cannot be copied")
            continue
        done.missing.pop(path, None)
        done.left_alone.append(path)


def uncopyable(folder: str, names: list[str]) -> list[str]:
    """Return the entries of a folder that cannot be copied: sockets, pipes and devices."""
    found: list[str] = []
    for name in names:
        with suppress(OSError):  # gone since it was listed
            if not is_copyable((Path(folder) / name).lstat().st_mode):
                found.append(name)
    return found


def is_copyable(mode: int) -> bool:
    """Say whether a kind of entry is a file, a folder or a link."""
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
