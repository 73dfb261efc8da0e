"""How soon a server of many people answers while many runs work: people who read, and who send."""

import asyncio
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import psutil

from bench.serving import TASK, cpu_ms, memory_kb, reply
from openmanus_graph.backends.persistence.accounts import Accounts
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import Postgres
from tests.support.serving import Page, Served

STEPS, LATENCY_S = 4, 5.0
"""Model calls of a run, and what the model takes for each on average."""
SPREAD = (0.6, 1.4)
"""Of the model's time. Runs of one length would all end, and begin again, at the same moment."""
PAUSE_S = 30.0
"""Of a user who reads, from what was opened last to the next list."""
SETTLE_S = 20.0
"""Until all runs are at different steps; not counted."""
POSTGRES = ("fsync=on", "autovacuum=on", "shared_buffers=128MB")
Place = tuple[httpx.AsyncClient, str]
"""A user, and one of the user's threads."""
MEASURED = ("list", "open", "send", "stream")


@dataclass(frozen=True)
class Scale:
    """How much is measured, and for how long."""

    users: int = 200
    threads: int = 1000
    runs: int = 50
    seconds: float = 120.0
    settle_s: float = SETTLE_S


@dataclass
class _Load:
    """Users of one server, their threads, and the milliseconds of what they asked."""

    served: Served
    people: list[httpx.AsyncClient]
    threads: list[Place] = field(default_factory=list[Place])
    took: dict[str, list[float]] = field(default_factory=lambda: {one: [] for one in MEASURED})
    runs: int = 0
    """That ended."""

    async def timed(self, what: str, ask: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await ask()
        self.took[what].append(1000 * (time.perf_counter() - began))

    async def read(self, http: httpx.AsyncClient, thread: str) -> Page:
        """List the threads and open one, as the page does."""
        page = Page(http, thread)

        async def opened() -> None:
            await _get(http, page.base)
            page.seen = await page.past()

        await self.timed("list", partial(_get, http, "/app/api/threads?limit=50"))
        await self.timed("open", opened)
        return page

    async def send(self, page: Page, task: str) -> None:
        """Start a run, and follow it to its end."""
        await self.timed("send", partial(page.ask, message=task))
        await self.timed("stream", partial(page.until, lambda _: True))
        assert (await page.final())["status"] == "finished", page.seen[-1]
        self.runs += 1

    async def fill(self, threads: int, at_once: int) -> None:
        """Make threads, each with a run that ended."""

        async def some(numbers: Iterator[int]) -> None:
            for number in numbers:
                http = self.people[number % len(self.people)]
                made = await http.post("/app/api/threads", json={})
                await self.send(Page(http, made.json()["id"]), TASK.format(STEPS, 0))
                self.threads.append((http, made.json()["id"]))

        numbers = iter(range(threads))
        await asyncio.gather(*(some(numbers) for _ in range(at_once)))
        random.Random(1).shuffle(self.threads)

    async def send_always(self, places: Iterator[Place]) -> None:
        while True:
            page = await self.read(*next(places))
            latency_s = LATENCY_S * random.uniform(*SPREAD)
            await self.send(page, TASK.format(STEPS, round(latency_s, 1)))

    async def read_always(self, places: list[Place]) -> None:
        pauses = random.Random(id(places))
        for place in itertools.cycle(places):
            await asyncio.sleep(pauses.uniform(0, 2 * PAUSE_S))
            await self.read(*place)


async def _get(http: httpx.AsyncClient, path: str) -> None:
    (await http.get(path)).raise_for_status()


def measure_load(*, quick: bool) -> list[list[str]]:
    """Return the rows of the table: median and 95th percentile with SQLite and with PostgreSQL."""
    scale = Scale(4, 8, 2, 5.0, 0.0) if quick else Scale()
    columns = list[dict[str, str]]()
    with tempfile.TemporaryDirectory() as folder, Postgres.running(*POSTGRES) as server:
        for name, address in (("sqlite", ""), ("postgresql", server.database())):
            columns.append(_of_server(Path(folder) / name, address, scale))
    return [[case, *(column[case] for column in columns)] for case in columns[0]]


def _of_server(place: Path, address: str, scale: Scale) -> dict[str, str]:
    place.mkdir()
    home = place / ".openmanus"
    url = DatabaseUrl.parse(address) if address else DatabaseUrl.in_folder(home)
    accounts = Accounts(open_database(url))
    names = [accounts.add(f"user{number}", "user").name for number in range(scale.users)]
    tokens = [accounts.new_token(name) for name in names]
    close_databases()
    with OpenAIServer([reply], loop=True) as model:
        env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m"}
        env |= {DATABASE_VARIABLE: address} if address else {}
        with Served(place, env, ("--jobs", str(scale.runs))) as served:
            return asyncio.run(_measure(served, tokens, scale))


async def _measure(served: Served, tokens: list[str], scale: Scale) -> dict[str, str]:
    async with AsyncExitStack() as stack:
        clients = [served.http(Authorization=f"Bearer {one}") for one in tokens]
        load = _Load(served, [await stack.enter_async_context(one) for one in clients])
        await load.fill(scale.threads, scale.runs // 2)
        places = itertools.cycle(load.threads)
        readers = scale.users - scale.runs
        work = [asyncio.create_task(load.send_always(places)) for _ in range(scale.runs)]
        work += [
            asyncio.create_task(load.read_always(load.threads[number::readers]))
            for number in range(readers)
        ]
        await asyncio.wait(work, timeout=scale.settle_s, return_when=asyncio.FIRST_COMPLETED)
        for one in load.took.values():
            one.clear()
        begun_ms, load.runs, _ = cpu_ms(served), 0, psutil.cpu_percent()
        ended, _ = await asyncio.wait(
            work, timeout=scale.seconds, return_when=asyncio.FIRST_COMPLETED
        )
        used_ms, memory_mb = cpu_ms(served) - begun_ms, memory_kb(served) / 1000
        machine = psutil.cpu_percent()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        for task in ended:
            task.result()  # none ends by itself
    found = {f"{one}, ms": _percentiles(took) for one, took in load.took.items()}
    return found | {
        "requests": str(sum(map(len, load.took.values()))),
        "runs that ended": str(load.runs),
        "CPU of the server, % of a core": f"{used_ms / scale.seconds / 10:.0f}",
        "CPU of the whole machine, % of its cores": f"{machine:.0f}",
        "memory of the server, MB": f"{memory_mb:.0f}",
    }


def _percentiles(took: list[float]) -> str:
    return f"{statistics.median(took):.0f}, {statistics.quantiles(took, n=20)[-1]:.0f}"
