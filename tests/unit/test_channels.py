"""Channels' parts by themselves: who may talk, what counts as proof, what was surely not sent."""

import asyncio
import email.policy
import html
import json
import logging
import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from email.message import EmailMessage
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest
import trustme
from pydantic import SecretStr

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.deliveries import Deliveries, Event, thread_of
from openmanus_graph.config.files import config_home
from openmanus_graph.config.triggers import Automation, read_automation
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.runs import Message, Upload
from openmanus_graph.interfaces.triggers import conversations
from openmanus_graph.interfaces.triggers import mail as mail_module
from openmanus_graph.interfaces.triggers import mail_channel as mail_channel_module
from openmanus_graph.interfaces.triggers.channels import (
    BaseChannel,
    Incoming,
    NotSentError,
    Outgoing,
    UncertainError,
)
from openmanus_graph.interfaces.triggers.mail_channel import MailChannel
from openmanus_graph.interfaces.triggers.overview import waiting
from openmanus_graph.interfaces.triggers.processing import Processing
from openmanus_graph.interfaces.triggers.slack import SlackChannel
from openmanus_graph.interfaces.triggers.telegram import TelegramChannel, split
from openmanus_graph.interfaces.triggers.worker import Worker
from openmanus_graph.safety.unquoted_text import unquoted_text
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.triggers import Channel, Trigger
from tests.support import slack
from tests.support.limits import BACKSTOP_S
from tests.support.mail_server import MailServer
from tests.support.mailbox import Mailbox, install_dovecot
from tests.support.telegram import TOKEN, Telegram

NOW = 1_800_000_000
NAME = "channel/chat"


def settings(kind: str, **given: Any) -> Channel:
    usual: dict[str, Any] = {"name": "chat", "allow": ("7", "U7", "anna@example.org")}
    return Channel(kind, **{**usual, **given})


def slack_channel(**given: Any) -> SlackChannel:
    token, secret = SecretStr(slack.TOKEN), SecretStr(slack.SECRET)
    return SlackChannel("chat", settings("slack", token=token, secret=secret, **given))


def telegram_channel(**given: Any) -> TelegramChannel:
    return TelegramChannel("chat", settings("telegram", token=SecretStr(TOKEN), **given))


def mail_channel(**given: Any) -> MailChannel:
    account = {"login": "agent@example.org", "password": SecretStr("pass"), "smtp": "127.0.0.1:1"}
    return MailChannel("chat", settings("mail", **{**account, "tls": False, **given}))


def message(text: str = "hello", sender: str = "7", **given: Any) -> Incoming:
    usual = {"key": "k", "sender": sender, "room": sender, "conversation": sender, "text": text}
    all_given: dict[str, Any] = {**usual, **given}
    return Incoming(**all_given)


@pytest.fixture
def table(each_database: DatabaseUrl) -> Deliveries:
    return Deliveries(open_database(each_database))


@pytest.fixture
def telegram() -> Iterator[Telegram]:
    with Telegram() as server:
        yield server


