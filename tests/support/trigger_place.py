"""A configuration with a trigger or a channel, and workers on it that die at a named point."""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.deliveries import Deliveries
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.cli import Cli, until
from tests.support.limits import BACKSTOP_S
from tests.support.mailbox import Mailbox, install_dovecot
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.receiver import Receiver
from tests.support.trigger_worker import POINTS
from tests.support.zygote import Forked, Zygote

RING = '''
import os
from pathlib import Path

from openmanus_graph import manus_tool
from tests.support.trigger_worker import die_at

LOG = Path(os.environ.get("RING_LOG", "/nowhere"))


async def rang(args, key):
    lines = LOG.read_text().split() if LOG.exists() else []
    return f"rang {args['line']}" if args["line"] in lines else None


@manus_tool(effect="external", reconcile=rang)
async def ring(line: str) -> str:
    """Ring.

    Args:
        line: What to ring.
    """
    with LOG.open("a") as file:
        file.write(line + "\\n")
    die_at("act")
    return f"rang {line}"
'''
T0 = 1_800_000_000.0
Answer = Callable[[Mapping[str, Any]], Reply]


def decide(body: Mapping[str, Any]) -> Reply:
    """Ring once with what the task names, and then answer."""
    messages: list[dict[str, Any]] = body["messages"]
    results = [one["content"] for one in messages if one["role"] == "tool"]
    task = next(str(one["content"]) for one in messages if "Ring for" in str(one["content"]))
    line = next(word for word in task.split() if word.startswith("n-")).strip("`.")
    if not results:
        return Reply(calls=(Call("ring", {"line": line}),))
    assert "rang" in str(results[0]), results
    return Reply(f"Done: {line}.")


KILLS = (*POINTS, "act", "receiving")
Case = tuple[str, str, str]
"""A kind of trigger or channel, a kill point, and a database."""


def matrix(cases: Iterable[Case], always: Container[Case]) -> list[Any]:
    """Return cases as parameters of a test: those that are always tried, and exhaustive ones."""
    return [
        pytest.param(*one, marks=() if one in always else pytest.mark.exhaustive) for one in cases
    ]


