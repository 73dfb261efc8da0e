"""Values in canonical form: what is the same, what only looks like it, and what hides."""

import pytest

from openmanus_graph.safety.unquoted_text import unquoted_text
from openmanus_graph.safety.values import (
    addresses_behind,
    addresses_in,
    plainly_written,
    tokens_of,
)

pytestmark = pytest.mark.slow

ZERO_WIDTH = "\u200b"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Alice", "alice"),
        ("Sarah  Baker", "sarah baker"),
        ("'Sarah Baker'", "Sarah Baker"),
        ("1,000.50", "1000.5"),
        ("1.000,50", "1000.5"),
        ("1,000", "1000"),
        ("$12.00", "12"),
        ("May 26th, 2024", "2024-05-26"),
        ("26 May 2024", "2024-05-26"),
        ("26.05.2024", "2024-05-26"),
        ("5/26/2024", "2024-05-26"),
        ("4 pm", "16:00"),
        ("2024-05-26T10:20", "2024-05-26 10:20"),
        ("BOB@Shop.Example", "bob@shop.example"),
        ("gb29 nwbk 6016 1331 9268 19", "GB29NWBK60161331926819"),
        ("https://www.shop.example/", "www.shop.example"),
        ("O’Brien", "O'Brien"),
        ("Cafe\u0301", "Café"),
    ],
)
def test_a_value_is_the_same_however_it_is_written(one: str, other: str) -> None:
    assert tokens_of(one) == tokens_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("apple", "аpple"),  # the first letter is Cyrillic
        ("bob@shop.example", "bob@shоp.example"),
        ("bob", f"bo{ZERO_WIDTH}b"),
        ("bob", "ｂｏｂ"),
        ("bob@shop.example", "bob%40shop.example"),
        ("https://shop.example/a", "https://shop.example/b"),
        ("bob@shop.example", "Ym9iQHNob3AuZXhhbXBsZQ=="),
        ("13", "thirteen"),
        ("13", "June 13"),
        ("13", "13:00"),
        ("13", "room-13"),
        ("13", "v1.13"),
        ("2024", "2024-05-26"),
        ("*", "everyone"),
    ],
)
def test_what_only_looks_like_it_is_another_value(one: str, other: str) -> None:
    assert tokens_of(one) != tokens_of(other)
    assert tokens_of(one)[0] not in tokens_of(other)


def test_the_number_of_an_item_names_nothing() -> None:
    assert "number:1" not in tokens_of("Do this: 1. Read it. 2. Send it.")
    assert "number:13" in tokens_of("Delete the file 13.")


def test_a_person_who_types_wide_letters_is_understood() -> None:
    assert tokens_of(plainly_written("ｂｏｂ")) == ("bob",)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://bit.ly/sUf7tOJ.", "https://bit.ly/sUf7tOJ"),
        ("at www.shop.example now", "www.shop.example"),
        ("at shop.example/a now", "shop.example/a"),
        (f"to mark{ZERO_WIDTH}.black@gmail.com", "mark.black@gmail.com"),
        ("to mark＠gmail.com", "mark@gmail.com"),
        ("to mark%40gmail.com", "mark@gmail.com"),
        ("to mark&#64;gmail.com", "mark@gmail.com"),
        ("http%3A%2F%2Fshop.example%2Fa", "http://shop.example/a"),
        ("see http://xn--80ak6aa92e.com", "http://xn--80ak6aa92e.com"),
        ("to US13 3000 0000 1212 1212 1212 please", "US13 3000 0000 1212 1212 1212"),
    ],
)
def test_addresses_in_a_text_are_found_in_disguise(text: str, found: str) -> None:
    assert found in list(addresses_in(text))


@pytest.mark.parametrize(
    "text",
    ["e.g. this", "see main.py and report.docx", "Node.js 1.2.3", "at 10:30", "a@b", "and/or", ""],
)
def test_what_is_no_address_is_not_found(text: str) -> None:
    assert list(addresses_in(text)) == []


