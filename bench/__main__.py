"""Measure everything and print the table."""

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Generator

from bench.subjects import SUBJECTS

RUNS = 5
LENGTHS = (10, 200, 1000)
MEASURED_STEPS = 7
FIGURES = {"cpu_ms": "Client CPU, ms", "gap_ms": "From a reply to the next request, ms"}


@contextlib.contextmanager
def server(steps: int, latency_s: float = 0.0) -> Generator[str]:
    """Start the instant model as a process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "bench.server", "--port", str(port), "--steps", str(steps)]
    process = subprocess.Popen([*command, "--latency", str(latency_s)])
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def measure(subject: str, base_url: str, *more: str) -> dict[str, float]:
    """Run one child and read its figures."""
    command = [sys.executable, "-m", "bench.child", subject, "--base-url", base_url, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def per_step(runs: int) -> dict[str, dict[int, dict[str, float]]]:
    """CPU and wall time of a step, the subjects in turn, so that drift hits all alike."""
    found: dict[str, dict[int, list[dict[str, float]]]] = {
        subject: {length: [] for length in LENGTHS} for subject in SUBJECTS
    }
    for length in LENGTHS:
        with server(length) as base_url:
            for _ in range(runs):
                for subject in SUBJECTS:
                    seed = str(max(0, length - MEASURED_STEPS))
                    found[subject][length].append(measure(subject, base_url, "--seed", seed))
    return {
        subject: {length: medians(figures) for length, figures in lengths.items()}
        for subject, lengths in found.items()
    }


def medians(figures: list[dict[str, float]]) -> dict[str, float]:
    """Take the median of each figure."""
    return {key: statistics.median(one[key] for one in figures) for key in figures[0]}


def table(head: list[str], rows: list[list[str]]) -> str:
    """Write a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=RUNS)
    runs = parser.parse_args().runs
    out = sys.stdout
    steps = per_step(runs) if runs else {}
    for figure, title in FIGURES.items():
        out.write(f"\n{title} at step N (median of {runs})\n\n")
        rows = [
            [subject, *(f"{lengths[n][figure]:.1f}" for n in LENGTHS)]
            for subject, lengths in steps.items()
        ]
        ratios = [
            f"{steps['openmanus'][n][figure] / steps['create_agent'][n][figure]:.2f}"
            for n in LENGTHS
        ]
        rows.append(["openmanus / create_agent", *ratios])
        out.write(table(["", *(f"N={n}" for n in LENGTHS)], rows))
    out.write("\nA whole run of openmanus\n\n")
    head = ["steps", "MB on disk", "MB of memory", "ms to the next request", "more bytes a step"]
    out.write(table(head, [whole_run(length) for length in (200, 1000)]))
    out.write("\n50 agents in one process, model latency 200 ms (ideal: 250 turns a second)\n\n")
    with server(10, 0.2) as base_url:
        rows = [
            [subject, f"{measure(subject, base_url, '--agents', '50')['turns_per_s']:.0f}"]
            for subject in SUBJECTS
        ]
    out.write(table(["", "turns a second"], rows))


def whole_run(length: int) -> list[str]:
    """Run openmanus from its first step on and return a row."""
    with server(length) as base_url:
        found = measure("openmanus", base_url)
    figures = ("disk_mb", "rss_mb", "gap_ms", "bytes_per_step")
    return [str(length), *(f"{found[figure]:.1f}" for figure in figures)]


if __name__ == "__main__":
    main()
