"""What deliveries cost: `python -m bench.triggers [--events N] [--runs N]`.

Events arrive up to five times each, in random order, from several threads. Then one worker does
their runs, each of one model call, and its memory is read after each tenth of them.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from openmanus_graph.backends.persistence.deliveries import Event, open_deliveries
from openmanus_graph.interfaces.triggers.worker import Worker
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

SENDERS = 8
CONFIGURATION = """
sandbox = {{ mode = "none" }}
[server]
jobs = 8
[triggers.t]
kind = "webhook"
secret = "s"
overlap = "{overlap}"
task = "Say something about {{n}}."
"""


def receive(events: int) -> float:
    """Store events that arrive several times; return how many requests a second."""
    table, chance = open_deliveries(), random.Random(1)
    arriving = [number for number in range(events) for _ in range(chance.randint(1, 5))]
    chance.shuffle(arriving)
    began = time.perf_counter()

    def store(number: int) -> int:
        event = Event(str(number), {"n": str(number)})
        return table.receive("t", event, time.time()).number

    with ThreadPoolExecutor(SENDERS) as pool:
        assert len(set(pool.map(store, arriving))) == events
    return len(arriving) / (time.perf_counter() - began)


async def work(runs: int, model: OpenAIServer) -> tuple[float, list[float]]:
    """Do runs; return how many a second, and the process's megabytes after each tenth."""
    worker, table, own = Worker(), open_deliveries(), psutil.Process()
    serving = asyncio.create_task(worker.serve())
    began, memory, asked = time.perf_counter(), list[float](), 0
    for tenth in range(1, 11):
        while asked < runs * tenth // 10:
            await asyncio.sleep(0.2)  # the worker tells nobody
            new = len(model.requests)  # it is in this process, whose memory is read
            asked += new
            del model.requests[:new]
        memory.append(own.memory_info().rss / 1e6)
    seconds = time.perf_counter() - began
    await asyncio.sleep(5)  # for the last answers
    delivered = len(await asyncio.to_thread(table.history, "t", runs, "delivered"))
    sys.stdout.write(f"delivered: {delivered:,} of {runs:,}\n")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return runs / seconds, memory


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.triggers")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--overlap", default="parallel")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, OpenAIServer([Reply("Good.")], loop=True) as model:
        folder = Path(name)
        (folder / "config" / "openmanus").mkdir(parents=True)
        text = CONFIGURATION.format(overlap=given.overlap)
        (folder / "config" / "openmanus" / "config.toml").write_text(text)
        os.chdir(folder)
        os.environ |= {
            "XDG_CONFIG_HOME": str(folder / "config"), "OPENMANUS_HOME": str(folder / "home"),
            "OPENMANUS_MODEL": "openai:bench", "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "k",
        }  # fmt: skip
        sys.stdout.write(f"received: {receive(given.events):,.0f} requests a second\n")
        began = time.perf_counter()
        for _ in range(20):
            open_deliveries().due("t", given.overlap, time.time(), 8)
        sys.stdout.write(f"looking for what is due: {50 * (time.perf_counter() - began):.1f} ms\n")
        rate, memory = asyncio.run(work(min(given.runs, given.events), model))
        shown = ", ".join(f"{one:.0f}" for one in memory)
        sys.stdout.write(f"runs: {rate:.1f} a second; MB after each tenth: {shown}\n")


if __name__ == "__main__":
    main()
