"""One measurement in a process of its own; prints it as JSON."""

import argparse
import asyncio
import gc
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from bench.subjects import SUBJECTS, UNLIMITED, Work

LAST = 5
"""Steps that a figure is the median of: a full garbage collection, which one step in hundreds pays
for, would make a third of the mean of so few. It is in the figures of many agents."""
TICK_S = 0.002


class Stalls:
    """Watches how long the event loop was not free.

    It counts CPU time of the whole process: what else runs on the machine is not our doing.
    """

    def __init__(self) -> None:
        self.callback_ms = self.tick_ms = 0.0
        """Held by one callback; the delay of a task that ticks, by all that were due before it."""

    async def watch(self) -> None:
        """Look at every callback, and tick, until cancelled."""
        handles: Any = asyncio.Handle  # whose method is private
        usual = handles._run

        def watched(handle: asyncio.Handle) -> None:
            begun = time.perf_counter(), time.process_time()
            usual(handle)
            self.callback_ms = max(self.callback_ms, _held_ms(*begun))

        handles._run = watched
        while True:
            begun = time.perf_counter() + TICK_S, time.process_time()
            await asyncio.sleep(TICK_S)
            self.tick_ms = max(self.tick_ms, _held_ms(*begun))


def _held_ms(wall: float, cpu: float) -> float:
    return 1000 * min(time.perf_counter() - wall, time.process_time() - cpu)


def main() -> None:
    """Run a subject on a local server and print CPU, wall time, disk and memory."""
    given = _parsed()
    marks: list[tuple[float, float]] = []
    stalls = Stalls()
    works: list[Work] = []
    watching: list[asyncio.Task[None]] = []

    def mark() -> None:
        if not marks and given.stalls:
            watching.append(asyncio.create_task(stalls.watch()))
        marks.append((time.process_time(), time.perf_counter()))

    async def run(home: Path) -> None:
        for number in range(given.agents):
            place = home / f"{home.name}-{number}"  # processes may share a database
            place.mkdir()
            options = (given.seed, given.window, given.own_tools, given.streams)
            works.append(Work(given.base_url, place, mark, *options))
        async with SUBJECTS[given.subject](home) as agent:
            if given.relaxed_collector:  # as docs/embedding.md says, and our servers do
                gc.set_threshold(50_000)
                gc.freeze()
            await asyncio.gather(*map(agent, works))

    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPENMANUS_HOME"] = folder
        asyncio.run(run(Path(folder)))
        if given.subject == "openmanus":
            from openmanus_graph.backends.persistence.database import close_databases

            close_databases()  # as at the end of a process
        disk_mb, checkpoints_mb = (
            sum(path.stat().st_size for path in Path(folder).rglob(files)) / 1e6
            for files in ("*.db*", "checkpoints.db*")
        )
    figures = {
        "callback_ms": stalls.callback_ms,
        "tick_ms": stalls.tick_ms,
        "tool_ms": 1000 * statistics.median([s for work in works for s in work.seconds] or [0]),
        "disk_mb": disk_mb,
        "checkpoints_mb": checkpoints_mb,
        "whole_cpu_ms": 1000 * time.process_time(),
        "memory_mb": _peak_mb(),
    }
    json.dump(figures | _of_steps(marks, given.agents) | _of_requests(given.base_url), sys.stdout)


def _peak_mb() -> float:
    """Return the memory at most; what `getrusage` tells is that of the parent, if it had more."""
    (peak_kb,) = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(peak_kb) / 1024


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agents", type=int, default=1)
    parser.add_argument("--window", type=int, default=UNLIMITED)
    parser.add_argument("--own-tools", action="store_true")
    parser.add_argument("--streams", action="store_true")
    parser.add_argument("--stalls", action="store_true")
    parser.add_argument("--relaxed-collector", action="store_true")
    return parser.parse_args()


def _of_steps(marks: list[tuple[float, float]], agents: int) -> dict[str, float]:
    """Figures of the tool's calls: CPU time of a step, and how many there were in a second.

    Those of many agents are taken between two calls when all have begun, and none is done.
    """
    if len(marks) <= max(LAST, 3 * agents):
        return {}
    last = itertools.pairwise(cpu for cpu, _ in marks[-LAST - 1 :])
    (cpu_0, wall_0), (cpu_1, wall_1) = marks[2 * agents - 1], marks[-agents - 1]
    turns = len(marks) - 3 * agents
    return {
        "cpu_ms": statistics.median(after - before for before, after in last) * 1000,
        "turn_cpu_ms": (cpu_1 - cpu_0) / turns * 1000,
        "turns_per_s": turns / (wall_1 - wall_0),
    }


def _of_requests(base_url: str) -> dict[str, float]:
    """Figures of the requests, from the server."""
    with urllib.request.urlopen(base_url.removesuffix("v1")) as answer:
        seen, own_bytes, server_cpu_ms = json.load(answer)
    last = seen[-LAST - 1 : -1] or seen
    gaps = [request["gap_ms"] for request in last if request["gap_ms"]]
    return {
        "first_request_at": seen[0]["at"],
        "first_request_bytes": seen[0]["bytes"],
        "gap_ms": statistics.median(gaps or [0]),
        "more_bytes": (last[-1]["bytes"] - last[0]["bytes"]) / max(1, len(last) - 1),
        "own_bytes": own_bytes,
        "server_cpu_ms": server_cpu_ms / len(seen),
    }


if __name__ == "__main__":
    main()
