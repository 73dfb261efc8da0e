"""Answers are told from what is none, by what happened before them."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from openmanus_graph.conversation.announcements import NamedFiles, folders_to_make
from openmanus_graph.conversation.replies import AnswerRules, ReplyReading, read_reply
from tests.support.answers import RIGHT, WRONG, Case


def read(case: Case, **rules: Any) -> ReplyReading:
    """Read an answer as the run does, after the calls before it."""
    content: Any = case.task
    if case.attached:
        content = [{"type": "text", "text": one} for one in (case.task, case.attached)]
    messages: list[AnyMessage] = [HumanMessage(content, id="h")]
    results = [
        *((one, "success") for one in case.results),
        *((one, "error") for one in case.failed),
    ]
    for number, (text, status) in enumerate(results):
        call = tool_call(name="bash", args={"command": "run"}, id=f"c{number}")
        messages.append(AIMessage("", tool_calls=[call]))
        messages.append(ToolMessage(text, name="bash", tool_call_id=f"c{number}", status=status))
    files = NamedFiles(case.missing, delivered=case.delivered, given=case.given)
    rules.setdefault("check", "mark")
    return read_reply([*messages, AIMessage(case.answer)], None, AnswerRules(files, **rules))


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: f"{case.task[:30]}: {case.answer[:40]}")
def test_a_right_answer_is_neither_refused_nor_marked(case: Case) -> None:
    reading = read(case)
    assert (reading.kind, reading.what) == ("answer", "")
    assert reading.claims["not_found"] == 0


def test_there_are_many_right_answers() -> None:
    assert len(RIGHT) >= 100
    assert len(WRONG) >= 60


def test_nearly_all_false_answers_are_refused() -> None:
    accepted = [case.answer for case in WRONG if read(case).kind == "answer"]
    assert len(accepted) <= 0.1 * len(WRONG), accepted


@pytest.mark.parametrize(
    ("task", "made"),
    [
        (
            "Make a folder garden with the folders a, b and c in it.",
            "garden garden/a garden/b garden/c",
        ),
        ("Create a directory called src/utils and put a.py into it.", "src/utils"),
        ("Please create the folder 'my-data' and move all csv files there.", "my-data"),
        ("Create three folders: red, green, and blue.", "red green blue"),
        ("Make a new folder backup/ and copy notes.txt into it.", "backup"),
        ("First create folders p and q. Then look at folder r.", "p q"),
        ("Erstelle einen Ordner namens daten und darin a.txt.", "daten"),
        ("Create a folder `/srv/data`.", ""),
        ("Create a directory listing and save it as l.txt.", ""),
        ("Make a folder structure for a Python project.", ""),
        ("Create folders for each month.", ""),
        ("Make a chart of the files in the folder data.", ""),
        ("Make a copy of the folder data and call it data2.", ""),
        ("Create a file a.txt in the folder docs.", ""),
        ("Add a folder column to the table.", ""),
        ("Make the folder name configurable in config.json.", ""),
        ("Sort the files into folders by extension.", ""),
        ("How do I create a folder named x?", ""),
    ],
)
def test_folders_to_make_are_those_that_a_task_names(task: str, made: str) -> None:
    assert folders_to_make(task) == made.split()
