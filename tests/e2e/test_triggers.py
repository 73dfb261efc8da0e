"""Every event is one run, through any crash: kinds of triggers, kill points, and both databases."""

import hashlib
import hmac
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.deliveries import Deliveries
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.interfaces.triggers.sources import webhook_event
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.triggers import Trigger
from tests.support.cli import Cli, until
from tests.support.limits import BACKSTOP_S
from tests.support.mailbox import Mailbox, install_dovecot
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.receiver import Receiver
from tests.support.trigger_worker import POINTS
from tests.support.zygote import Forked, Zygote

pytestmark = pytest.mark.slow

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
SAMPLE = {
    ("webhook", "sending", "sqlite"), ("webhook", "act", "postgresql"),
    ("schedule", "stored", "postgresql"), ("schedule", "begun", "sqlite"),
    ("folder", "done", "postgresql"), ("folder", "receiving", "sqlite"),
    ("mail", "stored", "sqlite"), ("mail", "sent", "postgresql"),
}  # fmt: skip
"""Kinds, kill points and databases that are always tried."""


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
        folder = self.cli.root / "config" / "openmanus"
        folder.mkdir(parents=True, exist_ok=True)
        text = text.replace("URL", self.receiver.server.url)
        (folder / "config.toml").write_text(f'sandbox = {{ mode = "none" }}\n{text}')

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
        return len(self.table.history("t", 100)) >= events

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
            return len(self.table.history("t", 100, "delivered", "unknown_outcome")) >= ended

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
        found = self.table.history("t", 100)
        assert len(found) == events, found
        rung = Counter(self.log.read_text().split())
        assert len(rung) == events, rung
        assert set(rung.values()) == {1}, rung
        assert set(self.receiver.answers.values()) == {1}, self.receiver.answers
        assert len(self.receiver.answers) == events, self.receiver.answers
        log = (self.cli.root / "worker.log").read_text()
        assert "Traceback" not in log, log


@pytest.fixture(scope="session")
def workers() -> Iterator[Zygote]:
    with Zygote("tests.support.trigger_worker:main") as zygote:
        yield zygote


@pytest.fixture
def place(bare_cli: Cli, workers: Zygote, request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as opened:

        def open_mailbox() -> Mailbox:
            install_dovecot()
            return opened.enter_context(Mailbox.running())

        model = opened.enter_context(OpenAIServer([decide], loop=True, strict=True))
        receiver = opened.enter_context(Receiver())
        bare_cli.use(model.base_url)
        if getattr(request, "param", "sqlite") == "postgresql":
            server: Any = request.getfixturevalue("postgres")
            bare_cli.env[DATABASE_VARIABLE] = server.database()
            bare_cli.env["OPENMANUS_LEASE_S"] = "1"
        found = Place(bare_cli, workers, receiver, open_mailbox)
        opened.callback(close_databases)
        opened.callback(found.stop)
        yield found


def signed(n: str) -> tuple[dict[str, str], bytes]:
    """Return a request as GitHub sends it."""
    body = json.dumps({"n": n}).encode()
    digest = hmac.new(b"a secret", body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": f"id-{n}"}, body


def webhook(place: Place) -> Iterator[None]:
    """Each request arrives up to five times, in random order, at several processes."""
    place.configure('kind = "webhook"\nsecret = "a secret"\ntask = "Ring for {n} once."')
    yield
    trigger = Trigger("webhook", "Ring for {n} once.", "t", secret=SecretStr("a secret"))
    arriving = [n for n in ("n-1", "n-2", "n-3") for _ in range(random.randint(2, 5))]
    random.shuffle(arriving)
    for n in arriving:
        place.table.receive("t", webhook_event(trigger, *signed(n), time.time()), time.time())


def schedule(place: Place) -> Iterator[None]:
    """Three slots pass; the clock is set back in between, and jumps."""
    place.configure(
        'kind = "schedule"\nevery = "1m"\nmissed = "all"\ntask = "Ring for n-{time} once."'
    )
    yield
    until(lambda: place.table.mark("t") != "")
    for seconds, events in ((61, 1), (125, 2), (30, 2), (62, 2), (190, 3)):
        place.set_clock(T0 + seconds)
        until(partial(place.is_stored, events))


def folder(place: Place) -> Iterator[None]:
    """Three files appear, one of them slowly."""
    watched = place.cli.root / "watched"
    watched.mkdir()
    (watched / "old.txt").write_text("was there before")
    place.configure(f'kind = "folder"\npath = "{watched}"\ntask = "Ring for {{name}} once."')
    yield
    until(lambda: place.table.mark("t") != "")
    for n in (1, 2):
        (watched / f"n-{n}.txt").write_text("x")
    with (watched / "n-3.txt").open("w") as slow:
        for _ in range(20):
            slow.write("more\n")
            slow.flush()
            threading.Event().wait(0.02)


def mail(place: Place) -> Iterator[None]:
    """Three mails of an allowed sender arrive, and some that must not start a run."""
    box = place.open_mailbox()
    box.deliver("n-0", "was there before")
    place.configure(
        f'kind = "mail"\nhost = "127.0.0.1:{box.port}"\nlogin = "agent"\npassword = "pass"\n'
        'tls = false\npoll_s = 0.1\nsenders = ["anna@example.org"]\n'
        'task = "Ring for {subject} once."'
    )
    yield
    until(lambda: place.table.mark("t") != "")
    box.deliver("n-8", "no", sender='"anna@example.org" <mallory@example.net>')
    box.deliver("n-9", "no", sender="anna@example.org, mallory@example.net")
    for n in (1, 2, 3):
        box.deliver(f"n-{n}", "hello")


KINDS: dict[str, Callable[[Place], Iterator[None]]] = {
    "webhook": webhook, "schedule": schedule, "folder": folder, "mail": mail,
}  # fmt: skip
KILLS = (*POINTS, "act", "receiving")
CASES = [
    pytest.param(kind, kill, database, marks=() if sample else pytest.mark.exhaustive)
    for kind in KINDS
    for kill in KILLS
    for database in ("sqlite", "postgresql")
    for sample in [(kind, kill, database) in SAMPLE]
]


@pytest.mark.parametrize(("kind", "kill", "place"), CASES, indirect=["place"])
def test_each_event_is_one_run_through_a_kill(place: Place, kind: str, kill: str) -> None:
    begun = KINDS[kind](place)
    next(begun)
    if kill == "receiving":
        place.receiver.before_answer = place.kill_sender
    place.arm()
    for _ in range(2):
        place.start(kill)
    next(begun, None)
    place.work_until(3)
    place.check(3)
    dead = {"receiving": 2}.get(kill, 1)  # the receiver kills both: it does not know who sends
    if (kind, kill) == ("webhook", "stored"):
        dead = 0  # the server stores it, in `test_trigger_server.py`
    assert place.killed == dead
