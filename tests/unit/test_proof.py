"""Do a run's calls show that its work is done?"""

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.conversation.announcements import NamedFiles
from openmanus_graph.conversation.proof import emptied_files, lack_of_proof

FIX = "python test_leap.py fails. Fix the function in leap.py so that the test passes."
MADE = ("python_execute", "open('leap.py', 'w').write(code)", "(no output)", True)


def history(task: str, *made: tuple[str, str, str, bool]) -> list[AnyMessage]:
    messages: list[AnyMessage] = [HumanMessage(task)]
    for n, (name, code, said, ok) in enumerate(made):
        call = {"name": name, "args": {"code": code}, "id": f"c{n}"}
        result = ToolMessage(said, name=name, tool_call_id=f"c{n}")
        result.status = "success" if ok else "error"
        messages += [AIMessage("", tool_calls=[call]), result]
    return messages


def lack(answer: str, task: str, *made: tuple[str, str, str, bool], delivered: bool = True) -> str:
    return lack_of_proof(answer, task, history(task, *made), delivered=delivered)


@pytest.mark.parametrize(
    ("run", "proved"),
    [
        ([("bash", "python test_leap.py", "ok", True)], True),
        ([("bash", "python3 -m pytest", "1 passed", True)], True),
        ([("bash", "npm run test", "ok", True)], True),
        ([("python_execute", "import test_leap", "", True)], True),
        ([("python_execute", "import sys\nfrom test_leap import *", "", True)], True),
        ([("bash", "cd a\npython test_leap.py", "", True)], True),
        ([("bash", "chmod +x *; ./test_leap.py", "", True)], True),
        ([("python_execute", "subprocess.run(['python', 'test_leap.py'])", "", True)], True),
        ([("python_execute", "x = 'import leap'; open('test_leap.py')", "", True)], False),
        ([("bash", "ls; python leap.py; cat test_leap.py", "", True)], False),
        ([("bash", "cd /x && python test_leap.py", "ok", True)], True),
        ([("bash", "python test_leap.py", "AssertionError", False), MADE], False),
        (
            [
                ("bash", "python test_leap.py", "AssertionError", False),
                MADE,
                ("bash", "python test_leap.py", "ok", True),
            ],
            True,
        ),
        ([MADE], False),
        ([("bash", "cat test_leap.py", "assert leap(2000)", True)], False),
        ([("python_execute", "print(open('test_leap.py').read())", "assert", True)], False),
        ([("read_file", "test_leap.py", "assert leap(2000)", True)], False),
        ([("read_file", "pytest.ini", "[pytest]", True)], False),
        ([], False),
    ],
)
def test_a_test_that_has_to_pass_was_run_with_success(
    run: list[tuple[str, str, str, bool]], proved: bool
) -> None:
    said = "" if proved else "test_leap.py was not run, or it failed"
    assert lack("It is fixed.", FIX, *run) == said


@pytest.mark.parametrize(
    "task",
    [
        "python test_leap.py fails. Why?",
        "How do I fix test_leap.py so that it passes?",
        "Fix the typo in test_leap.py.",
        "Fix leap.py so that it passes.",
        "What does test_leap.py test?",
    ],
)
def test_other_tasks_want_no_test_to_pass(task: str) -> None:
    assert lack("It is as you say.", task, MADE) == ""


@pytest.mark.parametrize(
    ("task", "answer", "whole"),
    [
        ("How many errors are in a.log, and which module has the most?", "There are 25.", False),
        ("How many errors are in a.log, and which module has the most?", "25 errors, auth.", True),
        ("What is 3 times 4, and what is the capital of Poland?", "It is Warsaw.", False),
        ("What is 3 times 4, and what is the capital of Poland?", "12 and Warsaw", True),
        ("Please look. Who wrote it and in which year?", "Ada, 1843", True),
        ("How many files are there?", "5", True),
        ("Which is larger, 17 or 23, and what is their sum?", "23; 40", True),
        ("Find the file in which it stands, and what it says.", "a.txt", True),
        ("How many files are there, and sort them.", "5", True),
    ],
)
def test_of_two_questions_both_are_answered(task: str, answer: str, whole: bool) -> None:
    assert lack(answer, task) == ("" if whole else "a part of the question is not answered")


