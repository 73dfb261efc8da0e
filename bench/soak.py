"""Hours of a server with runs, prunes, backups and kills: nothing may be lost, and nothing grow."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.serving import TASK, cpu_ms, memory_kb, reply
from openmanus_graph.backends.persistence.accounts import Accounts
from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.config.homes import HOME_VARIABLE
from openmanus_graph.interfaces.service.usage import sums
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Page, Served

COMMAND = str(Path(sys.executable).with_name("openmanus"))
PEOPLE, PAUSE_S = 4, 5.0
"""Users, each with one run after another, and the pause between two."""
STEPS, LATENCY_S, RUNS_OF_A_THREAD = 3, 1.0, 3
KEPT = "10m"
MOST_PAUSE_S = 30.0
"""Between a prune, a backup, a kill and a restore."""
QUOTAS = "[server.quotas]\nusd_per_day = 1000000\ntokens_per_day = 1000000000\n"
"""With a quota, a call is counted before it is made."""
OLD_S = 600.0
"""Seconds of the last server's life before its memory is compared."""


@dataclass(frozen=True)
class _Sample:
    at: float
    memory_mb: float
    disk_mb: float


@dataclass
class _Soak:
    served: Served
    tokens: list[str]
    calls: "itertools.count[int]" = field(default_factory=itertools.count)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("runs accepted", "runs ended", "of them resumed after a kill", "kills", "prunes",
             "threads deleted", "backups, each restored and continued",
             "with a run that the backup cut off"), 0
        )
    )  # fmt: skip
    faults: list[str] = field(default_factory=list[str])
    samples: list[_Sample] = field(default_factory=list[_Sample])
    cpu_s: float = 0.0
    """Of servers that have ended."""

    def answer(self, body: dict[str, Any]) -> Reply:
        next(self.calls)
        return reply(body)

    def http(self, person: int) -> httpx.AsyncClient:
        return self.served.http(Authorization=f"Bearer {self.tokens[person]}")

    async def work(self, person: int, until: float) -> None:
        """Start one run after another, and follow each to its end, whatever happens meanwhile."""
        while time.monotonic() < until:
            await self.up.wait()
            with contextlib.suppress(httpx.TransportError):  # not accepted
                async with self.http(person) as http:
                    thread = (await http.post("/app/api/threads", json={})).json()["id"]
                    page = Page(http, thread)
                    for asked in range(1, RUNS_OF_A_THREAD + 1):
                        await page.ask(message=TASK.format(STEPS, LATENCY_S))
                        self.counts["runs accepted"] += 1
                        if not await self._end(page, person):
                            break
                        await self._check(page, asked)
                        await asyncio.sleep(PAUSE_S)

    async def _end(self, page: Page, person: int) -> bool:
        """Follow a run to its end, and resume it after a kill; False if that was not possible."""
        resumed = False
        while True:
            with contextlib.suppress(httpx.TransportError, AssertionError):  # the server was killed
                if (await page.final())["status"] == "finished":
                    self.counts["runs ended"] += 1
                    self.counts["of them resumed after a kill"] += resumed
                    return True
                self.faults.append(f"{page.thread} ended as {page.seen[-1]}")
                return False
            await asyncio.sleep(1)
            await self.up.wait()
            page.http = self.http(person)
            with contextlib.suppress(httpx.TransportError):
                found = await page.http.get(page.base)
                if found.json().get("status") == "interrupted":
                    resumed = True
                    await page.ask(resume=True)
                elif found.json().get("status") not in ("running", "finished"):
                    self.faults.append(f"{page.thread} is lost: {found.text}")
                    return False

    async def _check(self, page: Page, asked: int) -> None:
        """See that each run of a thread has done everything once."""
        state = (await page.http.get(f"/threads/{page.thread}/state")).json()
        found = [message["type"] for message in state["values"]["messages"]]
        if found != ["human", *["ai", "tool"] * (STEPS - 1), "ai"] * asked:
            self.faults.append(f"{page.thread} did something twice or never: {found}")

    async def upset(self, until: float) -> None:
        """Prune, back up, kill and restore in turn; no more kills in the second half."""
        began, number = time.monotonic(), 0
        pause_s = min(MOST_PAUSE_S, (until - began) / 16)
        while True:
            number += 1
            await asyncio.sleep(pause_s)
            gone = await self._command("threads", "prune", "--older-than", KEPT)
            self.counts["prunes"] += 1
            self.counts["threads deleted"] += len(gone.splitlines())
            await asyncio.sleep(pause_s)
            await self._command("backup", f"{number}.zip")
            await asyncio.sleep(pause_s)
            if time.monotonic() < (began + until) / 2:
                self.counts["kills"] += 1
                self.up.clear()
                self.cpu_s += cpu_ms(self.served) / 1000
                await asyncio.to_thread(self.served.stop, signal.SIGKILL)
                await asyncio.to_thread(self.served.start)
                self.up.set()
            await asyncio.sleep(pause_s)
            await self._restore(f"{number}.zip", f"restored{number}")
            self.counts["backups, each restored and continued"] += 1

    async def _restore(self, file: str, folder: str) -> None:
        """Restore a backup into another home, and continue a thread there, with another model."""
        await self._command("restore", file, "--to", folder)
        lines = await self._command("threads", "--json", home=folder)
        status = {one["id"]: one["status"] for one in map(json.loads, lines.splitlines())}
        cut_off = [one for one in status if status[one] in ("running", "interrupted")]
        with OpenAIServer([reply], loop=True) as model:
            what = ["resume", *cut_off[:1]]
            if not cut_off:
                what = ["run", TASK.format(STEPS, 0), "--thread", *[*status][:1]]
            await self._command(*what, home=folder, OPENAI_BASE_URL=model.base_url)
        self.counts["with a run that the backup cut off"] += bool(cut_off)
        await self._run("rm", "-rf", file, folder)

    async def _command(self, *arguments: str, home: str = "", **env: str) -> str:
        place = {HOME_VARIABLE: str(self.served.folder / home)} if home else {}
        return await self._run(COMMAND, *arguments, **place, **env)

    async def _run(self, *command: str, **env: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=self.served.folder, capture_output=True, text=True,
            env={**os.environ, **self.served.env, **env}, check=False,
        )  # fmt: skip
        if done.returncode:
            self.faults.append(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    async def watch(self) -> None:
        """Note memory and disk."""
        while True:
            await self.up.wait()
            files = [path for path in self.served.home.glob("*.db*") if path.exists()]
            disk_mb = sum(path.stat().st_size for path in files) / 1e6
            memory_mb = memory_kb(self.served) / 1000
            self.samples.append(_Sample(time.monotonic(), memory_mb, disk_mb))
            await asyncio.sleep(5)


def measure_soak(hours: float) -> list[list[str]]:
    """Return the rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "config" / "openmanus").mkdir(parents=True)
        (place / "config" / "openmanus" / "config.toml").write_text(QUOTAS)
        url = DatabaseUrl.in_folder(place / ".openmanus")
        accounts = Accounts(open_database(url))
        names = [accounts.add(f"user{number}", "user").name for number in range(PEOPLE)]
        tokens = [accounts.new_token(name) for name in names]
        close_databases()
        soak = _Soak(Served(place), tokens)
        with OpenAIServer([soak.answer], loop=True) as model:
            env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m"}
            env |= {"XDG_CONFIG_HOME": str(place / "config"), HOME_VARIABLE: str(soak.served.home)}
            soak.served.env = env
            with soak.served:
                asyncio.run(_soak(soak, model, 3600 * hours))
        used = sums(open_database(url), "''")[""]
        close_databases()
    return [*_rows(soak, hours), ["model calls counted", f"{used['model_calls']:.0f}"]]


async def _soak(soak: _Soak, model: OpenAIServer, seconds: float) -> None:
    soak.up.set()
    until = time.monotonic() + seconds
    working = [asyncio.create_task(soak.work(person, until)) for person in range(PEOPLE)]
    beside = [asyncio.create_task(one) for one in (soak.upset(until), soak.watch())]
    while not all(one.done() for one in working) and not any(one.done() for one in beside):
        await asyncio.wait([*working, *beside], timeout=5, return_when=asyncio.FIRST_EXCEPTION)
        model.requests.clear()  # which would grow
    soak.cpu_s += cpu_ms(soak.served) / 1000
    for one in beside:
        one.cancel()
    for done in await asyncio.gather(*working, *beside, return_exceptions=True):
        if isinstance(done, Exception):
            raise done


def _rows(soak: _Soak, hours: float) -> list[list[str]]:
    half = soak.samples[len(soak.samples) // 2].at
    settled = half + min(OLD_S, 900 * hours)
    later = [one.memory_mb for one in soak.samples if one.at > settled]
    some = max(1, len(later) // 6)
    memory = (statistics.median(part) for part in (later[:some], later[-some:]))
    disk = (
        max(one.disk_mb for one in soak.samples if (one.at > half) is late)
        for late in (False, True)
    )
    return [
        *([name, str(count)] for name, count in soak.counts.items()),
        ["runs lost, done twice, or otherwise wrong", str(len(soak.faults))],
        *(["", fault] for fault in soak.faults),
        ["the server without kills: MB at first, at the end", _both(memory)],
        ["MB of the databases at most, first half, second half", _both(disk)],
        ["CPU of the servers, % of a core", f"{soak.cpu_s / hours / 36:.0f}"],
        ["model calls answered", str(next(soak.calls))],
    ]


def _both(figures: Iterable[float]) -> str:
    return ", ".join(f"{figure:.0f}" for figure in figures)