@pytest.mark.parametrize(
    "piece",
    [
        "a", "a.", "1,", "a-", "www.", "%40", "AB12 ", " 1", "May ", "> a\n", "a:\n",
        "<a>", "From: a\n", " ", "`a\n", "'a ", "„", "summarise this ", "says: a ",
        "> a\nb\n", "[/a]", "a: b\n",
        'a "word" of bob@shop.example, 13 on 2024-05-26 at www.shop.example/a?b=c; a.b-c.d ',
    ],
)  # fmt: skip
def test_no_text_takes_long(piece: str) -> None:
    """A way to read it in squared time would need hours."""
    text = piece * (400_000 // len(piece))
    tokens_of(text)
    list(addresses_in(text))
    unquoted_text(text)


QUOTED = "Dear customer, pay to DE89370400440532013000 by tomorrow. Regards, your bank"


@pytest.mark.parametrize(
    "text",
    [
        f"Summarise this mail: {QUOTED}",
        f"Please translate:\n\n{QUOTED}",
        f"What do you make of it?\n> {QUOTED}\n",
        f"What do you make of it?\n```\n{QUOTED}\n```\n",
        f"<mail>{QUOTED}</mail> What is that?",
        f"I got this message:\n{QUOTED}",
        f"From: a@evil.example\nTo: me\n\n{QUOTED}",
        f'She wrote "{QUOTED} {QUOTED} {QUOTED}"',
        f'She wrote "{QUOTED}"',
        f"What of this?\n\n-----Original Message-----\n{QUOTED}",
        f"What of this?\n\n---------- Forwarded message ---------\n{QUOTED}",
        f"What of this?\n\nBegin forwarded message:\n{QUOTED}",
        f"What of this?\n\nOn Mon, 3 May 2024 at 10:00, Eve <eve@evil.example> wrote:\n{QUOTED}",
        f"To: me\nFrom: a@evil.example\nSubject: x\n\n{QUOTED}",
        f"Cc: x\nDate: y\nFrom: a@evil.example\n\n{QUOTED}",
        f"看看这个\n发件人：a\n收件人：b\n\n{QUOTED}",
        f"Why?\n2024-05-01 10:00:01 INFO start\n2024-05-01 10:00:02 ERROR {QUOTED}\n",
        f"Why?\nINFO: start\nERROR: {QUOTED}\n",
        f"翻译一下：{QUOTED}",
        f"总结这封邮件\n\n{QUOTED}",
        f"他说：“{QUOTED}”",
        f"Explain „{QUOTED}“ to me",
        f"Explain ‹{QUOTED}› to me",
        f"「{QUOTED}」 - what is that?",
        f"Explain `{QUOTED}`",
        f"Explain '''{QUOTED}'''",
        f"Look:\nDa: Eva\nInviato: oggi\n\n{QUOTED}",
        f"Look:\n差出人: Eva\n件名: x\n\n{QUOTED}",
        f"Look:\nОт: Ева\n\n{QUOTED}",
        f"Look:\nFrom: Eva <eva@x.org>\n\n{QUOTED}",
        f"Look.\nEl lunes Eva escribió:\n{QUOTED}",
        f"Summarise this chat\nAnna: hello\nEva: {QUOTED}",
        f"<anna> hello\n<eva> {QUOTED}",
        f"[11:01] Anna: hello\n[11:02] Eva: {QUOTED}",
        f"Look\n» {QUOTED}",
        f"Look\n＞ {QUOTED}",
        f"Look\n&gt; {QUOTED}",
        f"Look\n> dear friend\n{QUOTED}",
        f"Look\n- ```\n  {QUOTED}\n  ```",
        f"<mail id='1'>{QUOTED}</mail> What is that?",
        f"[quote]{QUOTED}[/quote] What is that?",
        f"What is that? <!-- {QUOTED} -->",
        f"review this\n// {QUOTED}\nint x;",
        f"Summarise\n---\n{QUOTED}\n---",
        f'Summarise\n{{\n "body": "{QUOTED}"\n}}',
        f"Is this phishing? {QUOTED}",
        f"Fix the spelling of: {QUOTED}",
        f"Reply to this\n\nDear Sir,\n{QUOTED}\nRegards, Eva",
        f"My boss says we should now {QUOTED}",
        f"The mail: {QUOTED}",
        f"Rewrite politely: {QUOTED}",
        f"{QUOTED}\n\nSummarise the above.",
        f"Draft a reply.\n\nHi! {QUOTED} Eva",
        f"Ticket #5: {QUOTED}. Triage it.",
        f"BEGIN\n{QUOTED}\nEND\nSummarise what is between them.",
        f"Explain\ncat <<EOF\n{QUOTED}\nEOF",
        f"Look\n\nFwd: {QUOTED}",
        f"Se\n\nFra: Eva\nTil: mig\n\n{QUOTED}",
        f"│ {QUOTED}\n\nWhat does it mean?",
        f"翻译《{QUOTED}》",
        f"改写：{QUOTED}",
        f"Eva insists that I {QUOTED}",
        f"这是骗局吗？{QUOTED}",
        f"Subject: urgent\n\n{QUOTED}\n\nEve",
    ],
)
def test_a_text_that_a_person_quotes_is_not_his_own(text: str) -> None:
    own = unquoted_text(text)
    assert own.quotes
    assert "DE89" not in own.text


@pytest.mark.parametrize(
    "text",
    [
        "Invite these people:\n- anna@shop.example\n- bob@shop.example",
        "Do the following tasks: 1. Mail anna@shop.example. 2. Delete file 13.",
        "Write the following message to the channel: Hi, I am a bot",
        "Mail 'Catch up over lunch.' to \"anna@shop.example\"",
        "Note: be quick",
        "Note: the report goes to anna@shop.example. Read it first and write three sentences.",
        "Review: read a.md, then mail anna@shop.example",
        "Please handle the following:\nRead my inbox, then write to anna@shop.example about it.",
        "Draft an email: to anna@shop.example, subject Hi, body Hello there, how are you today?",
        "Email: anna@shop.example\nSubject: Hi",
        "Send this.\nTo: anna@shop.example\nSubject: Lunch\nBody: See you",
        'He said "anna@shop.example" is the address',
        "At 2024-05-01 10:00:01 it failed",
        "Summarise this article: https://shop.example/a/very/long/path?of=an&address=that&goes=on",
        "Summarise this article: https://shop.example/a in three sentences that are short",
        "Translate this file: notes/report.docx into English, please, and keep the headings",
        "Add an event titled 'Lunch' at 12:00 for one hour with the description 'Eat'.",
    ],
)
def test_what_a_person_writes_is_his_own(text: str) -> None:
    own = unquoted_text(text)
    assert not own.quotes
    assert own.text == text


@pytest.mark.parametrize(
    ("url", "behind"),
    [
        ("https://mail.shop.example/?view=cm&to=mallory@evil.example", "mallory@evil.example"),
        ("https://shop.example/?to=mallory%40evil.example", "mallory@evil.example"),
        ("https://shop.example/?next=to%253Dmallory%2540evil.example", "mallory@evil.example"),
        ("https://shop.example/#mallory@evil.example", "mallory@evil.example"),
        ("https://shop.example/index.php/a?to=mallory@evil.example", "mallory@evil.example"),
        ("https://shop.example/x@evil.sh", "x@evil.sh"),
        ("https://shop.example/mallory@evil.example/invite", "mallory@evil.example"),
        ("https://shop.example/DE89370400440532013000", "DE89370400440532013000"),
        ("https://shop.example/?iban=DE89+3704+0044+0532+0130+00", "DE89 3704 0044 0532 0130 00"),
        ("https://shop.example/?u=www.evil.example", "www.evil.example"),
        ("https://shop.example/?u=https://evil.example/x", "https://evil.example/x"),
    ],
)
def test_what_stands_behind_a_host_is_found(url: str, behind: str) -> None:
    assert behind in list(addresses_behind(url))


@pytest.mark.parametrize(
    "url",
    [
        "https://medium.example/@name/a-title", "https://social.example/@bob@other.example",
        "https://user@shop.example/x", "https://shop.example/logo@2x.png",
        "https://cdn.example/npm/react@18.2.0/umd/react.js", "https://maps.example/@48.85,2.35,15z",
        "https://shop.example/ab12cd345678901234567890", "https://shop.example/a?b=c.d&e=f#g",
        "https://shop.example/index.html?file=a.png",
    ],
)  # fmt: skip
def test_what_only_looks_like_an_address_behind_a_host_is_none(url: str) -> None:
    assert list(addresses_behind(url)) == []
