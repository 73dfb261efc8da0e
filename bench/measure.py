"""Starting what is measured: each figure comes from a process of its own."""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Figures = dict[str, float]
K = TypeVar("K")


@contextlib.contextmanager
def server(*options: str, module: str = "bench.server") -> Generator[str]:
    """Start a local model as a process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", module, "--port", str(port), *options])
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def measure(
    subject: str, steps: int, *more: str, serves: Sequence[str] = (), database: str = ""
) -> Figures:
    """Run one child against a server of its own and read its figures.

    Args:
        subject: One of `SUBJECTS`.
        steps: Of the run.
        more: Options of the child.
        serves: Options of the model's server.
        database: Address of an empty PostgreSQL database; else SQLite is used.
    """
    place = {**os.environ, "OPENMANUS_DATABASE_URL": database}
    with server("--steps", str(steps), *serves) as base_url:
        command = [sys.executable, "-m", "bench.child", subject, "--base-url", base_url, *more]
        begun = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=place)
    figures: Figures = json.loads(done.stdout)
    # One clock for all processes of a machine.
    return figures | {"cold_start_ms": 1000 * (figures["first_request_at"] - begun)}


def process(command: Sequence[str], **more: Any) -> tuple[float, float, float]:
    """Run a process and return its seconds, its CPU seconds and its MB of memory at most."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, **more) as running:
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise RuntimeError(f"{command} ended with {running.returncode}")
    seconds = time.perf_counter() - begun
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def interleaved(cases: Mapping[K, Callable[[], Figures]], runs: int) -> dict[K, Figures]:
    """Measure all cases in turn, so many times, and take medians: drift hits all alike."""
    taken: dict[K, list[Figures]] = {case: [] for case in cases}
    for _ in range(runs):
        for case, measured in cases.items():
            taken[case].append(measured())
    return {case: medians(figures) for case, figures in taken.items()}


def medians(runs: Iterable[Figures]) -> Figures:
    """Take the median of each figure."""
    first, *others = runs
    return {key: statistics.median([first[key], *(o[key] for o in others)]) for key in first}