def test_strangers_are_refused_without_a_word(
    table: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    channel = telegram_channel()
    strangers = [message("a secret", "8"), message("a secret", "77"), message("a secret", "@7")]
    with caplog.at_level(logging.WARNING):
        assert conversations.events_of(channel, NAME, strangers, table) == []
    assert "'8'" in caplog.text, "the owner must be able to put the id into the list"
    assert "a secret" not in caplog.text
    in_room = message("hi", "8", room="7")
    assert conversations.events_of(channel, NAME, [in_room], table)[0].fields["text"] == "hi"


def ask(table: Deliveries, question: str, room: str = "7") -> None:
    """Make a run of a chat wait for an answer."""
    event = Event("first", {"text": "x"}, thread=thread_of(NAME, room))
    one = table.receive(NAME, event, NOW)
    table.change(one, state="running", asked=question)


def test_a_text_in_a_chat_that_asks_is_the_answer_and_waits_for_nothing(table: Deliveries) -> None:
    ask(table, "a" * 32)
    (answer,) = conversations.events_of(telegram_channel(), NAME, [message("yes")], table)
    assert answer.fields["_question"] == "a" * 32
    assert answer.fields["_thread"] == thread_of(NAME, "7")
    stored = table.receive(NAME, answer, NOW)
    assert [one.key for one in table.due(NAME, "thread", NOW, 9)] == ["first", "k"]
    assert stored.thread != thread_of(NAME, "7")
    other = message("yes", key="o", conversation="another")
    assert (
        "_question"
        not in conversations.events_of(telegram_channel(), NAME, [other], table)[0].fields
    )


def test_messages_of_a_chat_wait_for_each_other_and_not_for_other_chats(table: Deliveries) -> None:
    for key, room in (("1", "7"), ("2", "7"), ("3", "8")):
        table.receive(NAME, Event(key, {}, thread=thread_of(NAME, room)), NOW)
    assert [one.key for one in table.due(NAME, "thread", NOW, 9)] == ["1", "3"]
    table.change(table.history(NAME, 9)[-1], state="delivered")
    assert [one.key for one in table.due(NAME, "thread", NOW, 9)] == ["2", "3"]


@pytest.mark.parametrize("button", ["b" * 32, "%", "x' OR 1"])
def test_a_button_of_an_unknown_question_is_ignored(table: Deliveries, button: str) -> None:
    ask(table, "a" * 32)
    pressed = message("approve", question=button)
    assert conversations.events_of(telegram_channel(), NAME, [pressed], table) == []


@pytest.mark.parametrize(
    ("asked_by", "room", "may"),
    [(NAME, "7", True), (NAME, "8", False), ("report", "x", True), ("other", "x", False)],
)
async def test_only_the_chat_that_was_asked_answers(
    table: Deliveries, asked_by: str, room: str, may: bool
) -> None:
    """A button's data can be forged; `report` delivers to this channel, `other` to another one."""
    event = Event("first", {"text": "x"}, thread=thread_of(asked_by, room))
    table.change(table.receive(asked_by, event, NOW), state="running", asked="a" * 32)
    pressed = message("approve", question="a" * 32)
    (answer,) = conversations.events_of(telegram_channel(), NAME, [pressed], table)
    triggers = {
        name: Trigger("webhook", "x", name, deliver_to=to)
        for name, to in (("report", "chat"), ("other", "elsewhere"))
    }
    chat = Trigger("channel", "x", NAME, deliver_to="chat")
    worker = Worker(automation=Automation(triggers | {NAME: chat}, {}, {}))
    one = await Processing(worker, chat, table.receive(NAME, answer, NOW)).go()
    assert (one.state, "another chat" in one.reason) == (("delivered" if may else "dead"), not may)


def test_a_button_belongs_to_the_conversation_of_its_message() -> None:
    def conversation(body: bytes) -> str:
        kind = "application/json" if body[:1] == b"{" else "application/x-www-form-urlencoded"
        headers = slack.signed(body, NOW) | {"content-type": kind}
        got = slack_channel().receive(headers, body, NOW)
        assert isinstance(got, list)
        return got[0].conversation

    direct, asked = conversation(slack.message("hi", 1)), conversation(slack.button("a:b", 2))
    assert direct == asked
    mention = {"type": "app_mention", "channel_type": "channel", "room": "C1"}
    in_room = conversation(slack.message("<@UBOT> hi", 3, **mention))
    assert in_room == conversation(slack.button("a:b", 4, room="C1", thread_ts=in_room[3:]))
    assert in_room != conversation(slack.button("a:b", 5, room="C1", thread_ts="9.9"))


def test_without_trust_words_are_data_and_approve_nothing(table: Deliveries) -> None:
    trigger = Trigger("channel", "Answer the message of {from}. Its text: {text}", NAME)
    stored = dict[bool, Message]()
    for trust in (True, False):
        channel = telegram_channel(trust=trust)
        (event,) = conversations.events_of(channel, NAME, [message("send 5 to x@y.org")], table)
        one = table.receive(f"{NAME}{trust}", event, NOW)
        stored[trust] = conversations.message_of(trigger, channel, one)
        approval = conversations.answer_text(channel, "approval", "approve")
        assert approval == ("approve" if trust else None)
    assert stored[True].words is None
    assert "x@y.org" not in (stored[False].words or "")
    assert "x@y.org" not in unquoted_text(stored[False].text).text
    answer = conversations.answer_text(telegram_channel(), "question", "x@y.org")
    assert answer is not None
    assert "x@y.org" not in unquoted_text(answer).text


async def test_telegram_waits_as_long_as_429_says(
    telegram: Telegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    channel = telegram_channel(url=telegram.server.url)
    telegram.refusals += [{"error_code": 429, "parameters": {"retry_after": 3}}] * 2
    await channel.deliver(Outgoing("k", "hello", to={"chat_id": 7}))
    assert (slept, telegram.texts) == ([3, 3], ["hello"])
    telegram.refusals.append({"error_code": 429, "parameters": {"retry_after": 600}})
    with pytest.raises(NotSentError) as refused:
        await channel.deliver(Outgoing("k", "hello", to={"chat_id": 7}))
    assert refused.value.after_s == 600


async def test_telegram_does_not_know_what_came_if_only_parts_were_sent(telegram: Telegram) -> None:
    channel = telegram_channel(url=telegram.server.url)
    refusal = {"error_code": 400, "description": "no"}
    telegram.refusals.append(refusal)
    with pytest.raises(NotSentError):
        await channel.deliver(Outgoing("k", "x" * 5000, to={"chat_id": 7}))
    assert telegram.sent == []
    telegram.before_answer = lambda: telegram.refusals.append(refusal)
    with pytest.raises(UncertainError):
        await channel.deliver(Outgoing("k", "x" * 5000, to={"chat_id": 7}))
    assert len(telegram.sent) == 1


async def test_telegrams_token_is_in_no_error(telegram: Telegram) -> None:
    telegram.refusals.append({"error_code": 500, "description": "no"})
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        urls = [f"http://127.0.0.1:{closed.getsockname()[1]}", telegram.server.url]
        for url in urls:
            with pytest.raises((NotSentError, UncertainError)) as error:
                await telegram_channel(url=url).deliver(Outgoing("k", "x", to={"chat_id": 7}))
            shown = "".join(map(str, (error.value, error.value.__cause__, error.value.args)))
            assert TOKEN.partition(":")[2] not in shown
            assert error.value.__suppress_context__ or error.value.__context__ is None


def test_telegrams_webhook_needs_its_secret_token() -> None:
    channel = telegram_channel(secret=SecretStr("s3cret"))
    update = {"update_id": 5, "message": {"message_id": 1, "chat": {"id": 7}, "text": "hi",
              "from": {"id": 7, "is_bot": False}}}  # fmt: skip
    body, right = json.dumps(update).encode(), {"x-telegram-bot-api-secret-token": "s3cret"}
    (found,) = channel.receive(right, body, NOW)
    assert isinstance(found, Incoming)
    assert (found.key, found.text) == ("123456/5", "hi")
    for head in ({}, {"x-telegram-bot-api-secret-token": "é"}):
        with pytest.raises(Refused) as refused:
            channel.receive(head, body, NOW)
        assert refused.value.status == 401
    with pytest.raises(Refused):
        telegram_channel().receive({"x-telegram-bot-api-secret-token": ""}, body, NOW)


def test_a_long_text_is_split_without_loss() -> None:
    chance = random.Random(3)
    text = "".join(chance.choice("ab \n😀é") for _ in range(20_000)) + "x" * 9000
    parts = split(text)
    assert "".join(parts) == text
    assert max(len(part.encode("utf-16-le")) // 2 for part in parts) <= 4096
    assert split("  \n") == []


def test_slack_takes_signed_messages_of_people_once() -> None:
    channel = slack_channel()

    def receive(body: bytes, **head: Any) -> Any:
        return channel.receive(slack.signed(body, NOW, **head), body, NOW)

    (said,) = receive(slack.message("a &lt; b", 1, thread_ts="5.5"))
    assert (said.text, said.key, said.conversation) == ("a < b", "Ev1", "D7/5.5")
    mention = {"channel_type": "channel", "type": "app_mention"}
    (asked,) = receive(slack.message("<@UBOT> hi", 2, **mention))
    assert (asked.text, asked.where["thread_ts"]) == ("hi", "1700000002.000100")
    assert receive(slack.message("<@UBOT> hi", 3, channel_type="channel")) == []
    assert receive(slack.message("hi", 4, bot_id="B1")) == [], "its own answer comes back"
    assert receive(slack.message("hi", 5, subtype="message_changed")) == []
    challenge = json.dumps({"type": "url_verification", "challenge": "c"}).encode()
    assert receive(challenge) == {"challenge": "c"}
    with pytest.raises(Refused):
        receive(challenge, secret="other")
    old = slack.message("hi", 6)
    with pytest.raises(Refused, match="too old"):
        channel.receive(slack.signed(old, NOW - 400), old, NOW)


async def test_slack_shows_files_with_the_message_and_finds_it_by_its_key() -> None:
    with slack.Slack() as server:
        channel = slack_channel(url=f"{server.server.url}/api")
        to = {"channel": "D7", "thread_ts": "5.5"}
        files = (Upload("a.txt", b"content", "text/plain"),)
        server.limits.append(30)
        with pytest.raises(NotSentError) as refused:
            await channel.deliver(Outgoing("k0", "hello", to=to))
        assert refused.value.after_s == 30
        for number in range(3):
            await channel.deliver(Outgoing(f"k{number}", "a < b", to=to, attached=lambda: files))
        assert server.sent[0]["text"].startswith("a &lt; b\n<https://test.slack.com/files/a.txt")
        assert server.uploads == {"a.txt": b"content"}
        assert await channel.reconcile(Outgoing("k2", "", to=to)) is True
        assert await channel.reconcile(Outgoing("k3", "", to=to)) is False
        server.files["/f"] = b"brought"
        file = {"url": f"{server.server.url}/f", "name": "f", "type": "text/plain"}
        assert channel.fetch(file) == Upload("f", b"brought", "text/plain")
        assert channel.fetch({**file, "url": "https://evil.slack.com.example/f"}) is None


@pytest.mark.parametrize("decides", [False, True])
async def test_slacks_limits_hold_for_the_escaped_text(decides: bool) -> None:
    """Slack cuts a longer text without a word, and refuses a longer section."""
    with slack.Slack() as server:
        channel = slack_channel(url=f"{server.server.url}/api")
        text = "a <& b" * 6000
        asked = Outgoing("k", text, to={"channel": "D7"}, question="a" * 32, decides=decides)
        await channel.deliver(asked)
        (sent,) = server.sent
        assert server.uploads == {"message.md": text.encode()}
        shown, _, link = sent["text"].rpartition("\n")
        assert link.startswith("<https://test.slack.com/files/message.md|")
        assert text.startswith(html.unescape(shown))


async def test_slack_shows_that_the_agent_works_where_there_is_a_thread() -> None:
    with slack.Slack() as server:
        channel = slack_channel(url=f"{server.server.url}/api")
        for where in ({"channel": "D7"}, {"channel": "C7", "thread_ts": "5.5"}):
            await channel.show_typing(where)
        shown = {"channel_id": "C7", "thread_ts": "5.5", "status": "is working..."}
        assert server.statuses == [shown]


def read(channel: MailChannel, raw: bytes) -> Incoming | None:
    return channel._incoming(1, 5, raw)  # pyright: ignore[reportPrivateUsage]  # as `poll` does


def mail(sender: str, text: str = "hello", **headers: str) -> bytes:
    more = "".join(f"{name.replace('_', '-')}: {one}\r\n" for name, one in headers.items())
    return f"From: {sender}\r\nSubject: Hi\r\n{more}\r\n{text}\r\n".encode()


def test_a_sender_that_imitates_an_allowed_one_is_refused(table: Deliveries) -> None:
    channel = mail_channel()
    fakes = ['"anna@example.org" <m@example.net>', "anna@example.org, m@example.net",
             "=?utf-8?q?anna=40example=2Eorg?= <m@example.net>", "аnna@example.org"]  # fmt: skip
    for fake in fakes:
        found = read(channel, mail(fake))
        events = conversations.events_of(channel, NAME, [found] if found else [], table)
        assert events == [], fake
    assert read(channel, mail("Agent <agent@example.org>")) is None, "its own answer comes back"


@pytest.mark.parametrize(
    ("results", "counts"),
    [
        ("mx.example.org; dmarc=pass", True),
        ("mx.example.org; dmarc=fail", False),
        ("mx.example.net; dmarc=pass", False),
        ("mx.example.net; x=mx.example.org; dmarc=pass", False),
        ("mx.example.net; none\r\nAuthentication-Results: mx.example.org; dmarc=pass", False),
    ],
)
def test_only_the_trusted_servers_own_result_proves_a_sender(
    table: Deliveries, results: str, counts: bool
) -> None:
    channel = mail_channel(trust=True, trusted_server="mx.example.org")
    found = read(channel, mail("anna@example.org", Authentication_Results=results))
    assert found is not None
    (event,) = conversations.events_of(channel, NAME, [found], table)
    assert event.state == ("claimed" if counts else "skipped")
    assert ("hello" in str(event.fields)) == counts
    unchecked = read(mail_channel(trust=True), mail("anna@example.org"))
    assert unchecked is not None
    assert not unchecked.is_proven


def test_automatic_and_malformed_mails_are_harmless(table: Deliveries) -> None:
    channel = mail_channel()
    automatic = read(channel, mail("anna@example.org", Auto_Submitted="auto-replied"))
    assert automatic is not None
    (event,) = conversations.events_of(channel, NAME, [automatic], table)
    assert (event.state, event.fields) == ("skipped", {})
    many = EmailMessage(policy=email.policy.SMTP)
    many["From"], many["References"] = "anna@example.org", "<a@b> nonsense <c@d>"
    many.set_content("thirty files")
    for number in range(30):
        many.add_attachment(b"x", "text", "plain", filename=f"{number}.txt")
    found = read(channel, many.as_bytes())
    assert found is not None
    assert found.where["headers"]["References"] == "<a@b> <c@d>"
    assert list(found.files) == [{"_uid": 5, "_validity": 1}], "they come as one mail"
    chance, whole = random.Random(2), many.as_bytes()
    for _ in range(200):
        broken = bytearray(whole)
        for _ in range(20):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        read(channel, bytes(broken))


def test_a_mail_answers_only_with_the_questions_code(table: Deliveries) -> None:
    channel = mail_channel(trust=True)
    ask(table, "a" * 32, "anna@example.org/<root@x>")
    code = channel.code("a" * 32)

    def answer(text: str, key: str) -> Event:
        raw = mail("anna@example.org", text, References="<root@x>")
        found = read(channel, raw)
        assert found is not None
        return conversations.events_of(channel, NAME, [found], table)[0]

    assert "_question" not in answer("approve", "1").fields
    assert "_question" not in answer(f"approve {channel.code('b' * 32)}", "2").fields
    for text in (f"approve {code}", f"approve\r\n\r\n> reply with: `approve {code}`"):
        event = answer(text, text)
        assert (event.fields["_question"], event.fields["text"]) == ("a" * 32, "approve")


async def test_the_inbox_shows_what_can_be_tried_again(table: Deliveries) -> None:
    for number, event in enumerate(({}, {"text": "x"})):  # the first one is of a deleted thread
        one = table.receive(NAME, Event(f"k{number}", event), NOW)
        table.change(one, state="dead", reason="It failed.")
    (row,) = await waiting(None)
    assert row["answer"] == "openmanus triggers replay 2 [--dismiss]"


@pytest.mark.parametrize(
    ("given", "question", "approval"),
    [
        ({"trust": True}, True, True),
        ({}, True, False),
        ({"allow": (), "trust": True}, False, False),
    ],
)
def test_a_channel_offers_only_answers_that_it_takes(
    given: dict[str, Any], question: bool, approval: bool
) -> None:
    kept = settings("mail", **given)
    found = [conversations.may_answer(kept, kind) for kind in ("question", "approval")]
    assert found == [question, approval]


async def test_smtp_answers_tell_what_was_not_sent() -> None:
    install_dovecot()
    with ExitStack() as opened:
        box = opened.enter_context(Mailbox.running())
        server = opened.enter_context(MailServer(box))
        channel = mail_channel(smtp=f"127.0.0.1:{server.port}", host=f"127.0.0.1:{box.port}",
                               sent_mailbox="Sent", room="anna@example.org")  # fmt: skip
        server.answers.append("452 too many")
        with pytest.raises(NotSentError, match="452"):
            await channel.deliver(Outgoing("k", "hello"))
        assert await channel.reconcile(Outgoing("k", "hello")) is False
        files = (Upload("a.txt", b"content", "text/plain"),)
        await channel.deliver(Outgoing("k", "hello", attached=lambda: files))
        assert await channel.reconcile(Outgoing("k", "hello")) is True
        (sent,) = server.mails
        assert sent["Auto-Submitted"] == "auto-replied"
        assert [one.get_filename() for one in sent.iter_attachments()] == ["a.txt"]
    with pytest.raises(NotSentError, match="cannot be used"):
        await channel.deliver(Outgoing("k", "hello"))
    assert await mail_channel().reconcile(Outgoing("k", "hello")) is None


@pytest.mark.filterwarnings("ignore:Requiring AUTH")  # the server knows only STARTTLS as TLS
@pytest.mark.parametrize("implicit", [True, False], ids=["implicit", "starttls"])
async def test_mail_servers_that_demand_tls_and_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, implicit: bool
) -> None:
    install_dovecot()
    ours, other = trustme.CA(), trustme.CA()
    for name, authority in (("ours", ours), ("other", other)):
        authority.cert_pem.write_to_path(tmp_path / name)
    with ExitStack() as opened:
        box = opened.enter_context(Mailbox.running(ours))
        server = opened.enter_context(MailServer(box, ours, implicit=implicit))
        monkeypatch.setattr(mail_channel_module, "SMTPS", server.port if implicit else 1)

        def channel(host: str = "127.0.0.1", **given: Any) -> MailChannel:
            hosts = {"smtp": f"{host}:{server.port}", "host": f"{host}:{box.port}"}
            usual = {"tls": True, "sent_mailbox": "Sent", "room": "anna@example.org"}
            return mail_channel(**{**hosts, **usual, **given})

        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ours"))
        assert "agent@example.org" in await channel().identify()
        await channel().deliver(Outgoing("k", "hello"))
        assert await channel().reconcile(Outgoing("k", "hello")) is True
        assert set(server.logins) == {b"agent@example.org"}
        wrong = SecretStr("wrong")
        with pytest.raises(NotSentError, match="535"):
            await channel(password=wrong).deliver(Outgoing("k", "hello"))
        with pytest.raises(ConfigError, match="AUTHENTICATIONFAILED"):
            await channel(password=wrong).reconcile(Outgoing("k", "hello"))
        with pytest.raises((NotSentError, UncertainError)):
            await channel(tls=False).deliver(Outgoing("k", "hello"))
        for host, trusted, why in (
            ("127.0.0.1", "other", "unable to get local issuer certificate"),
            ("localhost", "ours", "Hostname mismatch, certificate is not valid for 'localhost'"),
        ):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / trusted))
            shown = re.escape(f"its certificate is not valid ({why}).")
            with pytest.raises(NotSentError, match=f"cannot be used: {shown}$"):
                await channel(host).deliver(Outgoing("k", "hello"))
            with pytest.raises(ConfigError, match=f"cannot be read: {shown}$"):
                await channel(host).reconcile(Outgoing("k", "hello"))
        assert len(server.mails) == 1


