"""What people and their inboxes send."""

from typing import Any

import pytest

from openmanus_graph.interfaces.cli.person import decision_of
from openmanus_graph.state.interrupts import Decision, question_request, read_decision, read_text

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
        ("paid by hand", Decision("respond", message="paid by hand")),
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


def test_typed_words_are_decisions() -> None:
    assert [decision_of(typed) for typed in ("a", "n", "r too much", "always", "paid it")] == [
        "approve", "reject", {"type": "reject", "message": "too much"}, "always", "paid it",
    ]  # fmt: skip
