"""Writes a snapshot to a new folder, for a thread that begins in another thread's past."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from openmanus_graph.backends.sandbox.scratch import remove_folder
from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.backends.snapshots.restore import Restored, restore_snapshot
from openmanus_graph.backends.snapshots.scan import Extent, scan
from openmanus_graph.backends.snapshots.take import Index
from openmanus_graph.runtime.tree_copy import copy_entry
from openmanus_graph.runtime.workspace import Workspace, opened_folder
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
            _copy_left_alone(source, root, _left_alone(source, extent, done), done)
    except BaseException:
        remove_folder(root)
        raise
    return done


def _left_alone(source: Workspace, extent: Extent, done: Restored) -> list[str]:
    return list(dict.fromkeys([*scan(source, extent.ignored).ignored, *done.missing]))


def _copy_left_alone(source: Workspace, root: Path, paths: Iterable[str], done: Restored) -> None:
    for path in paths:
        copy = root / path
        try:
            with opened_folder(source, (source.root / path).parent) as folder:
                if not copy.parent.is_dir() or not _is_copyable(folder, copy.name):
                    continue
                copy_entry(folder, copy.name, copy)
        except OSError:
            done.missing.setdefault(path, "it cannot be copied")
            continue
        done.missing.pop(path, None)
        done.left_alone.append(path)


def _is_copyable(folder: int, name: str) -> bool:
    """Say whether an entry is a file, a folder or a link."""
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