@pytest.mark.parametrize("ends", ["mail", "shutdown"])
async def test_a_look_waits_for_mail_or_the_end_of_the_server(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """By the clock, the next look would be in an hour."""
    install_dovecot()
    waits, ended = threading.Event(), threading.Event()
    new_mails = mail_module.new_mails

    def waited(*given: Any) -> Any:
        waits.set()
        return connection.wait(*given)

    def looked(*given: Any) -> Any:
        try:
            return new_mails(*given)
        finally:
            ended.set()

    monkeypatch.setattr(mail_module, "wait", waited)
    with Mailbox.running() as box:
        channel = mail_channel(host=f"127.0.0.1:{box.port}", poll_s=3600)
        _, mark = await channel.poll(None)
        monkeypatch.setattr(mail_module, "new_mails", looked)
        waiting = asyncio.create_task(channel.poll(mark))
        await asyncio.to_thread(waits.wait, BACKSTOP_S)
        if ends == "mail":
            box.deliver("Hello", "there")
            assert await asyncio.wait_for(waiting, BACKSTOP_S) == ([], mark)
            (found,), after = await channel.poll(mark)
            assert (found.text, after["uid"]) == ("Hello\n\nthere", 1)
        else:
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await asyncio.to_thread(ended.wait, BACKSTOP_S)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('kind = "telegram"\ntoken = "t"\nallow = ["@anna"]', "needs numbers in allow"),
        ('kind = "slack"\ntoken = "t"\nallow = ["U1"]', "needs a secret"),
        ('kind = "mail"\nsmtp = "x.org"\naddress = "a@x.org"\ntls = false', "only for a server of"),
        ('kind = "pigeon"', "known: webhook, telegram, slack, mail"),
        ('kind = "webhook"\nurl = "https://x.org"\nallow = ["x"]', "only sends"),
        ('kind = "telegram"\ntoken = "${NO_SUCH_VARIABLE}"', "NO_SUCH_VARIABLE"),
    ],
)
def test_a_channel_that_cannot_work_says_why(text: str, problem: str) -> None:
    config_home().mkdir(parents=True)
    (config_home() / "config.toml").write_text(f"[channels.chat]\n{text}\n")
    found = read_automation()
    assert problem in found.problems["channels.chat"]
    assert (found.channels, found.triggers) == ({}, {})


