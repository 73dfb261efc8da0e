"""What a plan's `done_when` is taken for, and what a judge is shown and may change."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from openmanus_graph.conversation.history import steering_message
from openmanus_graph.planning.checks import read_check, read_judgement, removal_in
from openmanus_graph.planning.drafting import EVIDENCE_CHARS, run_evidence
from openmanus_graph.planning.executor_run import StepOutcome
from openmanus_graph.prompts import render
from openmanus_graph.state.manus import no_usage


@pytest.mark.parametrize(
    ("written", "kind", "wanted"),
    [
        ("file: out/report.md", "file", "out/report.md"),
        ("File: `a b.txt`", "file", "a b.txt"),
        ("report.md", "file", "report.md"),
        ("`charts/sales.png`", "file", "charts/sales.png"),
        ("The file report.md exists.", "file", "report.md"),
        ("out/report.md must exist", "file", "out/report.md"),
        ("command: pytest -q", "command", "pytest -q"),
        ("Command: `pytest -q`", "command", "pytest -q"),
        ("`pytest -q`", "command", "pytest -q"),
        ("$ pytest -q", "command", "pytest -q"),
        ("shell: make check", "command", "make check"),
        ("test -s log.txt", "command", "test -s log.txt"),
        ("[ -f a.txt ]", "command", "[ -f a.txt ]"),
        ("grep -q total out.txt && echo ok", "command", "grep -q total out.txt && echo ok"),
        ("The report names all three sources.", "question", "The report names all three sources."),
        ("the tests pass", "question", "the tests pass"),
        ("Is report.md complete?", "question", "Is report.md complete?"),
        ("done.", "question", "done."),
        ("", "question", ""),
    ],
)
def test_a_check_is_taken_for_what_it_is(written: str, kind: str, wanted: str) -> None:
    assert read_check(written) == (kind, wanted)


@pytest.mark.parametrize(
    ("command", "removal"),
    [
        ("rm -rf .; test 1 -eq 1", "rm -rf ."),
        ("test -s a && bash -c 'rm b'", "rm b"),
        ("rm -rf /tmp/../home", "rm -rf /tmp/../home"),
        ("truncate -s 0 a.csv", "truncate -s 0 a.csv"),
        ("diff a b > /tmp/x; rm -f /tmp/x", None),
        ("sort a >$TMPDIR/x; rm $TMPDIR/x", None),
        ("grep -q 'rm -rf .' run.sh", None),
    ],
)
def test_a_command_that_removes_files_is_no_check(command: str, removal: str | None) -> None:
    assert removal_in(command) == removal


def ruled(**args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[tool_call(name="judgement", args=args, id="j")])


@pytest.mark.parametrize(
    ("done_when", "reply", "corrected"),
    [
        ("command: test 1 -eq 2", {"corrected_check": "command: `grep x y`"}, "command: grep x y"),
        ("file: a.csv", {"corrected_check": "file: out/a.csv"}, "file: out/a.csv"),
        ("a.csv", {"corrected_check": "$ test -s b.csv"}, "command: test -s b.csv"),
        ("command: x y", {"corrected_check": "file: out/a.csv"}, None),
        ("command: x y", {"corrected_check": "Is it good?"}, None),
        ("command: x y", {"corrected_check": "command:"}, None),
        ("command: x y", {"corrected_check": "`x y`"}, None),
        ("command: x y", {"corrected_check": ""}, None),
        ("command: x y", {"corrected_check": 7}, None),
        ("command: x y", {"corrected_check": "command: z", "check_is_wrong": "true"}, None),
        ("command: x y", {"corrected_check": "command: z", "check_is_wrong": False}, None),
    ],
)
def test_a_judge_corrects_by_a_check_that_runs_or_not_at_all(
    done_when: str, reply: dict[str, Any], corrected: str | None
) -> None:
    judged = ruled(**{"check_is_wrong": True, "reason": "because"} | reply)
    found, reason = read_judgement(judged, done_when)
    assert found == corrected
    assert "because" in reason


@pytest.mark.parametrize(
    "reply", [AIMessage(""), AIMessage("It is wrong."), AIMessage("", tool_calls=[
        tool_call(name="verdict", args={"check_is_wrong": True}, id="v")])],
)  # fmt: skip
def test_a_judge_that_gives_no_judgement_corrects_nothing(reply: AIMessage) -> None:
    assert read_judgement(reply, "file: a") == (None, "It gave no judgement.")


def outcome_of(messages: list[Any], *not_found: str) -> StepOutcome:
    sources: list[Any] = [{"text": one, "kind": "not_found", "file": ""} for one in not_found]
    return StepOutcome("succeeded", "", no_usage(), messages=messages, sources=sources)


def test_the_judge_of_a_step_is_told_which_claims_nothing_has() -> None:
    evidence = run_evidence(outcome_of([AIMessage("4711 units")], "4711"))
    assert evidence == render("claims_not_found", claims="4711")


def test_the_evidence_of_a_run_is_bounded_and_marked() -> None:
    messages: list[Any] = [steering_message("i", "use euros")]
    for number in range(40):
        call = tool_call(name="bash", args={"command": f"say {number}"}, id=str(number))
        messages += [AIMessage("", tool_calls=[call]),
                     ToolMessage(f"n{number} " + "x" * 3000, tool_call_id=str(number),
                                 name="bash")]  # fmt: skip
    ask = tool_call(name="ask_human", args={"inquire": "Which year?"}, id="ask")
    messages += [AIMessage("", tool_calls=[ask]),
                 ToolMessage("2023", tool_call_id="ask", name="ask_human")]  # fmt: skip
    person, tools = run_evidence(outcome_of(messages)).split("\n\nWhat its tools said")
    assert "use euros\nAsked 'Which year?': 2023" in person
    assert "n39" in tools
    assert "say 39" in tools
    assert "n0 " not in tools
    assert len(tools) < EVIDENCE_CHARS + 200
    assert person.count("untrusted-") == tools.count("untrusted-") == 2
    assert run_evidence(outcome_of([AIMessage("done")])) == ""
