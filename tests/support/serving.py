"""Our server as a process of its own: `openmanus serve`, or `langgraph dev` on this repository."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import httpx
from langgraph_sdk import get_client

from tests.support.cli import Process, no_input, pipe
from tests.support.limits import BACKSTOP_S, POLL_S
from tests.support.zygote import Zygote

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parent.parent.parent
READY, READY_JSON = "OpenManus: ", '"message": "Serving at http'

Event = dict[str, Any]


@dataclass
class Served:
    """A server on a free port; a context manager.

    Args:
        folder: Its working folder and, below it, home and log.
        env: Added to the environment.
        options: Further options of `openmanus serve`.
        zygote: Forks it, which saves half of its start.
    """

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    options: tuple[str, ...] = ()
    zygote: Zygote | None = None
    url: str = ""
    token: str = ""
    process: Process | None = None
    reader: threading.Thread | None = None

    @property
    def home(self) -> Path:
        """Where it keeps things when nobody says otherwise, as most people leave it."""
        return self.folder / ".openmanus"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def __enter__(self) -> "Served":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop()
        assert "BlockingError" not in self.log, self.log[-6000:]

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        argv = ("serve", "--no-open", "--port", "0", *self.options)
        env = {**_without_home(), **self.env}
        lines, written = pipe()
        with written, no_input() as nothing:
            if self.zygote is None:
                self.process = subprocess.Popen(
                    [BIN / "openmanus", *argv],
                    cwd=self.folder,
                    env=env,
                    stdin=nothing,
                    stdout=written,
                    stderr=written,
                    start_new_session=True,
                )
            else:
                out = written.fileno()
                self.process = self.zygote.start(argv, cwd=self.folder, env=env, out=out, err=out)
        ready = threading.Event()
        self.reader = threading.Thread(target=self._read, args=(lines, ready), daemon=True)
        self.reader.start()
        assert ready.wait(BACKSTOP_S), self.log
        assert self.url, self.log

    def _read(self, lines: IO[str], ready: threading.Event) -> None:
        with lines, (self.folder / "server.log").open("a") as log:
            for line in lines:
                log.write(line)
                log.flush()
                if READY_JSON in line:  # which never holds the token
                    self.url = str(json.loads(line)["message"]).removeprefix("Serving at ")
                    self.token = (self.home / "server-token").read_text().strip()
                    ready.set()
                if line.startswith(READY):
                    page = line.removeprefix(READY).strip()
                    self.url, _, self.token = page.partition("/app#token=")
                    ready.set()
        ready.set()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self.process is not None
        assert self.reader is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(BACKSTOP_S)
        self.reader.join(BACKSTOP_S)
        return code

    def http(self, **headers: str) -> httpx.AsyncClient:
        """Return a client with the token."""
        return httpx.AsyncClient(
            base_url=self.url, headers={**self.headers, **headers}, timeout=BACKSTOP_S
        )

    def sdk(self) -> Any:
        """Return LangGraph's client with the token; what it answers is JSON."""
        return get_client(url=self.url, headers=self.headers)


def _without_home() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "OPENMANUS_HOME"}


@dataclass
class Page:
    """What the page does, without a browser: one thread and its events."""

    http: httpx.AsyncClient
    thread: str
    seen: list[Event] = field(default_factory=list[Event])

    @property
    def base(self) -> str:
        return f"/app/api/threads/{self.thread}"

    @property
    def last(self) -> int:
        return int(self.seen[-1]["seq"]) if self.seen else 0

    async def ask(self, status: int = 202, **wish: Any) -> dict[str, Any]:
        """Start or continue a run; the answer must have that status."""
        answer = await self.http.post(f"{self.base}/runs", json=wish)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Follow the events from the last one seen up to one that is wanted."""
        async with self.follow(self.last) as events:
            async for event in events:
                self.seen.append(event)
                if wanted(event):
                    return event
        raise AssertionError("the stream ended")

    async def final(self) -> Event:
        """Follow the events to the end of a run."""
        return await self.until(lambda event: event["type"] == "final")

    async def past(self, after: int = 0) -> list[Event]:
        """Return the events so far, as a page that is just opened gets them."""
        async with self.follow(after, live=False) as events:
            return [event async for event in events]

    @asynccontextmanager
    async def follow(
        self, after: int = 0, *, live: bool = True
    ) -> AsyncGenerator[AsyncIterator[Event]]:
        """Open the stream of events: the server has answered, and sends them as they come.

        Wherever the reader stops, the end of the block closes all that the stream is made of.

        Args:
            after: Number of the last event that is known.
            live: Go on after the past.
        """
        path = f"{self.base}/events?from={after}"
        async with self.http.stream("GET", path) as answer:
            assert answer.status_code == 200, await answer.aread()
            lines = answer.aiter_lines()
            events = _events(lines, live=live)
            try:
                yield events
            finally:
                # Closing a generator leaves those that it reads from to the event loop, which may
                # end before it has closed them. A read that fails ends them all, here and now.
                await events.aclose()
                await answer.aclose()
                with contextlib.suppress(httpx.TransportError):
                    async for _ in lines:
                        pass


async def _events(lines: AsyncIterator[str], *, live: bool) -> AsyncGenerator[Event]:
    """Read server-sent events, as far as the past or to the end."""
    kind = ""
    async for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data" and kind == "live":
            kind = ""
            if not live:
                return
        elif name == "data":
            yield json.loads(value)


async def eventually(condition: Callable[[], Any], within_s: float = BACKSTOP_S) -> None:
    """Wait until a condition holds that nobody announces: what processes do, say."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  # see above
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def new_page(served: Served) -> AsyncGenerator[Page]:
    """Open the page on a new thread."""
    async with served.http() as http:
        thread = (await http.post("/app/api/threads", json={})).json()["id"]
        yield Page(http, thread)
