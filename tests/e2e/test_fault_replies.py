"""Replies that are wrong or odd in themselves: what can be run is, once, and the rest is told."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.faults import Case, Mode, Played, append, in_a_drawn_mode, play
from tests.support.openai_script import Answer, Call, Reply
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

DONE = Reply("Done.")
MEGABYTE = 1_000_000
LONG = "é" * (MEGABYTE // 2)
BIG_FILE = {"command": "create", "path": "big.txt", "file_text": LONG}


def after(*calls: Call, **fields: object) -> tuple[Answer, ...]:
    """Make a script of one reply with calls, and the answer."""
    return (replace(Reply(calls=calls), **fields), DONE)  # type: ignore[arg-type]  # Reply's own


def swapped(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda body: body.replace(old, new)


def named_in_pieces(body: bytes) -> bytes:
    """Give a call's name in two events, the second without an id."""
    if not body.startswith(b"data:"):
        return body
    first, *others = body.split(b"\n\n")
    pieces = [part for part in others if b'"name": "bash"' in part]
    event = json.loads(pieces[0][6:])
    call = event["choices"][0]["delta"]["tool_calls"][0]
    for n, fields in enumerate(({"id": call["id"], "name": "ba"}, {"name": "sh"})):
        function = {"name": fields.pop("name"), "arguments": ""}
        event["choices"][0]["delta"]["tool_calls"] = [{"index": 0, **fields, "function": function}]
        others.insert(n, b"data: " + json.dumps(event).encode())
    at = others.index(pieces[0])
    others[at] = pieces[0].replace(b'"name": "bash", ', b"").replace(call["id"].encode(), b"")
    return b"\n\n".join([first, *others])


def with_comments(body: bytes) -> bytes:
    if not body.startswith(b"data:"):
        return b"\n \n" + body
    return b"\xef\xbb\xbf: hello\n\n" + body.replace(
        b"\n\n", b"\n\n: ping\r\n\r\nevent: x\nid: 7\n"
    )


def with_parts(body: bytes) -> bytes:
    parts = json.dumps([{"type": "text", "text": "Do"}, "n", {"type": "text", "text": "e."}])
    return body.replace(b'"content": "Done."', f'"content": {parts}'.encode())


def shapes_of_nonsense(body: bytes) -> bytes:
    """Put values of other kinds where nobody needs them."""
    usage = (
        b'"usage": {"prompt_tokens": null, "completion_tokens": "x", "prompt_tokens_details": 3}'
    )
    body = body.replace(b'"created": 0', b'"created": "now", "system_fingerprint": {"a": 1}')
    return body.replace(b'"usage": {', usage + b', "old": {')


