"""What the server costs: its start, events, runs side by side, and threads that are finished."""

import asyncio
import contextlib
import datetime
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from bench.measure import Figures
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Page, Served, new_page

LATENCY_S = 1.0
STEPS = 4
SIDE_BY_SIDE = 8
LISTED = 50
"""Threads that the page asks for."""
TASK = "{} steps, {} s each"
_TASK = re.compile(TASK.format(r"(\d+)", r"([\d.]+)"))
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
    threads = 20 if quick else 1000
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_served(Path(folder), runs, latency_s, threads))
    alone_s, several_s = found["alone_s"], found["several_s"]
    return [
        ["seconds to the first answer", f"{bare:.1f} (bare langgraph dev)", f"{ours:.1f}",
         f"+{ours - bare:.1f} s", "+1 s"],
        ["event to page, ms, 95th percentile", "", f"{found['way_ms']:.0f}", "", "100"],
        ["an event for one more page, ms of CPU", "", f"{found['event_cpu_ms']:.2f}", "", ""],
        [f"seconds of a run of {STEPS} steps, model latency {latency_s:.1f} s",
         f"{alone_s:.1f} (alone)", f"{several_s:.1f} (slowest of {SIDE_BY_SIDE})",
         f"{several_s / alone_s:.2f}", "1.3"],
        [f"kB of memory for each of {threads:,} finished threads", "", f"{found['thread_kb']:.0f}",
         "", ""],
        [f"the newest {LISTED} of them, ms", "", f"{found['list_ms']:.0f}", "", ""],
        ["those in which a word was said, ms", "", f"{found['search_ms']:.0f}", "", ""],
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


async def _served(folder: Path, runs: int, latency_s: float, threads: int) -> Figures:
    with OpenAIServer([reply], strict=True, loop=True) as model:
        env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m"}
        with Served(folder, env) as served:
            task = TASK.format(STEPS, latency_s)
            await _run(served, task, [])  # the first one pays for what is loaded once
            ways: list[float] = []
            alone = [await _run(served, task, ways) for _ in range(runs)]
            several = await asyncio.gather(*(_run(served, task, ways) for _ in range(SIDE_BY_SIDE)))
            return {
                "alone_s": statistics.median(alone),
                "several_s": max(several),
                "way_ms": statistics.quantiles(ways, n=20)[-1],
                "event_cpu_ms": await _event_cpu_ms(served),
                **await _of_threads(served, threads),
            }


def reply(body: dict[str, Any]) -> Reply:
    """Do as the newest task says; the last step is the answer."""
    steps, delay, done = "1", "0", 0
    for message in body["messages"]:
        done += message["role"] == "tool"
        if message["role"] == "user" and (said := _TASK.search(str(message))):
            (steps, delay), done = said.groups(), 0
    if done < int(steps) - 1:
        path = f"{len(body['messages'])}.txt"
        args = {"command": "create", "path": path, "file_text": "x"}
        return Reply(calls=(Call("str_replace_editor", args),), delay_s=float(delay))
    text = "All done, with a text of some length to stream."
    return Reply(text=text, delay_s=float(delay))


async def _run(served: Served, task: str, ways: list[float]) -> float:
    async with new_page(served) as page:
        started = time.monotonic()

        def seen(event: dict[str, Any]) -> bool:
            sent = datetime.datetime.fromisoformat(event["ts"]).timestamp()
            ways.append(1000 * (time.time() - sent))
            return str(event["type"]) == "final"

        await page.ask(message=task)
        await page.until(seen)
        return time.monotonic() - started


async def _event_cpu_ms(served: Served, steps: int = 15, pages: int = 32) -> float:
    """Return what an event costs the server for each further page that follows it."""

    async def followed_by(pages: int) -> tuple[float, int]:
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(new_page(served))
            others = [
                Page(await stack.enter_async_context(served.http()), first.thread)
                for _ in range(pages)
            ]
            begun = cpu_ms(served)
            following = [asyncio.create_task(page.final()) for page in others]
            await first.ask(message=TASK.format(steps, 0))
            await asyncio.gather(first.final(), *following)
            return cpu_ms(served) - begun, len(first.seen)

    alone, events = await followed_by(0)
    beside, _ = await followed_by(pages)
    return (beside - alone) / pages / events


async def _of_threads(served: Served, threads: int) -> Figures:
    """Measure threads that are finished: their memory, and how soon they are listed."""
    at_once = asyncio.Semaphore(SIDE_BY_SIDE)

    async def finish() -> None:
        async with at_once:
            await _run(served, TASK.format(1, 0), [])

    async def ms(**query: Any) -> float:
        begun = time.perf_counter()
        found = await http.get("/app/api/threads", params={"limit": LISTED, **query})
        assert found.json()["threads"]
        return 1000 * (time.perf_counter() - begun)

    await asyncio.gather(*(finish() for _ in range(threads // 10)))
    before = memory_kb(served)
    await asyncio.gather(*(finish() for _ in range(threads)))
    async with served.http() as http:
        return {
            "thread_kb": (memory_kb(served) - before) / threads,
            "list_ms": statistics.median([await ms() for _ in range(9)]),
            "search_ms": statistics.median([await ms(q="length") for _ in range(9)]),
        }


def _processes(served: Served) -> list[psutil.Process]:
    assert served.process is not None
    server = psutil.Process(served.process.pid)
    return [server, *server.children(recursive=True)]


def cpu_ms(served: Served) -> float:
    """Return the CPU that a server and its programs have used."""
    spent = [process.cpu_times() for process in _processes(served)]
    return 1000 * sum(one.user + one.system for one in spent)


def memory_kb(served: Served) -> float:
    """Return the memory of a server and its programs."""
    return sum(process.memory_info().rss for process in _processes(served)) / 1000
