"""One measurement in a process of its own; prints it as JSON."""

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable
from pathlib import Path

from bench.subjects import SUBJECTS
from openmanus_graph.persistence.database import close_databases

LAST = 5
"""Steps that a figure is the mean of."""


def main() -> None:
    """Run a subject on an instant server and print CPU, wall time, disk and memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("subject")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agents", type=int, default=1)
    parser.add_argument("--streams", action="store_true")
    given = parser.parse_args()
    marks: list[tuple[float, float]] = []

    def mark() -> None:
        marks.append((time.process_time(), time.perf_counter()))

    async def run(home: Path) -> None:
        runs: list[Awaitable[None]] = []
        for number in range(given.agents):
            place = home / str(number)
            place.mkdir()
            runs.append(
                SUBJECTS[given.subject](
                    given.base_url, given.seed, place, mark, streams=given.streams
                )
            )
        await asyncio.gather(*runs)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPENMANUS_HOME"] = folder
        asyncio.run(run(Path(folder)))
        close_databases()  # as at the end of a process
        disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    (cpu_0, _), (cpu_1, _) = marks[-LAST - 1], marks[-1]
    with urllib.request.urlopen(given.base_url.removesuffix("v1")) as answer:
        seen: list[dict[str, float]] = json.load(answer)[-LAST - 1 : -1]
    json.dump(
        {
            "cpu_ms": (cpu_1 - cpu_0) / LAST * 1000,
            "gap_ms": sum(request["gap_ms"] for request in seen) / LAST,
            "bytes_per_step": (seen[-1]["bytes"] - seen[0]["bytes"]) / (LAST - 1),
            "turns_per_s": (len(marks) - 1) / (marks[-1][1] - marks[0][1]),
            "disk_mb": disk / 1e6,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