def test_calls_that_repeat_others_prove_nothing() -> None:
    one, other = ("bash", "ls", "a", True), ("bash", "pwd", "/b", True)
    said = "the last calls (bash) only repeated earlier ones"
    for made in [(one, one), (one, other, one, other), (one, one, one)]:
        assert lack("So.", "Look.", *made, delivered=False) == said
        assert lack("So.", "Look.", *made) == "", "the files are there"
    for made in [(one,), (one, other), (one, other, one), (one, one, other)]:
        assert lack("So.", "Look.", *made, delivered=False) == ""
    changed = ("bash", "ls", "a b", True)
    assert lack("So.", "Look.", one, other, one, changed, delivered=False) == ""


def test_a_call_that_failed_last_proves_nothing() -> None:
    failed = ("bash", "ls", "no", False)
    assert lack("So.", "Look.", failed) == "the last call (bash) failed"
    assert lack("So.", "Look.", failed, ("bash", "pwd", "/b", True)) == ""


@pytest.mark.parametrize(
    ("answer", "proved"),
    [
        ("The total is 24 units.", True),
        ("The total is 2 units of 240.", False),
        ("The total is 24 units, 31 with the rest.", False),
        ("The total is right.", False),
    ],
)
def test_what_a_repeated_program_printed_is_an_answer(answer: str, proved: bool) -> None:
    run = [("python_execute", "print(total)", "Total: 24 of 99.", True)] * 2
    task = "How many units were sold?"
    assert (lack(answer, task, *run, delivered=False) == "") is proved
    looked = [("read_file", "sales.csv", "Total: 24", True)] * 2
    assert lack(answer, task, *looked, delivered=False)


def test_who_asks_for_an_error_gets_it() -> None:
    fails = ("bash", "make", "no rule to make target", False)
    assert not lack("There is no rule.", "Run make and tell me the error.", fails)
    assert lack("It is fixed.", "Fix the error that make shows.", fails)


def test_one_figure_may_answer_two_questions() -> None:
    task = "How many rows are in a.csv and how many are in b.csv?"
    ran = ("bash", "wc -l *", "5 a.csv\n5 b.csv", True)
    assert not lack("There are 5 in a.csv and 5 in b.csv.", task, ran)
    assert lack("There are 5 in a.csv.", task, ran)


COUNT = "How many orders of orders.csv were made in March?"
WRONG = ("python_execute", "print(sum(x == '2024-03' for x in dates))", "0", True)
LOOK = ("bash", "head orders.csv", "order,date\n1,2024-03-07", True)


@pytest.mark.parametrize(
    "nothing",
    ["0", "0\n", "0.0", "[]", "{}", "set()", "None", "nan", "Empty DataFrame\nColumns: [a]"],
)
def test_a_program_that_finds_nothing_is_believed_when_a_second_one_does_not_either(
    nothing: str,
) -> None:
    first = ("python_execute", "print(one())", nothing, True)
    second = ("bash", "grep -c 2024-03 orders.csv", nothing, True)
    assert "found nothing" in lack("There are none.", COUNT, first)
    assert "found nothing" in lack("There are none.", COUNT, LOOK, first)
    assert "found nothing" in lack("There are none.", COUNT, first, LOOK, first)
    assert lack("There are none.", COUNT, first, second) == ""
    assert lack("There is one.", COUNT, first, LOOK) == ""


def test_nothing_is_a_result_where_something_was_to_be_changed_or_no_file_is_asked_about() -> None:
    assert lack("They are gone.", "Delete all .tmp files.", WRONG) == ""
    assert lack("It is 0.", "What is 4 minus 4?", WRONG) == ""


LISTING = ("read_file", "data", "data/\n  a.txt  900 bytes\n  b.txt  2.0 KB\n  c\n  d", True)


