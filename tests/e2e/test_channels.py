"""Conversations by channels: each message is one turn, through any crash, and each answer one."""

import itertools
import random
import re
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from openmanus_graph.backends.persistence.deliveries import Delivery
from openmanus_graph.interfaces.triggers.conversations import events_of, open_channel
from openmanus_graph.state.triggers import Channel
from tests.support import slack as slack_server
from tests.support.cli import Cli, until
from tests.support.mail_server import MailServer
from tests.support.mailbox import Mailbox, install_dovecot
from tests.support.openai_script import Call, Reply
from tests.support.slack import Slack, signed
from tests.support.telegram import TOKEN, Telegram
from tests.support.trigger_place import KILLS, Place, matrix
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

LINE = re.compile(r"n-\d")


def rung(place: Place) -> "Counter[str]":
    return Counter(place.log.read_text().split() if place.log.exists() else ())


def decide(body: Mapping[str, Any]) -> Reply:
    """Ring once with what the newest message names, and then answer."""
    messages: list[dict[str, Any]] = body["messages"]
    turns = [n for n, one in enumerate(messages) if "Ring for" in str(one["content"])]
    found = LINE.search(str(messages[turns[-1]]["content"]))
    assert found is not None
    if not [one for one in messages[turns[-1] :] if one["role"] == "tool"]:
        return Reply(calls=(Call("ring", {"line": found[0]}),))
    return Reply(f"Done: {found[0]}.")


@dataclass
class Talk:
    """How a kind of channel is used: what comes in, and what came out."""

    server: Any
    say: Callable[[str, int], None]
    press: Callable[[str, str, int], None]
    """Decides on a question."""
    settings: str
    texts: Callable[[], list[str]]
    questions: Callable[[], list[tuple[str, str]]]
    """Ids and texts of the questions that were sent."""


def telegram(opened: ExitStack, place: Place) -> Talk:
    server = opened.enter_context(Telegram())
    server.repeats = 5  # each update comes five times

    def questions() -> list[tuple[str, str]]:
        asked = [one for one in server.sent if "reply_markup" in one]
        return [(one["reply_markup"]["inline_keyboard"][0][0]["callback_data"].partition(":")[2],
                 one["text"]) for one in asked]  # fmt: skip

    return Talk(
        server,
        lambda text, chat: server.say(text, chat, chat),
        lambda decision, question, chat: server.press(f"{decision}:{question}", chat, chat),
        f'kind = "telegram"\nurl = "{server.server.url}"\ntoken = "{TOKEN}"\nallow = ["7", "8"]\n',
        lambda: server.texts,
        questions,
    )


def slack(opened: ExitStack, place: Place) -> Talk:
    """Slack repeats its events, at several processes; the hooks' own crash is tested elsewhere."""
    server, numbers = opened.enter_context(Slack()), itertools.count(1)

    def receive(body: bytes) -> None:
        channel = open_channel(replace(read_channel(place), name="chat"))
        for _ in range(random.randint(2, 5)):
            headers = {**signed(body), "content-type": "application/x-www-form-urlencoded"}
            if body.startswith(b"{"):
                headers["content-type"] = "application/json"
            found = channel.receive(headers, body, time.time())
            assert isinstance(found, list)
            for event in events_of(channel, place.name, found, place.table):
                place.table.receive(place.name, event, time.time())

    def say(text: str, chat: int) -> None:
        receive(slack_server.message(text, next(numbers), "U7", f"D{chat}"))

    def press(decision: str, question: str, chat: int) -> None:
        receive(slack_server.button(f"{decision}:{question}", next(numbers), "U7", f"D{chat}"))

    def questions() -> list[tuple[str, str]]:
        asked = [one for one in server.sent if "blocks" in one]
        buttons = [one["blocks"][1]["elements"][0]["value"].partition(":")[2] for one in asked]
        return list(zip(buttons, [one["text"] for one in asked], strict=True))

    return Talk(
        server,
        say,
        press,
        f'kind = "slack"\nurl = "{server.server.url}/api"\ntoken = "{slack_server.TOKEN}"\n'
        f'secret = "{slack_server.SECRET}"\nallow = ["U7"]\n',
        lambda: [one["text"] for one in server.sent],
        questions,
    )


def read_channel(place: Place) -> Channel:
    """Return the channel that is configured."""
    text = (place.cli.root / "config" / "openmanus" / "config.toml").read_text()
    return TypeAdapter(Channel).validate_python(tomllib.loads(text)["channels"]["chat"])


