"""What the server costs: its start, an event's way to the page, runs side by side."""

import asyncio
import contextlib
import datetime
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Served, new_page

LATENCY_S = 1.0
STEPS = 4
SIDE_BY_SIDE = 8
BARE = """\
from langgraph.graph import START, MessagesState, StateGraph

def node(state):
    return {}

graph = StateGraph(MessagesState).add_node(node).add_edge(START, "node").compile()
"""
LANGGRAPH = str(Path(sys.executable).with_name("langgraph"))


def measure_server(*, runs: int, quick: bool) -> list[list[str]]:
    """Return the rows of the table."""
    bare, ours = _starts(runs)
    latency_s = 0.1 if quick else LATENCY_S
    with tempfile.TemporaryDirectory() as folder:
        ways, one, several = asyncio.run(_served(Path(folder), runs, latency_s))
    slowest = statistics.quantiles(ways, n=20)[-1]
    return [
        ["seconds to the first answer", f"{bare:.1f} (bare langgraph dev)", f"{ours:.1f}",
         f"+{ours - bare:.1f} s", "+1 s"],
        ["event to page, ms, 95th percentile", "", f"{slowest:.0f}", "", "100"],
        [f"seconds of a run of {STEPS} steps, model latency {LATENCY_S:.0f} s",
         f"{one:.1f} (alone)", f"{several:.1f} (slowest of {SIDE_BY_SIDE})",
         f"{several / one:.2f}", "1.3"],
    ]  # fmt: skip


def _starts(runs: int) -> tuple[float, float]:
    """Return seconds until the bare server and ours answer, started in turn."""
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            bare.append(_bare_start(Path(folder)))
        with tempfile.TemporaryDirectory() as folder:
            served = Served(Path(folder), {"OPENMANUS_MODEL": "openai:m", "OPENAI_API_KEY": "k"})
            started = time.monotonic()
            with served:
                ours.append(time.monotonic() - started)
    return statistics.median(bare), statistics.median(ours)


def _bare_start(folder: Path) -> float:
    (folder / "bare.py").write_text(BARE)
    config = {"dependencies": ["."], "graphs": {"bare": "./bare.py:graph"}}
    (folder / "langgraph.json").write_text(json.dumps(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [LANGGRAPH, "dev", "--no-browser", "--no-reload", "--port", str(port)]
    started = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while True:
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ok", timeout=5).close()
                break
            time.sleep(0.05)
        seconds = time.monotonic() - started
        process.terminate()
    return seconds


async def _served(folder: Path, runs: int, latency_s: float) -> tuple[list[float], float, float]:
    """Return ms of each event's way, seconds of a run alone, and of the slowest of several."""
    with OpenAIServer([partial(_reply, latency_s)], strict=True, loop=True) as model:
        env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m"}
        with Served(folder, env) as served:
            await _run(served, [])  # the first one pays for what is loaded once
            ways: list[float] = []
            alone = statistics.median([await _run(served, ways) for _ in range(runs)])
            several = await asyncio.gather(*(_run(served, ways) for _ in range(SIDE_BY_SIDE)))
            return ways, alone, max(several)


def _reply(latency_s: float, body: dict[str, Any]) -> Reply:
    done = sum(message["role"] == "tool" for message in body["messages"])
    if done < STEPS - 1:
        args = {"command": "create", "path": f"{done}", "file_text": "x"}
        return Reply(calls=(Call("str_replace_editor", args),), delay_s=latency_s)
    return Reply(text="All done, with a text of some length to stream.", delay_s=latency_s)


async def _run(served: Served, ways: list[float]) -> float:
    async with new_page(served) as page:
        started = time.monotonic()

        def seen(event: dict[str, Any]) -> bool:
            sent = datetime.datetime.fromisoformat(event["ts"]).timestamp()
            ways.append(1000 * (time.time() - sent))
            return str(event["type"]) == "final"

        await page.ask(message="Go.")
        await page.until(seen)
        return time.monotonic() - started
