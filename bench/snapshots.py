"""What a snapshot of the workspace costs a step, by the number of files."""

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from openmanus_graph.backends.snapshots.objects import SNAPSHOTS
from openmanus_graph.backends.snapshots.thread_snapshots import ThreadSnapshots
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.server_settings import StorageSettings

FILE_BYTES = 3000
IN_A_FOLDER = 50
SETTLING_S = 0.1
"""After which a file counts as written long ago."""
T = TypeVar("T")
LIMITS = StorageSettings()


def measure_snapshots(*, quick: bool) -> list[list[str]]:
    """Return a row for each number of files: CPU ms, and the store's size."""
    return [_row(files) for files in ((10, 100) if quick else (10, 1000, 50_000))]


def _row(files: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        home, root = Path(folder) / "home", Path(folder) / "work"
        home.mkdir()
        _fill(root, files)
        time.sleep(SETTLING_S)
        snapshots, workspace = ThreadSnapshots("t", home), Workspace(root, home / "threads" / "t")

        def take() -> str:
            return snapshots.take(workspace, LIMITS)

        first_ms, first = _timed(take)
        same_ms, _ = _timed(take)
        (root / "0" / "0").write_bytes(os.urandom(FILE_BYTES))
        changed_ms, _ = _timed(take)
        back_ms, _ = _timed(lambda: snapshots.restore(first, workspace, LIMITS))
        megabytes = sum((home / f"{SNAPSHOTS}{end}").stat().st_size for end in ("", "-wal")) / 1e6
    times = (first_ms, same_ms, changed_ms, back_ms)
    return [f"{files:,}", *(f"{ms:.1f}" for ms in times), f"{megabytes:.1f}"]


def _fill(root: Path, files: int) -> None:
    contents = random.Random(1)
    for number in range(files):
        folder = root / str(number // IN_A_FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_bytes(contents.randbytes(FILE_BYTES))


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    result = work()
    return 1000 * (time.process_time() - began), result
