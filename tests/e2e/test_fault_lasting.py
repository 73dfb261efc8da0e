"""Failures of a model's side that last: said once, nothing lost, and the run can go on later."""

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cli import KEY, Cli
from tests.support.faults import Case, Mode, Played, append, in_a_drawn_mode, play
from tests.support.openai_script import Answer, Call, Fault, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

NOW = {"Retry-After": "0"}
LAST_WORD = Reply("The first word is appended, the second is not.")
ONE, TWO = Reply(calls=(append("one"),)), Reply(calls=(append("two"),))
TOO_LONG = {"message": "This model's maximum context length is 8192 tokens.", "code": "x"}
CHARS_PER_TOKEN = 4
NOTES = Reply("- the first word is out")


def long_step(word: str, first: int) -> Answer:
    """Answer with a call that prints much; the usage grows with the request, as it does."""
    command = f"echo {word} >> ran; echo did {word}; seq {first} {first + 998}"

    def reply(body: dict[str, Any]) -> Reply:
        size = len(json.dumps([body["messages"], body["tools"]]))
        usage = {"prompt_tokens": size // CHARS_PER_TOKEN, "completion_tokens": 9}
        return Reply(calls=(Call("bash", {"command": command}),), usage=usage)

    return reply


LONG = (long_step("one", 1000), long_step("more", 2000))


def refusal(status: int, message: str, **fields: object) -> Reply:
    return Reply(status=status, error={"message": message, **fields})


def inside(fault: Fault, message: str, **fields: object) -> Reply:
    return Reply("half a text", fault=fault, error={"message": message, **fields})


REFUSALS: dict[str, tuple[Answer, str]] = {
    "400": (refusal(400, "temperature must be at most 2"), "400.*temperature must be at most 2"),
    "401": (refusal(401, f"Incorrect API key provided: {KEY}."), "401.*Check the key"),
    "402": (refusal(402, "Insufficient Balance"), "402.*no credit left"),
    "403": (refusal(403, "Your project has no access."), "403.*Check the key"),
    "404": (refusal(404, "The model `x` does not exist"), "404.*Check the model's name"),
    "422": (refusal(422, "max_tokens: Field required"), "422.*max_tokens"),
    "quota": (
        refusal(429, "You exceeded your current quota.", code="insufficient_quota"),
        "429.*no credit left",
    ),
    "an hour": (Reply(status=429, headers={"Retry-After": "3600"}), "429.*60 minutes"),
    "filter": (
        refusal(400, "The prompt was filtered.", code="content_filter"),
        "400.*put the task in other words",
    ),
    "key inside": (inside("error_inside", "Invalid key", code=401), "401.*Check the key"),
    "key in mid stream": (inside("error_mid", "Invalid key", code=401), "401.*Check the key"),
    "too long again and again": (refusal(400, TOO_LONG["message"]), "choose a model with a larger"),
}
ASKED_TWICE: dict[str, tuple[Answer, str]] = {
    "withheld": (Reply(finish_reason="content_filter"), "withheld.*put the task in other words"),
    "page": (Reply(fault="html"), "HTML page.*base URL"),
}
TOO_LONG_ONCE: dict[str, Answer] = {
    "too long": refusal(400, TOO_LONG["message"], code="context_length_exceeded"),
    "too large": Reply(status=413, error={"message": "Payload Too Large"}),
    "too long inside": Reply(fault="error_inside", error=TOO_LONG),
    "too long in mid stream": Reply("half", fault="error_mid", error=TOO_LONG),
}
COMPACTED: dict[str, tuple[Answer, ...]] = {
    **{name: (answer, NOTES, NOTES) for name, answer in TOO_LONG_ONCE.items()},
    "busy while compacting": (
        TOO_LONG_ONCE["too long"],
        Reply(status=503, headers=NOW),
        Reply("half of the notes", fault="cut"),
        NOTES,
        NOTES,
    ),
    "refused while compacting": (
        TOO_LONG_ONCE["too long"],
        refusal(400, "No."),
    ),
    "empty while compacting": (TOO_LONG_ONCE["too long"], Reply(), Reply()),
}
"""What the third request and those for notes are answered with: notes are asked for at the end of
the conversation's longest beginning that fits, then about the rest as text."""

UNREACHABLE = {"nobody there": "could not be reached", "never connects": "did not answer in time"}


def repeated(name: str) -> tuple[Answer, ...]:
    """Refuse what comes after the first step, the notes of a compaction excepted."""
    answer = REFUSALS[name][0]
    return (ONE, answer, NOTES, answer) if name.startswith("too long") else (ONE, answer)


@pytest.fixture(scope="module")
def blackhole() -> Iterator[str]:
    """An address where connections are never taken up: its queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}/v1"
        for one in waiting:
            one.close()


@pytest.fixture(scope="module")
def nobody() -> Iterator[str]:
    """An address where nobody listens, and nobody else will."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, zygote: Zygote, blackhole: str, nobody: str) -> Played:
    once = {"timeout": "1", "max_retries": "1"}
    cases = {name: Case(repeated(name)) for name in REFUSALS}
    cases |= {
        name: Case((*LONG, *script, TWO, Reply("Done."))) for name, script in COMPACTED.items()
    }
    cases |= {name: Case((ONE, *[answer] * 2)) for name, (answer, _) in ASKED_TWICE.items()}
    cases["too long at once"] = Case((TOO_LONG_ONCE["too long"], Reply("Done.")))
    cases["stays down"] = Case((ONE, *[Reply(status=503, headers=NOW)] * 9))
    cases["nobody there"] = Case((), address=nobody, options=once)
    cases["never connects"] = Case((), address=blackhole, options=once)
    cases["time runs out"] = Case(
        (ONE, Reply(status=503, headers={"Retry-After": "200"}), LAST_WORD), ("--timeout", "30")
    )
    return play(cases, request, zygote)


@in_a_drawn_mode(REFUSALS)
def test_a_lasting_refusal_is_said_once_and_never_retried(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.ended(1, "failed", "error")
    assert ran.appended == ["one"], "what was done stays done"
    assert len(ran.requests) == len(repeated(name))
    answer = ran.result.final["answer"]
    assert re.search(REFUSALS[name][1], answer)
    assert "\n" not in answer
    assert KEY not in ran.log.read_text()
    assert ran.notices == []


@in_a_drawn_mode(ASKED_TWICE)
def test_what_a_filter_or_a_proxy_says_is_believed_the_second_time(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.ended(1, "failed", "error")
    assert (ran.appended, len(ran.requests), len(ran.notices)) == (["one"], 3, 1)
    assert re.search(ASKED_TWICE[name][1], ran.result.final["answer"])


@in_a_drawn_mode(["too long at once"])
def test_a_task_that_is_too_long_for_one_server_is_sent_once_more(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.ended(0, "finished", "answer", words="Done.")
    assert len(ran.requests) == 2


@in_a_drawn_mode(COMPACTED)
def test_a_conversation_that_is_too_long_is_compacted_and_asked_about_once_more(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.answered()
    assert ran.appended == ["one", "more", "two"]
    assert len(ran.requests) == 4 + len(COMPACTED[name])
    sizes = [len(str(request.messages)) for request in ran.requests]
    assert sizes[-2] < sizes[2], "what is asked again is shorter"
    task = ran.requests[-1].messages[1]
    assert task["role"] == "user"
    assert "Append the words." in task["content"]
    assert ("the first word is out" in task["content"]) is (NOTES in COMPACTED[name])
    assert "one" in task["content"] or "one" in str(ran.requests[-1].messages[2:])
    said = [event["text"] for event in ran.result.of("notice")]
    assert any("compacted" in text for text in said)


@in_a_drawn_mode(["stays down"])
def test_a_server_that_stays_down_ends_the_run_after_six_attempts(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.ended(1, "failed", "error", words="6 attempts were made")
    assert (ran.appended, len(ran.requests), len(ran.notices)) == (["one"], 7, 5)


@in_a_drawn_mode(["time runs out"])
def test_a_pause_longer_than_the_runs_time_ends_with_its_time(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.ended(3, "stopped", "timeout", words=LAST_WORD.text)
    assert (ran.appended, len(ran.requests)) == (["one"], 3), "there is time for the final summary"
    assert "its limit of 30 seconds" in str(ran.requests[-1].messages[-1]["content"])


@in_a_drawn_mode(UNREACHABLE)
def test_a_server_that_cannot_be_reached_is_named(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.ended(1, "failed", "error", words=UNREACHABLE[name])
    assert "2 attempts were made" in ran.result.final["answer"]
    assert len(ran.notices) == 1


def test_a_run_that_failed_says_why_on_stderr_and_can_be_resumed(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(ONE, refusal(401, "no"), TWO, Reply("better"))
    done = cli.run("run", "x", "--thread", "t", "--quiet", "--workspace", "files")
    assert (done.code, done.stdout) == (1, "")
    assert "401" in done.stderr
    assert "Check the key" in done.stderr
    assert "openmanus resume t" in done.stderr
    resumed = cli.run("resume", "t", "--quiet")
    assert (resumed.code, resumed.stdout) == (0, "better\n")
    assert (cli.workspace / "ran").read_text().split() == ["one", "two"]
