"""A model that goes round in circles is stopped; one that gets somewhere never is."""

import pytest

from tests.support.faults import Case, Mode, Played, append, in_a_drawn_mode, play
from tests.support.openai_script import Answer, Call, Reply
from tests.support.zygote import Zygote

LIMIT = ("--max-steps", "60")
NOTHING = Reply(calls=(Call("bash", {"command": "cat nothing"}),))
ELSEWHERE = Reply(calls=(Call("bash", {"command": "cat elsewhere"}),))
BROKEN = Reply(calls=(Call("bash", '{"command": '),))
PAGES = tuple(
    Reply(calls=(Call("bash", {"command": f"seq 1 500 | sed -n '{n * 10},{n * 10 + 9}p'"}),))
    for n in range(1, 17)
)
EMPTY_PAGES = tuple(
    Reply(calls=(Call("bash", {"command": f"ls page{n} 2>/dev/null; true"}),)) for n in range(16)
)
POLL = Reply(calls=(Call("bash", {"command": "echo x >> ran; wc -l < ran"}),))

STUCK: dict[str, tuple[tuple[Answer, ...], int]] = {
    "the same call": ((NOTHING,), 8),
    "two calls in turn": ((NOTHING, ELSEWHERE), 16),
    "a call that cannot be read": ((BROKEN,), 8),
    "an unknown tool": ((Reply(calls=(Call("fly", {}),)),), 8),
    "nothing at all": ((Reply(""),), 8),
}
GETS_SOMEWHERE: dict[str, tuple[Answer, ...]] = {
    "pages": (*PAGES, Reply("Done.")),
    "pages that are empty": (*EMPTY_PAGES, Reply("Done.")),
    "polling": (*[POLL] * 16, Reply("Done.")),
}


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, zygote: Zygote) -> Played:
    cases = {name: Case(script, LIMIT, loop=True) for name, (script, _) in STUCK.items()}
    cases |= {name: Case(script, LIMIT) for name, script in GETS_SOMEWHERE.items()}
    cases["the same text"] = Case((Reply("I am thinking."),), LIMIT, loop=True)
    cases["gets out"] = Case((*[NOTHING] * 6, Reply(calls=(append("a"),)), Reply("Done.")), LIMIT)
    return play(cases, request, zygote)


@in_a_drawn_mode(STUCK)
def test_a_model_that_repeats_itself_is_warned_twice_and_stopped(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.ended(3, "stopped", "stuck", words="repeated themselves")
    assert len(ran.requests) == STUCK[name][1]
    assert [event["reason"] for event in ran.result.of("limit")] == ["stuck"]
    hints = [r.messages[-1]["content"] for r in ran.requests if r.messages[-1]["role"] == "user"]
    assert len(set(hints[1:])) >= 2, "a hint, then a demand for another way"


@in_a_drawn_mode(GETS_SOMEWHERE)
def test_a_model_that_gets_new_results_is_left_alone(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.answered()
    assert len(ran.requests) == 17
    assert all(request.messages[-1]["role"] == "tool" for request in ran.requests[1:])


@in_a_drawn_mode(["the same text"])
def test_a_text_that_a_model_would_say_for_ever_is_its_answer(
    played: Played, name: str, mode: Mode
) -> None:
    ran = played[name, mode]
    ran.answered("I am thinking.")
    assert len(ran.requests) == 1


@in_a_drawn_mode(["gets out"])
def test_a_model_that_finds_another_way_goes_on(played: Played, name: str, mode: Mode) -> None:
    ran = played[name, mode]
    ran.answered()
    assert (ran.appended, len(ran.requests)) == (["a"], 8)
    assert ran.requests[7].messages[-1]["role"] == "tool", "the hint is gone"
