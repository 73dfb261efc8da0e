"""Holds the shells of a sandbox: `python -I -S shell_program.py FOLDER COMMAND ...`.

It starts the first shell, and adopts each one whose parent has ended. If a shell with a file
`PID.shell` in FOLDER ends, it reports that on its output, so that the spare shell takes over.

A shell that has taken over represents a job that it did not start by a follower: a process that
reads the job's exit code from a FIFO `PID.FOLLOWER.job`. If the follower is killed, so is the job.

Runs inside, without our package: only the standard library here.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S, _GRACE_S = 0.1, 1.0
_UNKNOWN = 127
"""Exit code of a job whose parent, a shell that was replaced, still runs."""


def main() -> None:
    """Run until all processes below have ended, or this one's parent has."""
    folder = Path(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    changed, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, _handle)
    usual = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them
    os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ, setpgroup=0, setsigdef=usual)
    codes: dict[int, int] = {}
    try:
        with contextlib.suppress(ChildProcessError):
            while True:
                for pid, code in _ended():
                    codes[pid] = code
                    if (folder / f"{pid}.shell").exists():
                        os.write(1, b"\x1e0:%d:%d\x1e" % (pid, code))
                jobs = {job: [*map(int, job.stem.split("."))] for job in folder.glob("*.job")}
                for job in jobs:
                    _follow(job, jobs, codes)
                if select.select([changed], [], [], _POLL_S if jobs else None)[0]:
                    os.read(changed, 4096)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        end(os.getpid())


def _handle(number: int, frame: object) -> None:
    """Wake up for a child that has ended, or new followers (USR1). HUP: our parent has ended."""
    if number == signal.SIGHUP:
        sys.exit(1)


def _ended() -> Iterator[tuple[int, int]]:
    """Yield the children that have ended. Raises ChildProcessError if there are none at all."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        yield pid, code if code >= 0 else 128 - code


def _follow(job: Path, jobs: Mapping[Path, list[int]], codes: Mapping[int, int]) -> None:
    """Report the end of a job to its follower, or end the job if that one has ended.

    `jobs` are the process of each job and its follower.
    """
    pid, follower = jobs[job]
    if not _runs(follower):
        job.unlink()
        if not os.fork():  # because it takes a moment
            end(pid, kept={other for other, _ in jobs.values()} - {pid})
            os._exit(0)
    elif not _runs(pid):
        with contextlib.suppress(OSError):  # the follower does not read it yet
            fifo = os.open(job, os.O_WRONLY | os.O_NONBLOCK)
            os.write(fifo, b"%d\n" % codes.get(pid, _UNKNOWN))
            os.close(fifo)
            job.unlink()


def end(root: int, kept: Collection[int] = ()) -> None:
    """Terminate a process and all that it has started, but not `kept`; kill what does not end."""
    parents, members = _parents(), [root]
    for pid in members:
        members += [child for child in parents if parents[child] == pid and child not in kept]
    members = [pid for pid in members if pid != os.getpid()]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in members:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        deadline = time.monotonic() + _GRACE_S
        while not _parents().keys().isdisjoint(members) and time.monotonic() < deadline:
            time.sleep(_POLL_S / 5)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _parents() -> dict[int, int]:
    """Return the parent of each process that has not ended."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if state not in b"ZX":
                found[int(folder.name)] = int(parent)
    return found


if __name__ == "__main__":
    main()
