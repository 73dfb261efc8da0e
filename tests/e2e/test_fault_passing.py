"""Failures of a model's side that pass: asked again, nothing run twice, one line for each."""

import datetime
import gzip
import re
from email.utils import format_datetime

import pytest

from tests.support.cli import Cli
from tests.support.faults import (
    Case,
    Mode,
    Played,
    append,
    around,
    in_a_drawn_mode,
    play,
)
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

NOW = {"Retry-After": "0"}
TEXT = "Half of a longer answer."
CALL = (append("never"),)
SHORT = {"timeout": "30"}  # long enough for what does answer, on a busy machine


def busy_for_seconds(_: object) -> Reply:
    moment = datetime.datetime.now(tz=datetime.UTC) + datetime.timedelta(seconds=2)
    return Reply(status=429, headers={"Retry-After": format_datetime(moment, usegmt=True)})


def without_its_end(body: bytes) -> bytes:
    """Leave out [DONE] and the finish reason of a stream, the last half of a document."""
    if not body.startswith(b"data:"):
        return body[: len(body) // 2]
    events = [part for part in body.split(b"\n\n") if b"[DONE]" not in part]
    return b"\n\n".join(part for part in events if b'"finish_reason": "' not in part) + b"\n\n"


def bare_error(_: bytes) -> bytes:
    return b'{"object": "error", "message": "worker died", "type": "Internal", "code": 500}'


TWICE: dict[str, tuple[Case, str]] = {
    "429 in seconds": (Case(around(Reply(status=429, headers={"Retry-After": "1"}))), "429"),
    "429 by date": (Case(around(busy_for_seconds)), "429"),
    "429": (Case(around(Reply(status=429))), "429"),
    "408": (Case(around(Reply(status=408, headers=NOW))), "408"),
    "409": (Case(around(Reply(status=409, headers=NOW))), "409"),
    "500": (Case(around(Reply(status=500))), "500"),
    "502 page": (Case(around(Reply(status=502, headers=NOW, error="<html>"))), "502"),
    "503": (Case(around(Reply(status=503, headers=NOW))), "503"),
    "reset": (Case(around(Reply(fault="reset"))), "could not be reached|broke its answer off"),
    "reset in text": (Case(around(Reply(TEXT, fault="reset_mid"))), "broke its answer off"),
    "reset in a call": (Case(around(Reply(calls=CALL, fault="reset_mid"))), "broke its answer off"),
    "closed in a call": (Case(around(Reply(calls=CALL, fault="cut"))), "broke its answer off"),
    "ends in a call": (Case(around(Reply(calls=CALL, fault="truncated"))), "no usable reply"),
    "ends without end": (Case(around(Reply(calls=CALL, alter=without_its_end))), "usable reply"),
    "a page": (Case(around(Reply(fault="html"))), "HTML page"),
    "withheld": (Case(around(Reply(finish_reason="content_filter"))), "withheld"),
    "broken JSON": (Case(around(Reply(TEXT, fault="broken_json"))), "no usable reply"),
    "error inside": (Case(around(Reply(fault="error_inside"))), "scripted"),
    "error in mid stream": (Case(around(Reply(calls=CALL, fault="error_mid"))), "scripted"),
    "bare error inside": (Case(around(Reply(alter=bare_error))), "500.*worker died"),
    "no choices": (Case(around(Reply(fault="no_choices"))), "no choices"),
    "null choices": (Case(around(Reply(fault="null_choices"))), "no choices"),
    "empty body": (Case(around(Reply(alter=lambda _: b""))), "sent nothing"),
    "plain text": (Case(around(Reply(alter=lambda _: b"upstream error"))), "upstream error"),
    "broken gzip": (
        Case(around(Reply(headers={"Content-Encoding": "gzip"}, alter=lambda body: body))),
        "no usable reply",
    ),
    "silent": (Case(around(Reply(delay_s=900)), options=SHORT), "did not answer in time"),
    "silent in a call": (
        Case(around(Reply(calls=CALL, fault="stall")), options=SHORT),
        "did not answer in time",
    ),
}
PAUSES = {"429 in seconds": 1, "429 by date": 0.9, "429": 0.5, "500": 0.5}
"""The least seconds; a date has no fractions."""
OTHERS = {
    "five in a row": Case(
        (
            Reply(calls=(append("one"),)),
            Reply(status=503, headers=NOW),
            Reply(TEXT, fault="cut", headers=NOW),
            Reply(status=429, headers=NOW),
            Reply(calls=CALL, fault="truncated"),
            Reply(status=500, headers=NOW),
            Reply("Done."),
        )
    ),
    "slow first byte": Case((Reply(calls=(append("one"),), delay_s=2), Reply("Done.", delay_s=2))),
    "gzip": Case(
        (
            Reply(
                calls=(append("one"),),
                headers={"Content-Encoding": "gzip"},
                alter=gzip.compress,
            ),
            Reply("Done."),
        )
    ),
    "no wait": Case((Reply(status=500), Reply("Done.")), options={"max_retries": "0"}),
}


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, zygote: Zygote) -> Played:
    cases = {name: case for name, (case, _) in TWICE.items()} | OTHERS
    return play(cases, request, zygote)


@in_a_drawn_mode(TWICE)
def test_a_passing_failure_at_step_1_and_3_costs_a_pause_and_one_line(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.answered()
    assert ran.appended == ["one", "two"]
    assert len(ran.requests) == 5
    assert ran.steps == [1, 1, 2, 3, 3], "what a failed attempt streamed is void"
    assert len(ran.notices) == 2
    for notice in ran.notices:
        assert re.search(TWICE[name][1], notice["text"])
        assert re.search("Attempt 1 of [26]", notice["text"])
        assert "try again later" not in notice["text"], "it is tried again"
    assert ran.result.final["usage"]["model_calls"] == 3
    assert ran.requests[0].body == ran.requests[1].body
    assert ran.requests[3].body == ran.requests[4].body
    assert [len(event["tool_calls"]) for event in ran.result.of("think_end")] == [1, 1, 0]


@in_a_drawn_mode(PAUSES)
def test_the_pause_is_the_servers_or_our_own(played: Played, name: str, mode: Mode) -> None:
    waits = played[name, mode].waits
    assert min(waits[0], waits[3]) >= PAUSES[name]


@in_a_drawn_mode(["five in a row"])
def test_five_failures_in_a_row_are_survived(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.answered()
    assert ran.appended == ["one"]
    assert len(ran.requests) == 7
    assert len(ran.notices) == 5


@in_a_drawn_mode(["slow first byte", "gzip"])
def test_what_is_only_unusual_is_asked_once(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.answered()
    assert (ran.appended, len(ran.requests), ran.notices) == (["one"], 2, [])


@in_a_drawn_mode(["no wait"])
def test_retries_can_be_switched_off(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.ended(1, "failed", "error", words="500")
    assert (len(ran.requests), ran.notices) == (1, [])


def test_a_person_sees_one_line_for_a_failure(cli: Cli, model: OpenAIServer) -> None:
    model.add(*around(Reply(status=503, headers=NOW)))
    done = cli.run("run", "x", "--workspace", "files")
    assert (done.code, done.stdout) == (0, "Done.\n")
    assert sum("answered with 503" in line for line in done.stderr.splitlines()) == 2
    assert (cli.workspace / "ran").read_text().split() == ["one", "two"]
