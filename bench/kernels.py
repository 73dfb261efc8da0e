"""What many kernels of one process take: memory that they do not share, and their starts."""

import contextlib
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.kernel import Kernel
from openmanus_graph.testing.replays import tool_session

WORKS = {
    "a script on a CSV file of 10,000 rows": """
import csv, json, random, statistics
with open("sales.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["shop", "day", "sold"])
    rows.writerows([n % 50, n, random.random()] for n in range(10_000))
with open("sales.csv", newline="") as file:
    sold = {}
    for row in csv.DictReader(file):
        sold.setdefault(row["shop"], []).append(float(row["sold"]))
json.dump({shop: statistics.mean(one) for shop, one in sold.items()}, open("means.json", "w"))
print(len(sold))
""",
    "the same with pandas": """
import numpy, pandas
shops = [n % 50 for n in range(10_000)]
frame = pandas.DataFrame({"shop": shops, "sold": numpy.random.rand(10_000)})
frame.to_csv("sales.csv")
pandas.read_csv("sales.csv").groupby("shop")["sold"].mean().to_json("means.json")
print(frame["shop"].nunique())
""",
}
"""What each kernel does, by name; each prints 50."""
LIMIT_S = 120


@dataclass(frozen=True)
class _Started:
    first_s: float
    """CPU seconds of the first kernel's start."""
    further_s: float
    """Of each further one, mean."""
    memory_mb: float
    """Of all processes of all kernels, bubblewrap's included, by their proportional shares."""
    work_mb: float
    """The same after the work."""


def measure_kernels(*, quick: bool) -> list[list[str]]:
    """Return a row for each work."""
    count = 3 if quick else 50
    return [_row(name, code, count) for name, code in WORKS.items()]


def _row(name: str, code: str, count: int) -> list[str]:
    found = _start(count, code)
    megabytes = (found.memory_mb, found.work_mb)
    seconds = (found.first_s, found.further_s)
    return [name, str(count), *(f"{s:.2f}" for s in seconds), *(f"{mb:.0f}" for mb in megabytes)]


def _start(count: int, code: str) -> _Started:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_until_the_end:
        kernels: list[Kernel] = []
        cpu_s = [_cpu_s()]
        for number in range(count):
            session = open_until_the_end.enter_context(
                contextlib.closing(tool_session(Path(folder, f"work-{number}")))
            )
            sandbox = sandbox_of(session)
            kernels.append(session.handle("python", partial(Kernel, sandbox)))
            cpu_s.append(_cpu_s())
        memory_mb = _memory_mb()
        for kernel in kernels:
            result = kernel.pool.submit(kernel.execute, code, LIMIT_S).result()
            if result.text.strip() != "50":
                raise RuntimeError(f"A kernel ended with {result}")
        work_mb = _memory_mb()
    further_s = (cpu_s[-1] - cpu_s[1]) / (count - 1)
    return _Started(cpu_s[1] - cpu_s[0], further_s, memory_mb, work_mb)


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and all below it."""
    below = 0.0
    for one in _children():
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            below += times.user + times.system
    return time.process_time() + below


def _memory_mb() -> float:
    """Return what all processes below this one use; what several share counts once."""
    kilobytes = 0
    for one in _children():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{one.pid}/smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1024
