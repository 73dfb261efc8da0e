"""A run's events as AG-UI's: what no scripted run of the server brings about."""

from collections.abc import Iterable
from typing import Any

from openmanus_graph.interfaces.server.ag_ui import NOT_RUN, EventTranslator
from openmanus_graph.interfaces.service.run_view import final_without_state

CALL = {"call_id": "c1", "tool": "bash", "args": {"command": "ls"}}


def ended(status: str, answer: str = "") -> dict[str, Any]:
    return {**final_without_state(answer), "status": status, "stop_reason": "answer"}


def translated(events: Iterable[dict[str, Any]], final: dict[str, Any]) -> list[str]:
    """Return what a client is told, each event in a few words."""
    translator, reported = EventTranslator("t", "r"), list[Any]()
    for number, event in enumerate(events):
        reported += translator.translate({"seq": number, **event})
    reported += translator.end(final, [])
    return [_in_words(event.model_dump(mode="json")) for event in reported]


def _in_words(event: dict[str, Any]) -> str:
    names = ("message_id", "tool_call_id", "step_name", "name", "delta", "content", "message")
    return " ".join([event["type"], *(str(event[name]) for name in names if event.get(name))])


def think_end(text: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "think_end", "text": text, "tool_calls": calls, **more}


def test_an_attempt_that_is_made_again_begins_a_message_of_its_own() -> None:
    start, token = {"type": "think_start"}, {"type": "token", "text": "He"}
    again = {"type": "token", "text": "Hello."}
    assert translated([start, token, start, again, think_end("Hello.")], ended("finished")) == [
        "TEXT_MESSAGE_START msg-1",
        "TEXT_MESSAGE_CONTENT msg-1 He",
        "TEXT_MESSAGE_END msg-1",
        "TEXT_MESSAGE_START msg-3",
        "TEXT_MESSAGE_CONTENT msg-3 Hello.",
        "TEXT_MESSAGE_END msg-3",
        "RUN_FINISHED",
    ]


def test_texts_of_steps_side_by_side_are_messages_of_their_own() -> None:
    events = [
        {"type": "step_start", "id": "a"},
        {"type": "token", "text": "A", "plan_step": "a"},
        {"type": "token", "text": "B", "plan_step": "b"},
        think_end("A", plan_step="a"),
        {"type": "step_start", "id": "a"},  # it is tried again
    ]
    assert translated(events, ended("cancelled")) == [
        "STEP_STARTED a",
        "CUSTOM step_start",
        "TEXT_MESSAGE_START msg-1",
        "TEXT_MESSAGE_CONTENT msg-1 A",
        "TEXT_MESSAGE_START msg-2",
        "TEXT_MESSAGE_CONTENT msg-2 B",
        "TEXT_MESSAGE_END msg-1",
        "CUSTOM step_start",
        "TEXT_MESSAGE_END msg-2",
        "STEP_FINISHED a",
        "RUN_FINISHED",
    ]


def test_a_step_is_named_with_those_around_it_and_ends_once() -> None:
    step = {"id": "b", "plan_step": "a"}
    events = [{"type": "step_start", **step}, *[{"type": "step_end", **step}] * 2]
    assert translated(events, ended("finished")) == [
        "STEP_STARTED a/b",
        "CUSTOM step_start",
        "STEP_FINISHED a/b",
        "CUSTOM step_end",
        "CUSTOM step_end",
        "RUN_FINISHED",
    ]


def test_a_call_without_a_result_is_not_left_for_the_client_to_run() -> None:
    call = ["TOOL_CALL_START c1", 'TOOL_CALL_ARGS c1 {"command": "ls"}', "TOOL_CALL_END c1"]
    assert translated([think_end("", CALL)], ended("stopped")) == [
        *call,
        f"TOOL_CALL_RESULT r-0 c1 {NOT_RUN}",
        "RUN_FINISHED",
    ]
    answered = {"type": "tool_end", "call_id": "c1", "output": "a.txt"}
    assert translated([think_end("", CALL), answered], ended("finished")) == [
        *call,
        "TOOL_CALL_RESULT msg-1 c1 a.txt",
        "RUN_FINISHED",
    ]


def test_an_answer_that_was_not_said_is_said_at_the_end() -> None:
    assert translated([think_end("Done.")], ended("finished", "Done."))[-1:] == ["RUN_FINISHED"]
    assert translated([think_end("Almost.")], ended("stopped", "What is done: all."))[3:] == [
        "TEXT_MESSAGE_START r-answer",
        "TEXT_MESSAGE_CONTENT r-answer What is done: all.",
        "TEXT_MESSAGE_END r-answer",
        "RUN_FINISHED",
    ]


def test_notices_and_plans_pass_as_they_are_and_a_failure_is_an_error() -> None:
    events = [{"type": "notice", "text": "Slow."}, {"type": "tool_start", "call_id": "c1"}]
    assert translated(events, ended("failed", "No key.")) == [
        "CUSTOM notice",
        "RUN_ERROR No key.",
    ]
