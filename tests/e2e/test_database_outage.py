"""A database that is down: senders are told to repeat, and nothing is lost or done twice."""

import datetime
import hashlib
import hmac
import itertools
import json
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from openmanus_graph.backends.persistence.database import close_databases, open_database
from openmanus_graph.backends.persistence.deliveries import Deliveries
from openmanus_graph.config.files import config_home
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support import disk, slack
from tests.support.cli import until
from tests.support.limits import BACKSTOP_S
from tests.support.mailbox import Mailbox, install_dovecot
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import Postgres, install_postgres
from tests.support.receiver import Receiver
from tests.support.serving import Served
from tests.support.telegram import TOKEN, Telegram

pytestmark = pytest.mark.slow

WHAT = re.compile(r"n-\w+-\d|slot-[\w:+-]+")
EVERY_S = 600
CONFIGURATION = """
sandbox = {{ mode = "none" }}
[triggers.hook]
kind = "webhook"
secret = "s"
task = "Note {{n}}."
{usual}
[triggers.files]
kind = "folder"
path = "{folder}"
task = "Note {{name}}."
{usual}
[triggers.post]
kind = "mail"
host = "127.0.0.1:{imap}"
login = "agent"
password = "pass"
tls = false
poll_s = 1
senders = ["anna@example.org"]
task = "Note {{subject}}."
{usual}
[triggers.clock]
kind = "schedule"
every = "{every}m"
missed = "all"
task = "Note slot-{{slot}}."
{usual}
[channels.out]
kind = "webhook"
url = "{out}"
[channels.phone]
kind = "telegram"
url = "{telegram}"
token = "{telegram_token}"
allow = ["7"]
trust = true
[channels.team]
kind = "slack"
url = "{slack}/api"
token = "{slack_token}"
secret = "{slack_secret}"
allow = ["U7"]
trust = true
"""


@dataclass
class Outage:
    """A database, and how it goes and comes back."""

    url: str
    begin: Callable[[], object]
    end: Callable[[], object]


@pytest.fixture
def outage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Outage]:
    with ExitStack() as opened:
        opened.callback(close_databases)
        if request.param == "postgresql":
            install_postgres()
            server = opened.enter_context(Postgres.running("fsync=on"))
            yield Outage(server.database(), server.stop, server.start)
            return
        if request.param == "full":
            monkeypatch.setattr(disk, "SIZE", "30m")
            small = opened.enter_context(disk.small_disk(tmp_path / "disk"))
            yield Outage(f"sqlite:///{small.folder}/openmanus.db", small.fill, small.free)
            return
        file = tmp_path / "openmanus.db"
        other = opened.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
        begin, end = (partial(other.execute, one) for one in ("BEGIN IMMEDIATE", "ROLLBACK"))
        yield Outage(f"sqlite:///{file}", begin, end)


def decide(body: Mapping[str, Any]) -> Reply:
    asked = [str(one["content"]) for one in body["messages"] if "Note" in str(one["content"])]
    found = WHAT.findall(asked[-1])
    return Reply(f"Done: {found[-1]}.")


