"""Answers are told from what is none, by what happened before them."""

import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from openmanus_graph.conversation.announcements import (
    NamedFiles,
    columns_of,
    folders_to_make,
)
from openmanus_graph.conversation.claims import claims_in
from openmanus_graph.conversation.passages import Passage
from openmanus_graph.conversation.proof import denies, unmade_files
from openmanus_graph.conversation.replies import AnswerRules, ReplyReading, read_reply
from openmanus_graph.conversation.sources import Evidence
from tests.support.answers import RIGHT, WRONG, Case

REGIONS = ("north", "south", "east", "west", "centre", "islands", "coast")


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
    rules.setdefault("check", "ask")
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


@pytest.mark.parametrize("rows", [5, 10, 15, 25, 40])
@pytest.mark.parametrize("columns", ["units", "units,price"])
def test_a_made_up_total_seldom_follows_from_a_table(rows: int, columns: str) -> None:
    draw, passed = random.Random(rows), list[int]()
    for _ in range(40):
        values = [[draw.randint(1, 99) for _ in columns.split(",")] for _ in range(rows)]
        total = sum(one[0] for one in values)
        table = f"region,{columns}\n" + "".join(
            f"{draw.choice(REGIONS)},{','.join(map(str, one))}\n" for one in values
        )
        wrong = draw.choice([one for one in range(total // 2, 2 * total) if one != total])
        answer = f"The total of units is {wrong}."
        case = Case("What is the total of units?", answer, results=(table,), given=("sales.csv",))
        passed += [wrong] if read(case).kind == "answer" else []
    assert len(passed) <= 12, f"{len(passed)} of 40 pass"


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


def after(task: str, result: str, answer: str, *earlier: str, **given: Any) -> ReplyReading:
    """Read the answer after a file was read, and after earlier replies that were asked about."""
    call = tool_call(name="read_file", args={"path": "a"}, id="c")
    read_file = ToolMessage(result, name="read_file", tool_call_id="c")
    messages: list[AnyMessage] = [HumanMessage(task), AIMessage("", tool_calls=[call]), read_file]
    messages += [AIMessage(one) for one in (*earlier, answer)]
    return read_reply(messages, None, AnswerRules(NamedFiles(given=["a"]), **given))


@pytest.mark.parametrize("check", ["mark", "fail"])
@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ('{"status": "completed"}', "completed"),
        ("status: ok\n", "OK."),
        ("I'll be back at noon.", "I'll be back at noon."),
        ("How can I help you today?\nx", "How can I help you today?"),
        ('{"message":"hello","status":"ok"}', '{"message": "hello", "status": "ok"}'),
    ],
)
def test_what_a_result_says_is_an_answer(result: str, answer: str, check: Any) -> None:
    task = "What does the file say?"
    for reading in (
        after(task, result, answer, check=check),
        after(task, result, f"Answer: {answer}", "Let me look.", check=check),
    ):
        assert (reading.kind, reading.answer or answer) == ("answer", answer)


@pytest.mark.parametrize("check", ["mark", "fail"])
@pytest.mark.parametrize(
    "before", ["", "sales.csv lists our sales. ", "Look at sales.csv.\n\n", "Quarter 2 counts; "]
)
@pytest.mark.parametrize("behind", ["", "\n\nFiles in the workspace: sales.csv", " Round to tens."])
def test_a_question_said_again_is_no_answer(check: Any, before: str, behind: str) -> None:
    question = "What is the total of the units in sales.csv?"
    reading = after(f"{before}{question}{behind}", "units\n410\n314", question, check=check)
    assert reading.kind == "echo"


@pytest.mark.parametrize("note", ["", "\n\nFiles in the workspace: notes.txt"])
def test_a_task_said_again_is_no_answer_whatever_came_with_it(note: str) -> None:
    task = "Find the largest of all the cities that notes.txt has"
    assert after(f"{task}{note}", "Bonn 3, Rome 9", task, check="fail").kind == "echo"
    assert (
        after(f"{task}{note}", "Bonn 3, Rome 9", "Rome is the largest.", check="fail").kind
        == "answer"
    )


def test_what_no_result_says_is_none() -> None:
    for answer in ("completed", "How can I help you today?", "I'll be back at noon."):
        assert after("What does the file say?", "blue " * 9, answer).kind != "answer"


@pytest.mark.parametrize(
    "answer", ["-5", ".gitignore", "/etc/hosts", "~/x", "**-5**", '"quoted"', "[1, 2]", "$3"]
)
def test_the_mark_before_an_answer_takes_nothing_of_it(answer: str) -> None:
    for mark in ("Answer: ", "**Answer:** ", "**Answer**: ", "Answer:\n"):
        reading = after("What is in the file?", "x", mark + answer, "Let me look.", check="off")
        assert reading.answer == answer


@pytest.mark.parametrize(
    ("stated", "claimed", "found"),
    [
        ("rail carried 127 million passengers", "127 million", True),
        ("117 million, then 127 million", "117 and 127 million", True),
        ("a budget of 1.2 billion", "1,200 million", True),
        ("12k stars", "12,000", True),
        ("3.4 Mio EUR", "3,400,000", True),
        ("127 passengers", "127 million", False),
        ("127 million passengers", "128 million", False),
    ],
)
def test_a_figure_is_found_with_its_scale(stated: str, claimed: str, found: bool) -> None:
    findings = Evidence([Passage(stated)]).check(claimed)
    missing = [one.claim.text for one in findings if one.kind == "not_found"]
    assert findings
    assert missing == ([] if found else [claimed])


def test_a_figure_of_any_length_is_read() -> None:
    for answer in ("1" + "0" * 5000, "7" * 5000, "1e999999"):
        assert after("What is in the file?", answer, answer).kind == "answer"


@pytest.mark.parametrize(
    ("task", "seen"),
    [
        ("How many files are in this folder?", True),
        ("List all the other files here.", True),
        ("Which file is the largest here?", True),
        ("Add up the figures of all files in this folder.", False),
        ("What do the files in this folder say?", False),
    ],
)
def test_a_listing_answers_what_it_shows(task: str, seen: bool) -> None:
    reported: Any = {"openmanus_environment": {"facts": {"listing": "a.txt\nb.txt"}, "heads": []}}
    messages: list[AnyMessage] = [
        HumanMessage(task, additional_kwargs=reported),
        AIMessage("There are 2: a.txt and b.txt."),
    ]
    reading = read_reply(messages, None, AnswerRules(NamedFiles(given=["."])))
    assert reading.kind == ("answer" if seen else "unread")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("The total is 24 units.", False),
        ("The total is 42 units.", False),
        ("The total is 12725 units.", False),
        ("The total is 129 units.", False),
        ("The total is 101 units.", False),
        ("The total is 171 units.", False),
        ("The file has 29 bytes, and the first units are 10.", True),
        ("On 29 November 2026 sales.csv has 2 rows.", True),
        ("I have at most 100 steps for sales.csv.", True),
    ],
)
def test_a_figure_does_not_follow_from_what_we_tell_of_the_run(answer: str, found: bool) -> None:
    facts = {
        "surroundings": "Workspace: /srv/42-12725/c-24 (tools start there). Begun on 2026-11-29. "
        "You have at most 100 steps.",
        "listing": "Files in the workspace, and how some of them begin:\n<untrusted-42a129e0>\n"
        "sales.csv  29 bytes, 2 rows; columns: region, units; the first: east, 10\n"
        "</untrusted-42a129e0>",
    }
    reported: Any = {"openmanus_environment": {"facts": facts, "heads": ["sales.csv"]}}
    task = "What is the total of units in sales.csv?"
    messages: list[AnyMessage] = [HumanMessage(task, additional_kwargs=reported), AIMessage(answer)]
    reading = read_reply(messages, None, AnswerRules(NamedFiles(given=["sales.csv"]), "ask"))
    assert reading.kind == ("answer" if found else "figures")


