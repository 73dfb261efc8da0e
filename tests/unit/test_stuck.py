"""The loop detector as a pure function."""

import random
from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call

from openmanus_graph.conversation.history import steering_message
from openmanus_graph.conversation.stuck import Level, detect_stuck, recent_steps

Seen = tuple[str, str, str]
"""Tool, argument, result."""


def conversation(steps: Sequence[Seen]) -> list[AnyMessage]:
    messages: list[AnyMessage] = [HumanMessage("task")]
    for number, (name, argument, result) in enumerate(steps):
        call = tool_call(name=name, args={"a": argument}, id=str(number))
        messages += [
            AIMessage(f"Step {number}", tool_calls=[call]),
            ToolMessage(result, tool_call_id=str(number)),
        ]
    return messages


SAME = ("bash", "ls", "a.txt")


@pytest.mark.parametrize(
    ("times", "level"),
    [(1, "ok"), (2, "ok"), (3, "hint"), (4, "hint"), (5, "change"), (7, "change"), (8, "stop")],
)
def test_the_same_call_escalates(times: int, level: Level) -> None:
    assert detect_stuck(conversation([SAME] * times)).level == level


@pytest.mark.parametrize("period", range(1, 7))
def test_cycles_of_up_to_six_steps_are_seen(period: int) -> None:
    cycle = [("bash", f"cat {n}", str(n)) for n in range(period)]
    verdict = detect_stuck(conversation(cycle * 8))
    assert (verdict.level, verdict.repeats) == ("stop", 8)
    assert detect_stuck(conversation(cycle * 2)).level == "ok"


def test_white_space_in_arguments_is_no_difference() -> None:
    steps = [("bash", "ls" + " " * number + "-l", "x") for number in range(1, 9)]
    assert detect_stuck(conversation(steps)).level == "stop"


def test_repeats_with_new_results_are_progress() -> None:
    assert detect_stuck(conversation([("poll", "job", f"{n} %") for n in range(20)])).level == "ok"


def test_paging_is_progress() -> None:
    steps = [("list", f"page {n}", f"rows {n}") for n in range(20)]
    assert detect_stuck(conversation(steps)).level == "ok"


def test_silent_commands_that_differ_are_progress() -> None:
    assert detect_stuck(conversation([("bash", f"mkdir {n}", "") for n in range(20)])).level == "ok"


def test_known_steps_in_no_order_end_as_well() -> None:
    known = [("bash", name, name) for name in "abc"]
    shuffled = [known[int(digit)] for digit in "012021102210012120201210120021"]
    assert detect_stuck(conversation(shuffled)).level == "stop"


def test_edits_between_failing_tests_are_progress() -> None:
    steps: list[Seen] = []
    for number in range(10):
        steps += [("edit", f"version {number}", "edited"), ("bash", "pytest", "1 failed")]
    assert detect_stuck(conversation(steps)).level == "ok"


def test_empty_replies_count() -> None:
    assert detect_stuck([HumanMessage("task"), *[AIMessage("")] * 8]).level == "stop"


def test_a_new_user_message_starts_afresh() -> None:
    messages = [*conversation([SAME] * 7), *conversation([SAME])]
    assert detect_stuck(messages).level == "ok"


def some_message(chance: random.Random) -> AnyMessage:
    kind = chance.randrange(12)
    if kind == 0:
        return HumanMessage("more")
    if kind == 1:
        return steering_message("i", "and this")
    if kind < 7:
        made = [
            tool_call(name="note", args={"n": chance.randrange(2)}, id=f"c{chance.randrange(4)}")
            for _ in range(chance.randrange(3))
        ]
        broken = invalid_tool_call(name="note", args="{", id="b", error="no JSON")
        return AIMessage("", tool_calls=made, invalid_tool_calls=[broken][chance.randrange(2) :])
    return ToolMessage(f"{chance.randrange(2)}", tool_call_id=f"c{chance.randrange(4)}")


def test_a_conversation_that_grows_and_changes_reads_as_a_new_one() -> None:
    chance = random.Random(3)
    messages: list[AnyMessage] = [HumanMessage("go")]
    for _ in range(600):
        change = chance.randrange(20)
        if change == 0:
            messages = messages[: max(1, len(messages) - 3)]
        elif change == 1:
            messages[chance.randrange(1, len(messages) + 1) - 1] = some_message(chance)
        else:
            messages = [*messages, some_message(chance)]
        unread = [message.model_copy() for message in messages]
        assert recent_steps(messages) == recent_steps(unread)