RUN: dict[str, tuple[tuple[Answer, ...], list[str]]] = {
    "no id": (after(append("a", id=None), append("b", id=None)), ["a", "b"]),
    "empty ids": (after(append("a", id=""), append("b", id=" ")), ["a", "b"]),
    "one id twice": (after(append("a", id="same"), append("b", id="same")), ["a", "b"]),
    "one call twice": (after(append("a", id="same"), append("a", id="same")), ["a", "a"]),
    "an id again": (
        (Reply(calls=(append("a", id="0"),)), Reply(calls=(append("b", id="0"),)), DONE),
        ["a", "b"],
    ),
    "half an id": (after(append("a", id="x\ud83d")), ["a"]),
    "no index": (after(append("a", index=None), append("b", index=None)), ["a", "b"]),
    "index 0": (after(append("a", index=0), append("b", index=0)), ["a", "b"]),
    "nothing to tell calls apart": (
        after(append("a", id="", index=0), append("b", id="", index=0), piece_size=MEGABYTE),
        ["a", "b"],
    ),
    "names repeated": (after(append("a"), append("b"), repeat_names=True), ["a", "b"]),
    "name in pieces": (after(append("a"), alter=named_in_pieces), ["a"]),
    "arguments as object": (after(append("a", as_object=True)), ["a"]),
    "raw line breaks": (after(Call("bash", '{"command": "echo a >> ran\necho did a"}')), ["a"]),
    "several choices": (after(append("a"), further_choices=2), ["a"]),
    "stop as reason": (after(append("a"), finish_reason="stop"), ["a"]),
    "no DONE": (after(append("a"), fault="no_done"), ["a"]),
    "a document for a stream": (after(append("a"), fault="plain_json"), ["a"]),
    "as text/plain": (after(append("a"), fault="wrong_content_type"), ["a"]),
    "comments": (after(append("a"), alter=with_comments), ["a"]),
    "content parts": (
        (Reply(calls=(append("a"),)), replace(DONE, alter=with_parts, piece_size=99)), ["a"]
    ),
    "reasoning": (after(append("a"), reasoning="Let me see.\nWell."), ["a"]),
    "usage in every event": (after(append("a"), usage_everywhere=True), ["a"]),
    "other shapes": (after(append("a"), alter=shapes_of_nonsense), ["a"]),
    "a pair of halves": (
        (Reply(calls=(append("a"),)), Reply("Done\U0001f600.", piece_size=5, alter=swapped(
            b'"content": "Done\\ud83d\\ude00"',
            b'"content": "Done\\ud83d"}}]}\n\ndata: {"choices": [{"delta": {"content": "\\ude00"',
        ))),
        ["a"],
    ),
    "half in text": ((Reply("One \ud83d", calls=(append("a"),)), DONE), ["a"]),
    "no UTF-8 in text": (
        (Reply("caf#", calls=(append("a"),), alter=swapped(b"caf#", b"caf\xe9")), DONE),
        ["a"],
    ),
}  # fmt: skip
TOLD: dict[str, tuple[tuple[Answer, ...], list[str], str]] = {
    "list": (after(append("a"), Call("bash", '["echo"]')), ["a"], "not a JSON object"),
    "text": (after(append("a"), Call("bash", '"ls"')), ["a"], "not a JSON object"),
    "number": (after(append("a"), Call("bash", "42")), ["a"], "not a JSON object"),
    "number as it is": (
        after(append("a"), Call("bash", 42, as_object=True)), ["a"], "not a JSON object"
    ),
    "null": (after(append("a"), Call("python_execute", "null")), ["a"], "code"),
    "nothing": (after(append("a"), Call("python_execute", "")), ["a"], "code"),
    "broken JSON": (after(append("a"), Call("bash", '{"command": "ec')), ["a"], "JSON object"),
    "a megabyte of nonsense": (
        after(append("a"), Call("bash", "ls " * (MEGABYTE // 3)), piece_size=5000),
        ["a"],
        "not a JSON object",
    ),
    "two objects": (after(append("a"), Call("bash", "{}{}")), ["a"], "not a JSON object"),
    "unknown tool": (after(append("a"), Call("pythn_execute", {})), ["a"], "python_execute"),
    "no name": (after(append("a"), Call("", {})), ["a"], "There is no tool"),
    "illegal name": (
        after(append("a"), Call("bash; echo b >> ran", {"command": "echo b >> ran"})),
        ["a"],
        "There is no tool",
    ),
    "endless name": (after(append("a"), Call("x" * 300, {})), ["a"], "There is no tool"),
    "half a character": (
        after(append("a"), Call("bash", '{"command": "echo \\ud83d >> ran"}')),
        ["a"],
        "half a character (\\ud83d)",
    ),
    "no UTF-8": (
        after(append("a"), append("#"), alter=swapped(b"echo #", b"echo \xe9"), piece_size=999),
        ["a"],
        "half a character (\\xe9)",
    ),
    "cut by length": (
        after(append("a"), Call("bash", '{"command": "echo b >> ran; ech'), finish_reason="length"),
        ["a"],
        "cut off by its length limit",
    ),
    "cut, and mended": (after(append("a"), append("b"), finish_reason="length"), ["a"], "cut off"),
    "cut by a filter": (
        after(append("a"), append("b"), finish_reason="content_filter"), ["a"], "content filter"
    ),
}  # fmt: skip
TERMINATE = Call("terminate", {"status": "success"})
ENDS: dict[str, tuple[Answer, ...]] = {
    "terminate first": (Reply("Bye.", calls=(TERMINATE, append("a"), append("b"))),),
    "terminate beside a failure": (
        Reply("Bye.", calls=(TERMINATE, append("a"), Call("bash", {"command": "false"}))),
        Reply("Better.", calls=(append("b"), TERMINATE)),
    ),
    "terminate beside a wrong call": (
        Reply("Bye.", calls=(append("a"), Call("bash", "[1]"), TERMINATE)),
        Reply("Better.", calls=(append("b"), TERMINATE)),
    ),
}
OTHERS: dict[str, tuple[Answer, ...]] = {
    "a megabyte": after(Call("str_replace_editor", BIG_FILE), append("a"), piece_size=4000),
    "a megabyte at once": after(
        Call("str_replace_editor", BIG_FILE), append("a"), piece_size=MEGABYTE
    ),
    "in its place": after(append("a"), Call("bash", "[1]", id="wrong"), append("b")),
    "cut text": (
        Reply(calls=(append("a"),)),
        Reply("Half of", finish_reason="length"),
        Reply(" it."),
    ),
    "filtered text": (
        Reply(calls=(append("a"),)),
        Reply("Half of", finish_reason="content_filter"),
    ),
    "empty": (Reply(calls=(append("a"),)), Reply(), Reply("  \n"), DONE),
    "no usage": (Reply(calls=(append("a"),), usage=None), replace(DONE, usage=None)),
}

CUT_BY = {
    "cut text": ("length limit", "Half of it."),
    "filtered text": ("content filter", "Half of"),
}
"""What cuts a reply off, and the answer: a filtered one stays as it is, the other goes on."""


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, zygote: Zygote) -> Played:
    scripts = {name: script for name, (script, _) in RUN.items()}
    scripts |= {name: script for name, (script, _, _) in TOLD.items()}
    cases = {name: Case(script) for name, script in (scripts | ENDS | OTHERS).items()}
    assert len(cases) == len(RUN) + len(TOLD) + len(ENDS) + len(OTHERS), "names are unique"
    return play(cases, request, zygote)


@in_a_drawn_mode(RUN)
def test_calls_of_odd_replies_run_once_and_in_order(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    script, words = RUN[name]
    ran.answered("Done\U0001f600." if name == "a pair of halves" else "Done.")
    assert ran.appended == words
    assert (len(ran.requests), ran.notices) == (len(script), [])
    assert [message["content"].split() for message in ran.reported] == [
        ["did", word] for word in words
    ]
    ids = [event["call_id"] for event in ran.result.of("tool_start")]
    assert len(set(ids)) == len(ids) == len(ran.reported)
    assert "?" not in str(ran.requests[-1].messages[2]), "nothing is replaced silently"


@in_a_drawn_mode(TOLD)
def test_a_call_that_cannot_run_is_reported_to_the_model(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    script, words, said = TOLD[name]
    ran.answered()
    assert ran.appended == words
    assert len(ran.requests) == len(script)
    good, bad = (message["content"] for message in ran.reported)
    assert good.strip() == "did a"
    assert said in bad
    assert len(bad) < 1000
    assert [event["ok"] for event in ran.result.of("tool_end")].count(False) == 1


@in_a_drawn_mode(ENDS)
def test_terminate_waits_for_its_siblings_and_for_their_success(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    last = ENDS[name][-1]
    assert isinstance(last, Reply)
    ran.ended(0, "finished", "terminate", words=last.text)
    assert ran.appended == ["a", "b"]
    assert len(ran.requests) == len(ENDS[name])


@in_a_drawn_mode(["a megabyte", "a megabyte at once"])
def test_arguments_of_a_megabyte_are_run(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.answered()
    assert ran.appended == ["a"]
    assert (ran.workspace / "big.txt").read_text("utf-8") == LONG
    assert len(ran.requests) == 2


@in_a_drawn_mode(["in its place"])
def test_a_wrong_call_is_answered_in_its_own_place(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.answered()
    assert ran.appended == ["a", "b"]
    said = [message["content"].strip() for message in ran.reported]
    assert (said[0], said[2]) == ("did a", "did b")
    assert ran.reported[1]["tool_call_id"] == "wrong"
    asked = [message for message in ran.requests[-1].messages if "tool_calls" in message]
    assert [call["id"] for call in asked[0]["tool_calls"]][1] == "wrong"


@in_a_drawn_mode(CUT_BY)
def test_an_answer_that_was_cut_off_says_so(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    cause, answer = CUT_BY[name]
    ran.answered(answer)
    assert [cause in notice["text"] for notice in ran.notices] == [True]


@in_a_drawn_mode(["empty"])
def test_an_empty_reply_is_pointed_out_and_never_sent_back(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.answered()
    assert len(ran.requests) == 4
    assert "empty" in ran.requests[2].messages[-1]["content"]
    assert ["empty" in notice["text"] for notice in ran.notices] == [True, True]
    assert all(m.get("content") or m.get("tool_calls") for r in ran.requests for m in r.messages)


@in_a_drawn_mode(["no usage"])
def test_missing_usage_is_estimated_and_said_once(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.answered()
    said = [e["text"] for e in ran.result.of("notice") if "estimated" in e["text"]]
    assert len(said) == 1
    assert ran.result.final["usage"]["input_tokens"] > 500
