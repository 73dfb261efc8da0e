"""The watchdog of a sandbox: ends what fills the disk or multiplies."""

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from openmanus_graph.sandbox.tree import Tree
from openmanus_graph.settings import SandboxSettings

_BUSY_S, _IDLE_S = 0.1, 1.0
_PATIENCE = 3
"""Looks at a full process table before it counts as a fork bomb: `make -j` may touch the limit."""
_MIN_FREE = 512 << 20
"""Bytes of the host's disk that no call may take."""
_STEP = 16 << 20
"""Growth in bytes below which nobody is blamed."""


class Watch:
    """One thread for a sandbox; looks often while a call runs."""

    def __init__(
        self, folders: Sequence[Path], settings: SandboxSettings, trees: Callable[[], list[Tree]]
    ) -> None:
        self._folders = folders
        self._settings = settings
        self._trees = trees
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._full: dict[Tree, int] = {}
        self._mark, self._free = 0, 0
        self._thread = threading.Thread(target=self._run, name="openmanus-watch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look now, and often from now on: a call begins."""
        self._wake.set()

    def close(self) -> None:
        """Stop looking."""
        self._stopped.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        start = self._mark = size_of(self._folders)
        self._free = free_of(self._folders)
        while not self._stopped.is_set():
            trees = [tree for tree in self._trees() if tree.alive()]
            self._full = {tree: looks for tree, looks in self._full.items() if tree in trees}
            busy = [tree for tree in trees if tree.busy]
            for tree in trees:
                if reason := self._crowded(tree):
                    tree.kill(reason)
            if reason := self._swollen(start):
                for tree in busy or trees:
                    tree.kill(reason)
            self._wake.wait(_BUSY_S if busy or self._full else _IDLE_S)
            self._wake.clear()

    def _crowded(self, tree: Tree) -> str:
        """Say what is too much, if it has been too much for some time."""
        processes, memory = _usage(tree)
        if memory > self._settings.memory_mb << 20:
            return f"It was ended: it used more than {self._settings.memory_mb} MB of memory."
        if processes < self._settings.processes * 0.9:
            self._full.pop(tree, None)
            return ""
        self._full[tree] = self._full.get(tree, 0) + 1
        if self._full[tree] < _PATIENCE:
            return ""
        return f"It was ended: it started more than {self._settings.processes} processes."

    def _swollen(self, start: int) -> str:
        """Measure the folders when the disk has got that much fuller, by whomever."""
        limit, free = self._settings.disk_mb << 20, free_of(self._folders)
        scarce = free < _MIN_FREE
        if self._free - free < (_STEP if scarce else max(_STEP, limit // 4)):
            self._free = max(self._free, free)
            return ""
        size, before = size_of(self._folders), self._mark
        self._mark, self._free = size, free
        if size - before < _STEP:
            return ""
        advice = "Delete what is not needed before going on."
        if scarce:
            return f"It was ended: the disk of this machine is nearly full. {advice}"
        if size - start > limit:
            grown = f"the files grew by more than {self._settings.disk_mb} MB"
            return f"It was ended: {grown}. {advice}"
        return ""


def _usage(tree: Tree) -> tuple[int, int]:
    """Count processes and bytes; where the kernel limits them itself, bytes count as none."""
    if tree.group is not None and (processes := tree.group.processes()) is not None:
        return processes, 0
    members, memory = tree.members(), 0
    for process in members:
        with contextlib.suppress(psutil.Error):
            memory += process.memory_info().rss
    return len(members), memory


def free_of(folders: Sequence[Path]) -> int:
    """Bytes left on the disks the folders are on."""
    free: dict[int, int] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            status = os.statvfs(folder)
            free[folder.stat().st_dev] = status.f_bavail * status.f_frsize
    return sum(free.values())


def size_of(folders: Sequence[Path]) -> int:
    """Bytes on disk below the folders; what vanishes meanwhile counts as nothing."""
    total, waiting = 0, [str(folder) for folder in folders]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total