@dataclass
class Place:
    """A configuration with one trigger, and workers on it."""

    cli: Cli
    zygote: Zygote
    receiver: Receiver
    open_mailbox: Callable[[], Mailbox]
    workers: list[Forked] = field(default_factory=list[Forked])
    killed: int = 0
    answered: set[str] = field(default_factory=set[str])
    """Ids of questions."""
    name: str = "t"
    """The trigger whose deliveries count."""

    @classmethod
    @contextlib.contextmanager
    def made(
        cls, cli: Cli, zygote: Zygote, request: pytest.FixtureRequest, answer: Answer
    ) -> "Generator[Place]":
        """Make a place whose model answers so; the fixture's parameter names the database."""
        with contextlib.ExitStack() as opened:

            def open_mailbox() -> Mailbox:
                install_dovecot()
                return opened.enter_context(Mailbox.running())

            model = opened.enter_context(OpenAIServer([answer], loop=True, strict=True))
            cli.use(model.base_url)
            if getattr(request, "param", "sqlite") == "postgresql":
                server: Any = request.getfixturevalue("postgres")
                cli.env[DATABASE_VARIABLE] = server.database()
                cli.env["OPENMANUS_LEASE_S"] = "1"
            place = cls(cli, zygote, opened.enter_context(Receiver()), open_mailbox)
            opened.callback(close_databases)
            opened.callback(place.stop)
            yield place

    def __post_init__(self) -> None:
        info = self.cli.root / "packages" / "ring_tool-1.0.dist-info"
        info.mkdir(parents=True)
        (info.parent / "ring_tool.py").write_text(RING)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ring-tool\nVersion: 1.0\n")
        points = "[openmanus_graph.tools]\nring = ring_tool:ring\n"
        (info / "entry_points.txt").write_text(points)
        self.cli.env |= {
            "PYTHONPATH": str(info.parent),
            "RING_LOG": str(self.log),
            "CLOCK": str(self.cli.root / "clock"),
            "KILL_TOKEN": str(self.cli.root / "token"),
        }
        self.set_clock(T0)

    @property
    def log(self) -> Path:
        return self.cli.root / "ring.log"

    @property
    def table(self) -> Deliveries:
        given = self.cli.env.get(DATABASE_VARIABLE)
        url = DatabaseUrl.parse(given) if given else DatabaseUrl.in_folder(self.cli.home)
        return Deliveries(open_database(url))

    def configure(self, trigger: str, *, status: bool = True) -> None:
        """Write a trigger `t` that delivers to the receiver."""
        asks = 'status_url = "URL/status/{key}"\n' if status else ""
        channel = f'[channels.out]\nkind = "webhook"\nurl = "URL"\n{asks}'
        common = 'policy = "auto"\ndeliver_to = "out"\noverlap = "parallel"\n'
        text = f"[triggers.t]\n{trigger}\n{common}\n{channel}"
        self.write(text.replace("URL", self.receiver.server.url))

    def write(self, text: str) -> None:
        """Write the configuration."""
        folder = self.cli.root / "config" / "openmanus"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(f'sandbox = {{ mode = "none" }}\n{text}')

    def change_now(self, path: Path) -> None:
        """Give a file the time of the workers' clock as that of its change."""
        clock = self.cli.root / "clock"
        now = float(clock.read_text()) + time.time() - clock.stat().st_mtime
        os.utime(path, (now, now))

    def set_clock(self, now: float) -> None:
        clock = self.cli.root / "clock"
        clock.with_suffix(".new").write_text(str(now))
        clock.with_suffix(".new").replace(clock)

    def start(self, kill_at: str = "") -> None:
        env = {**self.cli.env, "KILL_AT": kill_at}
        with (self.cli.root / "worker.log").open("ab") as log:
            out = log.fileno()
            self.workers.append(self.zygote.start([], cwd=self.cli.cwd, env=env, out=out, err=out))

    def arm(self) -> None:
        """Let the next process that comes to its point die there."""
        (self.cli.root / "token").touch()

    def is_stored(self, events: int) -> bool:
        """Return whether so many events are stored; keeps two workers alive."""
        self.replace_dead()
        return len(self.table.history(self.name, 100)) >= events

    def kill_sender(self) -> None:
        """Kill the processes in the midst of a message that was received, once."""
        token = self.cli.root / "token"
        if token.exists():
            token.unlink()
            for worker in self.workers:
                worker.kill()

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait(BACKSTOP_S)
        self.workers.clear()

    def replace_dead(self) -> None:
        """Start a new worker for each that has died."""
        for worker in [one for one in self.workers if one.poll() is not None]:
            self.workers.remove(worker)
            self.killed += 1
            self.start()

    def work_until(self, ended: int) -> None:
        """Work until so many deliveries have ended."""

        def done() -> bool:
            self.replace_dead()
            self.answer()
            return len(self.table.history(self.name, 100, "delivered", "unknown_outcome")) >= ended

        until(done)

    def answer(self) -> None:
        """Answer as a careful person: a call that was cut off before it rang may ring.

        A killed process leaves such calls of its other runs: the ledger has them, the bell has not.
        """
        for question in [one for one in self.receiver.messages if "question" in one]:
            if (identity := question["question"]) not in self.answered:
                self.answered.add(identity)
                line = next(word for word in question["text"].split('"') if word.startswith("n-"))
                assert line not in self.log.read_text().split(), "it can be asked whether it rang"
                given = ("resume", question["thread"], "--id", identity, "--approve")
                assert self.cli.run(*given).code == 0

    def check(self, events: int) -> None:
        """Fail if a run or an effect is lost or doubled, or an answer was sent twice."""
        found = self.table.history(self.name, 100)
        assert len(found) == events, found
        rung = Counter(self.log.read_text().split())
        assert len(rung) == events, rung
        assert set(rung.values()) == {1}, rung
        assert set(self.receiver.answers.values()) == {1}, self.receiver.answers
        assert len(self.receiver.answers) == events, self.receiver.answers
        log = (self.cli.root / "worker.log").read_text()
        assert "Traceback" not in log, log