@dataclass
class World:
    """What sends events to a server, and what it answers."""

    served: Served
    folder: Path
    box: Mailbox
    telegram: Telegram
    slack: slack.Slack
    receiver: Receiver
    table: Deliveries
    ahead_s: float = 0
    """By how much the server's clock is ahead."""

    def let_an_hour_pass(self) -> None:
        assert self.served.process is not None
        self.served.process.send_signal(signal.SIGUSR1)
        self.ahead_s += 3600

    def happen(self, n: int) -> None:
        """Let an event come that nobody repeats: the server must look for it."""
        (self.folder / f"n-file-{n}").write_text("x")
        self.box.deliver(f"n-mail-{n}", "hello")
        self.telegram.say(f"Note n-phone-{n}.")

    def post(self, n: int) -> list[int]:
        """Send requests, and return how they were answered."""
        body = json.dumps({"n": f"n-hook-{n}"}).encode()
        digest = hmac.new(b"s", body, hashlib.sha256).hexdigest()
        said = slack.message(f"Note n-team-{n}.", n)
        requests = [
            ("hook", body, {"X-Hub-Signature-256": f"sha256={digest}"}),
            ("team", said, slack.signed(said, time.time() + self.ahead_s)),
        ]

        def send(given: tuple[str, bytes, dict[str, str]]) -> int:
            name, data, headers = given
            url = f"{self.served.url}/hooks/{name}"
            return httpx.post(url, content=data, headers=headers, timeout=BACKSTOP_S).status_code

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(send, requests))

    def answers(self) -> "Counter[str]":
        texts = [str(one["text"]) for one in self.receiver.messages]
        texts += [*self.telegram.texts, *(str(one["text"]) for one in self.slack.sent)]
        return Counter(text.removeprefix("Done: ").rstrip(".") for text in texts)

    def wait_for(self, count: int) -> None:
        """Wait until the first events of each kind are answered."""
        kinds = ("hook", "file", "mail", "phone", "team")
        wanted = {f"n-{kind}-{n}" for kind in kinds for n in range(1, count + 1)}
        until(lambda: wanted <= set(self.answers()), 100)


@pytest.fixture
def world(tmp_path: Path, outage: Outage) -> Iterator[World]:
    install_dovecot()
    folder = tmp_path / "watched"
    folder.mkdir()
    with ExitStack() as opened:
        model = opened.enter_context(OpenAIServer([decide], loop=True))
        box = opened.enter_context(Mailbox.running())
        telegram = opened.enter_context(Telegram())
        team = opened.enter_context(slack.Slack())
        receiver = opened.enter_context(Receiver())
        config_home().mkdir(parents=True, exist_ok=True)
        usual = 'deliver_to = "out"\noverlap = "parallel"'
        text = CONFIGURATION.format(
            usual=usual, folder=folder, imap=box.port, every=EVERY_S // 60, out=receiver.server.url,
            telegram=telegram.server.url, telegram_token=TOKEN, slack=team.server.url,
            slack_token=slack.TOKEN, slack_secret=slack.SECRET,
        )  # fmt: skip
        (config_home() / "config.toml").write_text(text)
        env = {
            "OPENMANUS_MODEL": "openai:test-model", "OPENAI_BASE_URL": model.base_url,
            "PYTHONPATH": str(Path(__file__).parent.parent / "support" / "clock_by_signal"),
            "OPENAI_API_KEY": "k", DATABASE_VARIABLE: outage.url, "OPENMANUS_LEASE_S": "1",
        }  # fmt: skip
        served = opened.enter_context(Served(tmp_path / "served", env))
        table = Deliveries(open_database(DatabaseUrl.parse(outage.url)))
        looked_at = ("files", "post", "clock", "channel/phone")
        until(lambda: all(table.mark(name) for name in looked_at), 60)
        yield World(served, folder, box, telegram, team, receiver, table)


@pytest.mark.parametrize("outage", ["postgresql", "locked", "full"], indirect=True)
def test_events_during_an_outage_are_one_run_each(world: World, outage: Outage) -> None:
    world.happen(1)
    assert world.post(1) == [200, 200]
    world.wait_for(1)
    outage.begin()
    world.happen(2)
    assert world.post(2) == [503, 503], world.served.log[-3000:]
    world.let_an_hour_pass()
    world.happen(3)
    outage.end()
    assert world.post(2) == [200, 200]
    assert world.post(2) == [200, 200]
    assert world.post(3) == [200, 200]
    world.wait_for(3)
    until(lambda: {one.state for one in world.table.history(None, 100)} == {"delivered"}, 100)
    deliveries = world.table.history(None, 100)
    assert set(world.answers().values()) == {1}, world.answers()
    slots = [
        datetime.datetime.fromisoformat(one.key) for one in deliveries if "clock" in one.trigger
    ]
    steps = [(new - old).total_seconds() for new, old in itertools.pairwise(slots)]
    assert len(steps) >= 5, "six slots passed"
    assert set(steps) == {EVERY_S}, "a slot was lost"
    assert "Traceback" not in world.served.log, world.served.log[-6000:]
