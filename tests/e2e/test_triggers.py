"""Every event is one run, through any crash: kinds of triggers, kill points, and both databases."""

import hashlib
import hmac
import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest
from pydantic import SecretStr

from openmanus_graph.interfaces.triggers.sources import webhook_event
from openmanus_graph.state.triggers import Trigger
from tests.support.cli import Cli, until
from tests.support.trigger_place import KILLS, T0, Place, decide, matrix
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

SAMPLE = {
    ("webhook", "sending", "sqlite"), ("webhook", "act", "postgresql"),
    ("schedule", "stored", "postgresql"), ("schedule", "begun", "sqlite"),
    ("folder", "done", "postgresql"), ("folder", "receiving", "sqlite"),
    ("mail", "stored", "sqlite"), ("mail", "sent", "postgresql"),
}  # fmt: skip
"""Kinds, kill points and databases that are always tried."""


@pytest.fixture
def place(bare_cli: Cli, workers: Zygote, request: pytest.FixtureRequest) -> Iterator[Place]:
    with Place.made(bare_cli, workers, request, decide) as found:
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
            place.change_now(watched / "n-3.txt")
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
CASES = [
    (kind, kill, database)
    for kind in KINDS
    for kill in KILLS
    for database in ("sqlite", "postgresql")
]


@pytest.mark.parametrize(("kind", "kill", "place"), matrix(CASES, SAMPLE), indirect=["place"])
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


@pytest.mark.parametrize(
    ("status", "end", "sent"),
    [(200, "delivered", 1), (503, "delivered", 1), (500, "unknown_outcome", 0)],
)
def test_what_became_of_an_answer_is_recorded_once_the_database_is_free(
    place: Place, status: int, end: str, sent: int
) -> None:
    place.configure(
        'kind = "webhook"\nsecret = "a secret"\ntask = "Ring for {n} once."', status=False
    )
    trigger = Trigger("webhook", "Ring for {n} once.", "t", secret=SecretStr("a secret"))
    place.table.receive("t", webhook_event(trigger, *signed("n-1"), time.time()), time.time())
    file = place.cli.home / "openmanus.db"
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:

        def lock_once() -> None:
            place.receiver.before_answer = lambda: None
            other.execute("BEGIN IMMEDIATE")

        place.receiver.statuses, place.receiver.before_answer = [status], lock_once
        place.start()
        log = place.cli.root / "worker.log"
        until(lambda: log.exists() and "is not recorded yet" in log.read_text())
        other.execute("ROLLBACK")
    place.work_until(1)
    assert place.table.history("t", 1)[0].state == end
    assert len(place.receiver.messages) == sent
    assert place.killed == 0
