"""Limits that hold for root too: a control group for each program, where one can be made."""

import contextlib
import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from openmanus_graph.state.settings import SandboxSettings

_GROUP_PREFIX = "openmanus-"
_serial = itertools.count(1)


@dataclass(frozen=True)
class Group:
    """Control groups of one program: one folder (version 2) or one per controller (version 1)."""

    folders: tuple[Path, ...]

    @property
    def entries(self) -> list[str]:
        """Files a process writes its number to, to join."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def members(self) -> list[int]:
        """List the processes inside."""
        with contextlib.suppress(OSError):
            return [int(word) for word in (self.folders[0] / "cgroup.procs").read_text().split()]
        return []

    def processes(self) -> int | None:
        """Count processes and threads; None where nothing counts them."""
        return next(filter(None, (_number(f / "pids.current") for f in self.folders)), None)

    def out_of_memory(self) -> bool:
        """Return True if the kernel has killed a member for its memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    words = (folder / name).read_text().split()
                    if "oom_kill" in words:
                        return words[words.index("oom_kill") + 1] != "0"
        return False

    def remove(self) -> None:
        """Remove the folders. The processes must have ended."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def make_group(settings: SandboxSettings) -> Group | None:
    """Create a group with limits; return None if this account may not."""
    if not sys.platform.startswith("linux"):
        return None
    name = f"{_GROUP_PREFIX}{os.getpid()}-{next(_serial)}"
    memory = str(settings.memory_mb << 20)
    files = {"pids.max": str(settings.processes), "memory.max": memory, "memory.swap.max": "0"}
    files["memory.limit_in_bytes"] = memory
    folders: list[Path] = []
    for parent in _parents():
        folder = parent / name
        try:
            _remove_abandoned(parent)
            folder.mkdir()
        except OSError:
            continue
        if (folder / "cgroup.controllers").exists() and not (folder / "pids.max").exists():
            _write(parent, {"cgroup.subtree_control": "+pids +memory"})
        limits = [file for file in files if (folder / file).exists()]
        if limits and _write(folder, {file: files[file] for file in limits}):
            folders.append(folder)
        else:
            folder.rmdir()
    # Version 2 offers the same controllers in several places: the first one is enough.
    two = [folder for folder in folders if (folder / "cgroup.controllers").exists()]
    for folder in two[1:]:
        folder.rmdir()
        folders.remove(folder)
    return Group(tuple(folders)) if folders else None


def process_rlimits(settings: SandboxSettings) -> dict[str, int]:
    """Limits of single processes on any machine, by their names in `resource`."""
    return {
        # A little less than the group's, so that a program gets an error before it is killed.
        "RLIMIT_DATA": (settings.memory_mb << 20) * 15 // 16,
        "RLIMIT_FSIZE": settings.disk_mb << 20,
        "RLIMIT_CORE": 0,
    }


def rlimits(settings: SandboxSettings, group: Group | None) -> dict[str, int]:
    """Limits of single processes on this machine."""
    limits = process_rlimits(settings)
    if (group is None or group.processes() is None) and os.geteuid() != 0:
        limits["RLIMIT_NPROC"] = _own_threads() + settings.processes
    return limits


def _own_threads() -> int:
    """Count the threads that this user runs already: the limit applies to the user."""
    total, user = 0, os.geteuid()
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == user:
            total += process.info["num_threads"] or 1
    return total


def _parents() -> list[Path]:
    """Folders of control groups where ours might be created, best first."""
    mounts = _mounts()
    parents: list[Path] = []
    for line in _lines("/proc/self/cgroup"):
        _, controllers, place = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in ("pids", "memory", "") and controller in mounts:
                root = mounts[controller]
                here = root / place.lstrip("/")
                parents += [here, here.parent] if not controller and here != root else [here]
    return [parent for parent in parents if parent.is_dir()]


def _mounts() -> dict[str, Path]:
    """Return where each controller is mounted. The empty name is version 2."""
    mounts: dict[str, Path] = {}
    for line in _lines("/proc/self/mountinfo"):
        words, _, rest = line.partition(" - ")
        kind, _, options = rest.partition(" ")
        if kind == "cgroup2":
            mounts.setdefault("", Path(words.split()[4]))
        if kind == "cgroup":
            for option in options.split()[-1].split(","):
                mounts.setdefault(option, Path(words.split()[4]))
    return mounts


def _remove_abandoned(parent: Path) -> None:
    """Remove the groups of processes that were killed."""
    for folder in parent.glob(_GROUP_PREFIX + "*"):
        owner = folder.name.removeprefix(_GROUP_PREFIX).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _write(folder: Path, values: dict[str, str]) -> bool:
    try:
        for file, value in values.items():
            (folder / file).write_text(value)
    except OSError:
        return False
    return True


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []
