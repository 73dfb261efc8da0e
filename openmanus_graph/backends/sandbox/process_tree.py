"""Programs that run in a sandbox, each with all of its child processes, and their limits.

Where it is possible, each program gets a control group, whose limits hold for root too.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from openmanus_graph.backends.sandbox.backend import Backend, Measured
from openmanus_graph.backends.sandbox.remote_program import MARKER
from openmanus_graph.errors import ToolError
from openmanus_graph.state.settings import SandboxSettings

_BUSY_S, _BUSY_ELSEWHERE_S, _IDLE_S, _END_S = 0.1, 0.5, 1.0, 1.0
_CHECKS_BEFORE_KILL = 3
"""Checks at the process limit before a kill, because `make -j` may reach it for a moment."""
_MIN_FREE_BYTES = 512 << 20
"""Bytes of the host's disk that no call may take."""
_MIN_GROWTH_BYTES = 16 << 20
"""Growth in bytes below which no program is killed."""

_GROUP_PREFIX = "openmanus-"
_serial = itertools.count(1)

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """Control groups of one program: one folder (version 2) or one per controller (version 1)."""

    folders: tuple[Path, ...]

    @property
    def entries(self) -> list[str]:
        """Files a process writes its number to, to join."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def members(self) -> list[int]:
        with contextlib.suppress(OSError):
            return [int(word) for word in (self.folders[0] / "cgroup.procs").read_text().split()]
        return []

    def processes(self) -> int | None:
        """Count processes and threads; None where nothing counts them."""
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                if count := int((folder / "pids.current").read_text()):
                    return count
        return None

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
    limits, user = process_rlimits(settings), os.geteuid()
    if user and (group is None or group.processes() is None):
        # This limit applies to the user, who runs other programs already.
        threads = 0
        for process in psutil.process_iter(["uids", "num_threads"]):
            uids = process.info["uids"]
            if uids is not None and uids.real == user:
                threads += process.info["num_threads"] or 1
        limits["RLIMIT_NPROC"] = threads + settings.processes
    return limits


def _parents() -> list[Path]:
    """Folders of control groups where ours might be created, best first."""
    try:
        mounts = _mounts(Path("/proc/self/mountinfo").read_text())
        memberships = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    parents: list[Path] = []
    for line in memberships:
        _, controllers, place = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in ("pids", "memory", "") and controller in mounts:
                root = mounts[controller]
                here = root / place.lstrip("/")
                parents += [here, here.parent] if not controller and here != root else [here]
    return [parent for parent in parents if parent.is_dir()]


def _mounts(mountinfo: str) -> dict[str, Path]:
    """Return where each controller is mounted. The empty name is version 2."""
    mounts: dict[str, Path] = {}
    for line in mountinfo.splitlines():
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


@dataclass(eq=False)
class Tree:
    """A process tree, killed as a whole; created by `Sandbox.start`."""

    process: "subprocess.Popen[bytes]"
    group: Group | None
    marker: str
    holds_processes: bool
    kill_elsewhere: Callable[[], object] | None
    """Kills what our process has started elsewhere; None if killing that process is enough."""
    busy: bool = False
    """A call is running: limits are checked more often, and a full disk kills this tree."""
    joined: int | None = None
    """A process outside of the tree whose children have joined it; it ends with them."""
    reason: str = ""
    """Why we killed it, as a sentence for the model."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def alive(self) -> bool:
        """Return True while the program itself runs."""
        return self.process.poll() is None

    def ending(self) -> str:
        """Describe how the program ended: its exit code or the signal."""
        code = self.process.wait()
        number = -code if code < 0 else code - 128 if code > 128 else 0
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(number).name}" if number else f"exit code {code}"
        return f"exit code {code}"

    def out_of_memory(self) -> bool:
        """Return True if the system killed a process of the tree for its memory."""
        return self.group is not None and self.group.out_of_memory()

    def members(self) -> list[psutil.Process]:
        """List the processes, daemons too, unless the backend kills those itself."""
        found = {self.process.pid}
        found.update(self.group.members() if self.group else ())
        for root in filter(None, (self.process.pid, self.joined)):
            with contextlib.suppress(psutil.Error):
                children = psutil.Process(root).children(recursive=True)
                found.update(child.pid for child in children)
        if not self.holds_processes:
            # A daemon is no longer a child, but keeps its environment.
            for process in psutil.process_iter(["environ"]):
                if (process.info["environ"] or {}).get(MARKER) == self.marker:
                    found.add(process.pid)
        members: list[psutil.Process] = []
        for pid in found - {os.getpid()}:
            with contextlib.suppress(psutil.Error):
                members.append(psutil.Process(pid))
        return members

    def kill(self, reason: str = "") -> None:
        """Kill all processes at once. Blocks until they have ended."""
        with self._lock:
            self.reason = self.reason or reason
            if self.kill_elsewhere is not None:
                self.kill_elsewhere()
            if self.holds_processes:
                self.process.kill()
            else:
                self._kill_members()
            self.process.wait()

    def close(self) -> None:
        self.kill()
        if self.group is not None:
            deadline = time.monotonic() + 2
            while self.group.members() and time.monotonic() < deadline:
                for pid in self.group.members():
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.005)
            self.group.remove()

    def _kill_members(self) -> None:
        """Stop all before killing all, so that none can start others."""
        for _ in range(20):
            members = self.members()
            with _killed_if_we_are(members):
                for action in (psutil.Process.suspend, psutil.Process.kill):
                    for process in members:
                        with contextlib.suppress(psutil.Error):
                            action(process)
            _, left = psutil.wait_procs(members, timeout=0.2)
            if not left and len(members) <= 1:
                return


@contextlib.contextmanager
def _killed_if_we_are(processes: Sequence[psutil.Process]) -> Generator[None]:
    """Have a shell kill them if this process ends: a stopped one does not notice that."""
    command = ("/bin/sh", "-c", 'read -r over || kill -9 "$@"', "sh")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # too many processes: killing needs no new one
            watcher = subprocess.Popen(
                [*command, *(str(process.pid) for process in processes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.enter_context(watcher)
            stack.callback(watcher.communicate, b"\n")
        yield


class LimitMonitor:
    """A monitoring thread of one sandbox; it checks more often while a call runs."""

    def __init__(
        self,
        folders: Sequence[Path],
        settings: SandboxSettings,
        backend: Backend,
        trees: Callable[[], list[Tree]],
    ) -> None:
        self._folders = folders
        self._settings = settings
        self._backend = backend
        self._trees = trees
        self._measured: Measured | None = None
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._checks_at_limit: dict[Tree, int] = {}
        self._last_size, self._last_free = 0, 0
        self._thread = threading.Thread(target=self._run, name="openmanus-watch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Check now, and more often from now on: a call begins."""
        self._wake.set()

    def close(self) -> None:
        self._stopped.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        self._measured = self._ask(self._backend.measure, self._measured)
        start = self._last_size = self._used_bytes()
        self._last_free = self._free_bytes()
        while not self._stopped.is_set():
            if self._trees():
                self._measured = self._ask(self._backend.measure, self._measured)
            trees = [tree for tree in self._trees() if tree.alive()]
            self._checks_at_limit = {
                tree: looks for tree, looks in self._checks_at_limit.items() if tree in trees
            }
            busy = [tree for tree in trees if tree.busy]
            for tree in trees:
                if reason := self._over_process_limits(tree):
                    tree.kill(reason)
            if reason := self._over_disk_limit(start):
                for tree in busy or trees:
                    members = [] if tree.kill_elsewhere else tree.members()
                    tree.kill(reason)
                    psutil.wait_procs(members, timeout=_END_S)
                # What they still wrote must not end the next one.
                self._last_size, self._last_free = self._used_bytes(), self._free_bytes()
            often_s = _BUSY_S if self._measured is None else _BUSY_ELSEWHERE_S
            self._wake.wait(often_s if busy or self._checks_at_limit else _IDLE_S)
            self._wake.clear()

    def _used_bytes(self) -> int:
        """Return the bytes on disk below the folders; files deleted meanwhile count as 0."""
        if self._measured is not None:
            return self._ask(self._backend.used_bytes, self._last_size)
        total, waiting = 0, [str(folder) for folder in self._folders]
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
        return total

    def _ask(self, question: Callable[[], T], last: T) -> T:
        """Ask the backend. On ToolError end all programs and return the `last` answer.

        Without a connection to another machine, the programs there have ended.
        """
        try:
            return question()
        except ToolError as error:
            for tree in self._trees():
                tree.kill(str(error))
            return last

    def _free_bytes(self) -> int:
        if self._measured is not None:
            return self._measured.free
        free: dict[int, int] = {}
        for folder in self._folders:
            with contextlib.suppress(OSError):
                status = os.statvfs(folder)
                free[folder.stat().st_dev] = status.f_bavail * status.f_frsize
        return sum(free.values())

    def _over_process_limits(self, tree: Tree) -> str:
        """Return why a program must be killed for memory or processes; empty if not.

        On another machine the usage is that of all programs.
        """
        there = self._measured
        processes, memory = (there.processes, there.memory) if there else _usage(tree)
        if memory > self._settings.memory_mb << 20:
            return f"It was ended: it used more than {self._settings.memory_mb} MB of memory."
        if processes < self._settings.processes * 0.9:
            self._checks_at_limit.pop(tree, None)
            return ""
        self._checks_at_limit[tree] = self._checks_at_limit.get(tree, 0) + 1
        if self._checks_at_limit[tree] < _CHECKS_BEFORE_KILL:
            return ""
        return f"It was ended: it started more than {self._settings.processes} processes."

    def _over_disk_limit(self, start: int) -> str:
        """Return why programs must be killed for disk space; checked when free space shrinks."""
        limit, free = self._settings.disk_mb << 20, self._free_bytes()
        scarce = free < _MIN_FREE_BYTES
        least = _MIN_GROWTH_BYTES if scarce else max(_MIN_GROWTH_BYTES, limit // 4)
        if self._last_free - free < least:
            self._last_free = max(self._last_free, free)
            return ""
        size, before = self._used_bytes(), self._last_size
        self._last_size, self._last_free = size, free
        if size - before < _MIN_GROWTH_BYTES:
            return ""
        advice = "Delete what is not needed before going on."
        if scarce:
            return f"It was ended: the disk is nearly full. {advice}"
        if size - start > limit:
            excess = f"the files grew by more than {self._settings.disk_mb} MB"
            return f"It was ended: {excess}. {advice}"
        return ""


def _usage(tree: Tree) -> tuple[int, int]:
    """Return the number of processes and bytes of memory; 0 bytes if a control group limits it."""
    if tree.group is not None and (processes := tree.group.processes()) is not None:
        return processes, 0
    members, memory = tree.members(), 0
    for process in members:
        with contextlib.suppress(psutil.Error):
            memory += process.memory_info().rss
    return len(members), memory