@pytest.mark.parametrize(
    ("task", "run", "compared"),
    [
        ("Which file in the folder data is the largest?", [LISTING], False),
        ("Who is the oldest in people.csv?", [LISTING], False),
        ("Which item of stock.csv has the fewest units?", [LISTING], False),
        ("Welche Datei im Ordner data ist die größte?", [LISTING], False),
        ("Which file in the folder data is the largest?",
         [LISTING, ("bash", "ls -S data", "b.txt", True)], True),
        ("Which file in the folder data is the largest?",
         [LISTING, ("bash", "ls -Q data", "unknown option", False), LISTING], False),
        ("Which of a.txt and b.txt is the largest?", [("read_file", "a.txt", "9\n8", True)], True),
        ("Which file in the folder data is the largest?",
         [("read_file", "data/a.txt", "[350 bytes, 1 lines]\nxx", True)], False),
        ("Who is the oldest in people.csv?",
         [("search_tools", "oldest people", "No tool matches.", True)], False),
        ("Who is the oldest in people.csv?", [("oldest", "people.csv", "b.txt", True)], True),
        ("What does the folder data hold, at most two levels deep?", [LISTING], True),
        ("What does the folder data hold?", [LISTING], True),
    ],
)  # fmt: skip
def test_much_is_compared_by_a_program(
    task: str, run: list[tuple[str, str, str, bool]], compared: bool
) -> None:
    assert ("compared" not in lack("It is b.txt.", task, *run)) is compared


ROWS = "order,date\n" + "\n".join(f"{n},2024-{n % 12 + 1:02}-11" for n in range(30))
COUNTED = ("bash", "grep -c 2024-03 orders.csv", "3", True)


@pytest.mark.parametrize(
    ("run", "answer", "counted"),
    [
        ([("python_execute", "print(open('orders.csv').read(), 0)", ROWS, True)], "11", False),
        ([("python_execute", "print(rows, count)", f"{ROWS}\n11", True)], "11", True),
        ([("read_file", "orders.csv", f"[99 bytes, 31 lines]\n{ROWS}", True)], "12 orders", False),
        ([("read_file", "orders.csv", f"[99 bytes, 31 lines]\n{ROWS}", True)], "31 lines", True),
        ([("read_file", "orders.csv", ROWS, True), COUNTED], "There are 3.", True),
        ([("read_file", "orders.csv", ROWS, True), COUNTED], "There are 3 (in 11 rows).", True),
        ([("read_file", "orders.csv", ROWS, True)], "None was made.", True),
        ([("read_file", "orders.csv", ROWS, True)], "There are 495.", True),  # others judge that
        ([("count_orders", "orders.csv", ROWS, True)], "12 orders", True),
    ],
)
def test_a_number_that_stands_only_in_data_counts_nothing(
    run: list[tuple[str, str, str, bool]], answer: str, counted: bool
) -> None:
    assert ("counted" not in lack(answer, COUNT, *run)) is counted
    assert lack(answer, "Which orders of orders.csv were made in March?", *run) == ""


def test_a_program_that_prints_nothing_compares_nothing() -> None:
    task, silent = (
        "Who has spent the most in orders.csv?",
        ("bash", "sed -i x f", "(no output)", True),
    )
    broken = ("python_execute", "print(", "SyntaxError", False)
    assert "compared" in lack("Chen, 150.", task, broken, silent)
    assert lack("Chen, 150.", task, broken, ("bash", "sort orders.csv", "Chen 150", True)) == ""


@pytest.mark.parametrize(
    ("answer", "printed", "named"),
    [
        ("data/alpha.txt is the largest file.", "total 16K", False),
        ("data/alpha.txt is the largest file.", "alpha.txt\ngamma.txt", True),
        ("The largest file has 2,000 bytes.", "2000", True),
        ("The largest file has 2,000 bytes.", "350", False),
        ("It is the largest.", "350", True),  # others judge that
    ],
)
def test_what_compared_has_named_the_answer(answer: str, printed: str, named: bool) -> None:
    task = "Which file in the folder data is the largest?"
    read = ("read_file", "data/alpha.txt", "[350 bytes, 1 lines]\nx", True)
    reason = lack(answer, task, read, ("bash", "ls data", printed, True))
    assert ("names" not in reason) is named


@pytest.mark.parametrize(
    ("task", "kept"),
    [
        ("What is the longest word in story.txt?", False),
        ("Fix the typo in story.txt.", False),
        ("Write the number of words into story.txt.", True),
        ("Remove all empty lines from story.txt.", True),
        ("What is in story.txt? Save a summary as story.txt.", True),
    ],
)
def test_a_file_is_not_lost_by_the_way(task: str, kept: bool) -> None:
    files = NamedFiles(given=["story.txt"], shrunk=["story.txt"])
    assert emptied_files(task, files) == ([] if kept else ["story.txt"])