def mail(opened: ExitStack, place: Place) -> Talk:
    """A mailbox of dovecot, and a server that sends and, as many do, files what it has sent."""
    install_dovecot()
    box = opened.enter_context(Mailbox.running())
    server = opened.enter_context(MailServer(box))

    def say(text: str, chat: int) -> None:
        root = f"<chat-{chat}@example.org>"
        box.deliver("Hello", text, Message_ID=f"<{text[9:12]}@example.org>", References=root)

    def press(decision: str, question: str, chat: int) -> None:
        asked = next(one for one in server.mails if question in str(one.get_content()))
        quoted = "\r\n".join(f"> {line}" for line in str(asked.get_content()).splitlines())
        box.deliver("Re: Hello", f"{decision}\r\n\r\n{quoted}", References=str(asked["References"]))

    def questions() -> list[tuple[str, str]]:
        texts = [str(one.get_content()) for one in server.mails]
        found = [(CODE.search(text), text) for text in texts]
        return [(code[1], text) for code, text in found if code is not None]

    return Talk(
        server,
        say,
        press,
        f'kind = "mail"\nhost = "127.0.0.1:{box.port}"\nlogin = "agent@example.org"\n'
        f'password = "pass"\ntls = false\npoll_s = 0.1\nsmtp = "127.0.0.1:{server.port}"\n'
        'allow = ["anna@example.org"]\nsent_mailbox = "Sent"\n',
        lambda: [str(one.get_content()).strip() for one in server.mails],
        questions,
    )


CODE = re.compile(r"`approve (\w+)`")
KINDS = {"telegram": telegram, "slack": slack, "mail": mail}
SAMPLE = {
    ("telegram", "stored", "sqlite"), ("telegram", "begun", "postgresql"),
    ("telegram", "receiving", "sqlite"), ("telegram", "act", "sqlite"),
    ("slack", "sending", "sqlite"), ("slack", "receiving", "sqlite"),
    ("mail", "sending", "sqlite"), ("mail", "act", "sqlite"),
}  # fmt: skip
"""Kinds, kill points and databases that are always tried."""
CASES = [
    (kind, kill, database)
    for kind in KINDS
    for kill in KILLS
    for database in ("sqlite", "postgresql")
    if kind == "telegram" or database == "sqlite"
]


@pytest.fixture
def place(bare_cli: Cli, workers: Zygote, request: pytest.FixtureRequest) -> Iterator[Place]:
    with Place.made(bare_cli, workers, request, decide) as found:
        found.name = "channel/chat"
        yield found


@pytest.mark.parametrize(("kind", "kill", "place"), matrix(CASES, SAMPLE), indirect=["place"])
def test_each_message_is_one_turn_through_a_kill(place: Place, kind: str, kill: str) -> None:
    with ExitStack() as opened:
        talk = KINDS[kind](opened, place)
        place.write(f'[channels.chat]\n{talk.settings}trust = true\npolicy = "auto"\n')
        if kill == "receiving":
            talk.server.before_answer = place.kill_sender
        place.arm()
        for _ in range(2):
            place.start(kill)
        if kind == "mail":  # the first look only notes what is there
            until(lambda: place.table.mark(place.name) != "")
        for n, chat in enumerate((7, 8, 7), 1):
            talk.say(f"Ring for n-{n} once.", chat)

        def turns() -> list[Delivery]:
            place.replace_dead()
            for question, text in talk.questions():
                if question not in place.answered:
                    place.answered.add(question)
                    found = LINE.search(text)
                    assert found is not None
                    assert found[0] not in rung(place), "it can be asked whether it rang"
                    talk.press("approve", question, 8 if found[0] == "n-2" else 7)
            history = place.table.history(place.name, 100)
            return [one for one in history if "Ring" in str(one.event)]

        ended = ("delivered", "unknown_outcome")
        until(lambda: [one.state in ended for one in turns()].count(True) >= 3)
        place.stop()
        assert len(turns()) == 3
        assert rung(place) == {"n-1": 1, "n-2": 1, "n-3": 1}
        sent = Counter(text for text in talk.texts() if text.startswith("Done"))
        ends = Counter(one.state for one in turns())
        unknown = ends["unknown_outcome"]
        assert set(sent.values()) == {1}, sent
        assert ends["delivered"] + unknown == 3, ends
        assert ends["delivered"] <= len(sent) <= 3
        # Answers to two chats may be under way at once.
        cut_off = 2 if kill in ("sending", "sent", "receiving") else 0
        assert unknown <= (cut_off if kind == "telegram" else 0), ends
        assert unknown or kind != "telegram" or not cut_off
        assert "Traceback" not in (place.cli.root / "worker.log").read_text()
    dead = {"receiving": 2}.get(kill, 1)  # the receiver kills both: it does not know who sends
    assert place.killed == (0 if (kind, kill) == ("slack", "stored") else dead)