@pytest.mark.parametrize(
    ("task", "name", "made"),
    [
        ("Write an email to Bob saying I sent report.pdf.", "report.pdf", False),
        ("Write a .gitignore entry for secrets.yaml.", "secrets.yaml", False),
        ("Write a bash one-liner to create out.zip.", "out.zip", False),
        ("Give me a shell command to convert a.png to b.jpg.", "b.jpg", False),
        ("Write an email to Bob and save it as mail.txt.", "mail.txt", True),
        ("Write all e-mail addresses of letter.txt into emails.txt.", "emails.txt", True),
        ("Write a letter to x.txt.", "x.txt", True),
        ("Write report.md.", "report.md", True),
        ("Read data.csv, which is not sorted, and write sorted.csv.", "sorted.csv", True),
        ("Add up what is sold when it rains, and save it to total.txt.", "total.txt", True),
        ("Take the rows without a price and write them to rest.csv, please.", "rest.csv", True),
    ],
)
def test_a_file_that_a_text_only_mentions_need_not_be_made(
    task: str, name: str, made: bool
) -> None:
    assert (unmade_files("Here it is.", task, NamedFiles(missing=[name])) == [name]) is made


@pytest.mark.parametrize(
    "judge",
    [
        lambda: unmade_files("x", "write report " * 4000 + "of a.txt", NamedFiles(["a.txt"])),
        lambda: denies("file " + "ne " * 50_000, ["a.txt"]),
        lambda: list(claims_in("-\n" * 50_000)),
    ],
)
def test_long_texts_are_judged_without_walking_them_again_and_again(judge: Any) -> None:
    assert not judge(), "else it takes minutes"