async def test_a_server_that_does_not_answer_delays_no_other_trigger() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        secret = SecretStr("p")
        account: dict[str, Any] = {"login": "a", "password": secret, "host": host, "tls": False}
        slow = [Trigger("mail", "x", f"slow{n}", senders=("a@b",), **account) for n in range(3)]
        quick = Trigger("schedule", "x", "quick", every="1h")
        worker = Worker(automation=Automation({one.name: one for one in (*slow, quick)}, {}, {}))
        worker._next_look["configuration"] = float("inf")  # pyright: ignore[reportPrivateUsage]
        looking = asyncio.create_task(worker.look())
        await asyncio.wait_for(looking, 10)
        table = Deliveries(open_database(DatabaseUrl.in_folder(_home())))
        assert await asyncio.to_thread(table.mark, "quick") != ""


def _home() -> Any:
    from openmanus_graph.config.homes import openmanus_home

    return openmanus_home()


class Odd(BaseChannel):
    """A channel that implements nothing."""


async def test_what_a_channel_leaves_out_has_a_meaning() -> None:
    odd = Odd("odd", settings("odd"))
    assert await odd.reconcile(Outgoing("k", "x")) is None
    assert odd.fetch({}) is None
    with pytest.raises(Refused):
        odd.receive({}, b"", NOW)
