"""What people and their inboxes send."""

from typing import Any

import pytest

from openmanus_graph.nodes.create_plan import read_review
from openmanus_graph.state.interrupts import (
    Decision,
    no_decision,
    question_request,
    read_decision,
    read_decision_on,
    read_text,
    read_typed_decision,
)

APPROVE, EDIT = Decision("approve"), Decision("edit", args={"n": 1}, tool="pay")
NO, PAID = Decision("reject", message="no"), Decision("respond", message="paid")
ACTION = {"name": "pay", "args": {"n": 1}}


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        # agent-chat-ui
        ({"decisions": [{"type": "approve"}]}, APPROVE),
        ({"decisions": [{"type": "reject", "message": "no"}]}, NO),
        ({"decisions": [{"type": "edit", "edited_action": ACTION}]}, EDIT),
        # Agent Inbox, when it sees a HITLRequest
        (
            {"decisions": [{"type": "approve", "args": {"action": "pay", "args": {"n": 2}}}]},
            APPROVE,
        ),
        ({"decisions": [{"type": "approve", "args": None}]}, APPROVE),
        ({"decisions": [{"type": "reject", "args": "no"}]}, NO),
        ({"decisions": [{"type": "edit", "args": {"action": "pay", "args": {"n": 1}}}]}, EDIT),
        # Agent Inbox, and agent-chat-ui before HITLRequest
        ([{"type": "accept", "args": None}], APPROVE),
        ([{"type": "accept", "args": {"action": "pay", "args": {"n": 1}}}], APPROVE),
        ([{"type": "edit", "args": {"action": "pay", "args": {"n": 1}}}], EDIT),
        ([{"type": "ignore", "args": None}], Decision("reject")),
        ([{"type": "response", "args": "paid"}], PAID),
        # LangChain's middleware, the SDK, a terminal
        (
            {"decisions": [{"type": "respond", "message": "paid"}]},
            Decision("respond", message="paid"),
        ),
        ({"type": "approve", "remember": True}, Decision("approve", remember=True)),
        ("always", Decision("approve", remember=True)),
        (" Approve ", APPROVE),
        ('{"type": "edit", "args": {"args": {"n": 1}}}', Decision("edit", args={"n": 1})),
        ('[{"type": "accept", "args": null}]', APPROVE),
        ("= paid by hand", Decision("respond", message="paid by hand")),
    ],
)
def test_a_decision_is_understood_in_every_form(sent: Any, meant: Decision) -> None:
    assert read_decision(sent) == meant


@pytest.mark.parametrize(
    "sent",
    [None, "", {}, [], 1, True, {"decisions": []}, {"decisions": [{"type": "approve"}] * 2},
     {"type": "maybe"}, {"type": "edit"}, {"type": "edit", "args": "n=1"}, [[]], {"decisions": 1}],
)  # fmt: skip
def test_what_is_no_decision_is_none(sent: Any) -> None:
    assert read_decision(sent) is None


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ("blue", "blue"),
        (7, "7"),
        ({"answer": "blue"}, "blue"),
        ({"decisions": [{"type": "respond", "message": "blue"}]}, "blue"),
        ({"decisions": [{"type": "reject", "message": "blue"}]}, "blue"),
        ({"decisions": [{"type": "reject", "args": "blue"}]}, "blue"),
        ([{"type": "response", "args": "blue"}], "blue"),
        ([{"type": "ignore", "args": None}], "The person does not want to answer that."),
        ({"decisions": [{"type": "approve"}]}, None),
        ({}, None),
        ([], None),
    ],
)
def test_an_answer_is_understood_in_every_form(sent: Any, text: str | None) -> None:
    assert read_text(sent) == text


def test_inboxes_can_show_a_question() -> None:
    request = question_request("Which colour?")
    assert request["action_requests"][0]["args"] == {"inquire": "Which colour?"}
    assert request["review_configs"][0]["action_name"] == request["action_requests"][0]["name"]
    assert (request["kind"], request["calls"]) == ("question", [])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *((word, APPROVE) for word in ("a", "approve", "y", "yes", " A ", "Yes\r")),
        ("always", Decision("approve", remember=True)),
        *((word, Decision("reject")) for word in ("r", "reject", "n", "no", "R ")),
        *((f"{word} too  much", Decision("reject", message="too  much"))
          for word in ("r", "reject", "n", "no", "NO")),
        ("= paid", PAID), ("=paid", PAID), ("=  a\n= b ", Decision("respond", message="a\n= b")),
        ("= yes", Decision("respond", message="yes")),
    ],
)  # fmt: skip
def test_the_words_of_a_decision(typed: str, meant: Decision) -> None:
    assert read_typed_decision(typed) == meant


@pytest.mark.parametrize(
    "typed",
    ["", " ", "yes please do", "y.", "yes, do", "a b", "approve it", "always please", "ok", "e",
     "edit", "no!", "rm", "nope", "paid by hand", "=", "= ", '{"paid": 3}', "yes\nno",
     "\u0430", "ÿ"],
)  # fmt: skip
def test_any_other_text_is_no_decision_and_no_result(typed: str) -> None:
    assert read_typed_decision(typed) is None
    assert read_decision(typed) is None
    assert read_decision({"decisions": [typed]}) is None


@pytest.mark.parametrize(
    ("reported", "meant"),
    [
        ("yes please do", Decision("respond", message="yes please do")),
        (" It was paid at noon.\n", Decision("respond", message="It was paid at noon.")),
        ("= paid", PAID), ("a", APPROVE), ("no", Decision("reject")),
        ("", None), (" ", None), ("=", None), ("{paid", None), ('{"paid": 3}', None), ("[1", None),
        (None, None), (7, None), ({"type": "maybe"}, None),
    ],
)  # fmt: skip
def test_what_became_of_a_call_is_told_in_any_words(reported: Any, meant: Decision | None) -> None:
    assert read_decision_on("unknown_outcome", reported) == meant


@pytest.mark.parametrize("typed", ["yes please do", "It was paid at noon.", "a lot", "ok"])
def test_an_approval_takes_only_its_own_words(typed: str) -> None:
    assert read_decision_on("approval", typed) is None


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("yes please do", Decision("respond", message="yes please do")),
        ("[SWE] shall do it", Decision("respond", message="[SWE] shall do it")),
        ("r shorter", Decision("reject", message="shorter")),
        ("y", APPROVE), ("reject", Decision("reject")),
        ('["mine"]', Decision("edit", args={"steps": ["mine"]})),
        ([{"type": "accept", "args": None}], APPROVE),
        ("", None), (" ", None), (None, None), (7, None),
    ],
)  # fmt: skip
def test_what_is_to_change_of_a_plan_is_said_in_any_words(said: Any, meant: Decision) -> None:
    assert read_review(said) == meant


def test_a_refusal_names_the_words_that_count() -> None:
    said = no_decision(["approve", "edit", "reject", "respond"])
    assert said.endswith("answer `approve`, `reject WHY`, `= RESULT`.")
    assert "RESULT" not in no_decision(["approve", "reject"])
