"""What a batch of many small tasks takes: `openmanus batch`, each task one call of the model."""

import json
import os
import resource
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

import psutil

from bench.measure import server

COMMAND = str(Path(sysconfig.get_path("scripts")) / "openmanus")
JOBS = 8
LATENCY_S = 0.2
LOOK_S = 0.5
WARM_SHARE = 0.2
"""Of the tasks: everything is loaded then, and the memory is compared with that of the end."""


def measure_batch(*, tasks: int) -> list[list[str]]:
    """Return the rows of a table."""
    serves = ("--steps", "0", "--latency", str(LATENCY_S))
    with server(*serves) as base_url, tempfile.TemporaryDirectory() as folder:
        seconds, cpu_s, memory = _run(Path(folder), base_url, tasks)
    warm = next(mb for done, mb in memory if done >= WARM_SHARE * tasks)
    last = memory[-1][1]
    return [
        [f"{tasks} tasks, {JOBS} at once, model latency {1000 * LATENCY_S:.0f} ms: tasks a second",
         f"{tasks / seconds:.1f}", f"ideal {JOBS / LATENCY_S:.0f}"],
        ["CPU ms of a task, with the start", f"{1000 * cpu_s / tasks:.0f}", ""],
        [f"MB of memory after {100 * WARM_SHARE:.0f} % and at the end", f"{warm:.0f}, {last:.0f}",
         f"+{last - warm:.0f} MB"],
    ]  # fmt: skip


def _run(folder: Path, base_url: str, tasks: int) -> tuple[float, float, list[tuple[int, float]]]:
    """Run a batch; return its seconds, of CPU, and its memory in MB by the number of results."""
    lines = (json.dumps({"task": f"Task {number}"}) for number in range(tasks))
    (folder / "tasks.jsonl").write_text("\n".join(lines))
    out = folder / "out.jsonl"
    command = [COMMAND, "batch", "tasks.jsonl", "--out", str(out), "--jobs", str(JOBS), "--quiet"]
    model = ["--model", "openai:bench", "--base-url", base_url]
    place = {**os.environ, "OPENMANUS_HOME": str(folder / "home"), "OPENAI_API_KEY": "k"}
    started, spent_s, memory = time.monotonic(), _children_s(), list[tuple[int, float]]()
    with subprocess.Popen([*command, *model], cwd=folder, env=place) as process:
        own = psutil.Process(process.pid)
        while process.poll() is None:
            done = out.read_bytes().count(b"\n") if out.exists() else 0
            if own.status() != psutil.STATUS_ZOMBIE:  # it ended between
                memory.append((done, own.memory_info().rss / 1e6))
            time.sleep(LOOK_S)
    seconds = time.monotonic() - started
    results = [json.loads(line) for line in out.read_text().splitlines()]
    if process.returncode or len({one["id"] for one in results}) != tasks:
        raise RuntimeError(f"exit {process.returncode}, {len(results)} results")
    return seconds, _children_s() - spent_s, memory


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
