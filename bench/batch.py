"""What a batch of many small tasks takes: `openmanus batch`, with a model that answers at once."""

import json
import os
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

import psutil

from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

COMMAND = str(Path(sysconfig.get_path("scripts")) / "openmanus")
JOBS = 8
LOOK_S = 0.5
WARM_SHARE = 0.2
"""Of the tasks: everything is loaded then, and the memory is compared with that of the end."""


def measure_batch(*, tasks: int) -> list[list[str]]:
    """Return the rows of a table."""
    with (
        OpenAIServer([Reply("Done.")], strict=True, loop=True) as model,
        tempfile.TemporaryDirectory() as folder,
    ):
        seconds, memory = _run(Path(folder), model.base_url, tasks)
    warm = next(mb for done, mb in memory if done >= WARM_SHARE * tasks)
    last = memory[-1][1]
    return [
        [f"{tasks} tasks of one model call, {JOBS} at once: tasks a second",
         f"{tasks / seconds:.1f}", ""],
        [f"MB of memory after {100 * WARM_SHARE:.0f} % and at the end", f"{warm:.0f}, {last:.0f}",
         f"+{last - warm:.0f} MB"],
    ]  # fmt: skip


def _run(folder: Path, base_url: str, tasks: int) -> tuple[float, list[tuple[int, float]]]:
    """Run a batch; return its seconds, and its memory in MB by the number of results."""
    lines = (json.dumps({"task": f"Task {number}"}) for number in range(tasks))
    (folder / "tasks.jsonl").write_text("\n".join(lines))
    out = folder / "out.jsonl"
    command = [COMMAND, "batch", "tasks.jsonl", "--out", str(out), "--jobs", str(JOBS), "--quiet"]
    model = ["--model", "openai:bench", "--base-url", base_url]
    place = {**os.environ, "OPENMANUS_HOME": str(folder / "home"), "OPENAI_API_KEY": "k"}
    started, memory = time.monotonic(), list[tuple[int, float]]()
    with subprocess.Popen([*command, *model], cwd=folder, env=place) as process:
        own = psutil.Process(process.pid)
        while process.poll() is None:
            done = out.read_bytes().count(b"\n") if out.exists() else 0
            memory.append((done, own.memory_info().rss / 1e6))
            time.sleep(LOOK_S)
    seconds = time.monotonic() - started
    results = [json.loads(line) for line in out.read_text().splitlines()]
    if process.returncode or len({one["id"] for one in results}) != tasks:
        raise RuntimeError(f"exit {process.returncode}, {len(results)} results")
    return seconds, memory
