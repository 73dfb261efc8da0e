"""A disk that can be filled up.

A small tmpfs where mounting is allowed (root). Elsewhere a limit on the size of the files that a
process writes (`RLIMIT_FSIZE`), set from outside while it runs; then all its files are concerned.
"""

import contextlib
import resource
import subprocess
from collections.abc import Generator
from pathlib import Path

import psutil

SIZE = "3m"
SPARE = "filler"


class Disk:
    """A folder on a disk of its own."""

    def __init__(self, folder: Path, *, mounted: bool) -> None:
        self.folder, self.mounted = folder, mounted

    def fill(self, process: psutil.Process | None = None) -> None:
        """Leave no room; without a mount, for this process only."""
        if not self.mounted:
            _limit(process, 0)
            return
        with (
            contextlib.suppress(OSError),
            (self.folder / SPARE).open("wb", buffering=0) as filler,
        ):
            while filler.write(b"x" * 512):
                pass

    def free(self, process: psutil.Process | None = None) -> None:
        """Make room again."""
        if self.mounted:
            (self.folder / SPARE).unlink(missing_ok=True)
        else:
            _limit(process, resource.RLIM_INFINITY)

    @property
    def wrapper(self) -> tuple[str, ...]:
        """What a command is started with so that it finds the disk full."""
        return () if self.mounted else ("prlimit", "--fsize=0:")


def _limit(process: psutil.Process | None, most: int) -> None:
    if process is not None and process.is_running():
        process.rlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


@contextlib.contextmanager
def small_disk(folder: Path) -> Generator[Disk]:
    """Make a folder a small disk."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(folder, mounted=mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