@pytest.mark.parametrize(
    ("task", "columns"),
    [
        ("Put both into a.csv with the columns item, price and stock.", "item price stock"),
        ("Write a.csv with the columns city and temp, in degrees with one decimal.", "city temp"),
        ("Write a.csv with two columns: `first name` and 'age'.", "first name age"),
        ("b.csv has the columns x and y. Write a.csv with the column z.", "z"),
        ("a.csv is a table with columns. Sort it.", ""),
        ("Write a.csv. Each row has the columns that you find.", ""),
        ("Write a.csv with the columns in any order.", ""),
        ("Write b.csv with the columns x and y.", ""),
    ],
)
def test_columns_are_those_that_a_task_wants(task: str, columns: str) -> None:
    assert " ".join(columns_of("a.csv", task)) == columns


BODY = "app.py has one bug: `avg` divides by zero for an empty list."


@pytest.mark.parametrize(
    "end",
    [
        "Tell me which option you prefer and I'll implement it.",
        "Please confirm and I'll proceed.",
        "I can do that next; just ask.",
        "Sag Bescheid, dann ändere ich es.",
        "Confirma y procedo a corregirlo.",
        "确认后我就来修改。",
    ],
)
def test_an_offer_at_its_end_makes_an_answer_no_announcement(end: str) -> None:
    task = "Review app.py for bugs; don't change it."
    assert after(task, "def avg", f"{BODY} {end}").kind == "answer"


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("What do I have to do first according to a?", "First create a virtual environment."),
        ("Make a plan for refactoring a. Don't change it.", "First, I will split it. Then test."),
        ("What did Anna promise in a?", "She promised: I'll send the contract on Monday."),
        ("What is the status according to a?", "The migration is still in progress."),
        ("Review a.", f"{BODY} We should check for an empty list."),
    ],
)
def test_who_has_worked_and_says_that_it_is_the_answer_is_believed(task: str, answer: str) -> None:
    assert after(task, "blue", f"Answer: {answer}", answer).kind == "answer"
    nothing: list[AnyMessage] = [
        HumanMessage(task),
        AIMessage("I'll do it."),
        AIMessage("Answer: I'll read it now."),
    ]
    assert read_reply(nothing, None, AnswerRules(NamedFiles(given=["a"]))).kind != "answer"


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("What does app.py write to out.csv?", "out.csv"),
        ("Explain how app.py generates report.pdf.", "report.pdf"),
        ("Change app.py so that it writes to output.json.", "output.json"),
        ("Write backup.sh, which creates backup.zip.", "backup.zip"),
        ("Don't create report.pdf, just tell me the total.", "report.pdf"),
        ("If there are errors in app.log, write them to errors.txt.", "errors.txt"),
        ("Save the chart as chart.png or chart.svg.", "chart.png"),
        ("Erstelle keine bericht.md, sag mir nur die Summe.", "bericht.md"),
    ],
)
def test_a_file_that_is_spoken_of_need_not_be_made(task: str, name: str) -> None:
    assert not unmade_files("There is one.", task, NamedFiles(missing=[name]))


@pytest.mark.parametrize(
    "answer",
    ["I made no errors.txt.", "errors.txt was skipped.", "There was no need for errors.txt.",
     "Ich habe keine errors.txt angelegt.", "Aucun fichier errors.txt créé.",
     "未创建 errors.txt。"],
)  # fmt: skip
def test_an_answer_may_say_that_a_file_was_not_made(answer: str) -> None:
    task = "Write the errors of app.log to errors.txt."
    assert not unmade_files(answer, task, NamedFiles(missing=["errors.txt"]))


@pytest.mark.parametrize(
    ("task", "result", "seen"),
    [
        ("Does data.csv contain the word zebra?", "[exit code 1]", True),
        ("What does data.csv print?", 'File "/w/data.csv", line 3\nZeroDivisionError', True),
        ("What does data.csv print?", "cat: data.csv: No such file or directory", False),
        ("What does data.csv print?", "Cell, line 1\nNameError: name 'x' is not defined", False),
    ],
)
def test_a_program_that_fails_may_show_something(task: str, result: str, seen: bool) -> None:
    call = tool_call(name="bash", args={}, id="c")
    failed = ToolMessage(result, name="bash", tool_call_id="c", status="error")
    run: list[AnyMessage] = [HumanMessage(task), AIMessage("", tool_calls=[call]), failed]
    run += [AIMessage("No, it does not."), AIMessage("Answer: No, it does not.")]
    reading = read_reply(run, None, AnswerRules(NamedFiles(given=["data.csv"])))
    assert reading.kind == ("answer" if seen else "unread")
