"""An answer is checked against what happened: asked about once, then marked, or the run fails."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.interfaces.service.run_view import final_event
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.tool_calls.declaration import manus_tool
from openmanus_graph.tools.closing import terminate
from tests.support.answers import SALES, show, write
from tests.support.graphs import Ran, calls, run_graph

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_blocking")]
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
TASK = "How many units were sold in sales.csv?"
MADE_UP = "In total 7,345 units were sold."
RIGHT = "In total 555 units were sold."
polled: list[int] = []


@manus_tool(effect="read_only")
def poll() -> str:
    """Look at a job."""
    polled.append(1)
    return f"{len(polled) // 3} of 9 parts"


@manus_tool(effect="workspace")
def sum_up(path: str) -> str:
    """Write the sum of the units, and say nothing of it."""
    Path("work", path).write_text("Sum: 7345")
    return "(no output)"


@manus_tool(effect="workspace")
def make_folder(path: str) -> str:
    """Make a folder."""
    Path("work", path).mkdir(parents=True)
    return "made"


def put_files() -> None:
    shutil.rmtree("work", ignore_errors=True)
    Path("work").mkdir(exist_ok=True)
    Path("work/sales.csv").write_text(SALES)


SHOW = calls(("show", {"path": "sales.csv"}))
FAILS = calls(("show", {"path": "sails.csv"}), prefix="f")


async def ask(*answers: Any, task: Any = TASK, model: Any = None, **context: Any) -> Ran:
    put_files()
    tools = [show, poll, write, sum_up, make_folder, terminate]
    graph = build_manus_graph(tools=tools, checkpointer=InMemorySaver())
    ran = await run_graph(graph, *answers, task=task, model=model, config=CONFIG, **context)
    ran.values["event"] = final_event(await graph.aget_state(CONFIG), cancelled=False)
    return ran


def ended(ran: Ran) -> tuple[str, str]:
    return ran.values["status"], ran.values["stop_reason"]


def notices(ran: Ran) -> str:
    return "\n".join(event["text"] for event in ran.events if event["type"] == "notice")


async def test_figures_that_occur_nowhere_are_asked_about_and_corrected() -> None:
    ran = await ask(SHOW, MADE_UP, RIGHT, answer_check="ask")
    assert (*ended(ran), ran.values["answer"]) == ("finished", "answer", RIGHT)
    assert "occur neither in the task nor in any result: 7,345" in ran.model.requests[2][-1].text
    assert ran.values["event"]["claims"] == {"found": 1, "not_found": 0, "checked": 1}


async def test_figures_that_stay_are_delivered_with_a_mark() -> None:
    ran = await ask(SHOW, MADE_UP)
    assert (*ended(ran), ran.values["answer"]) == ("finished", "answer", MADE_UP)
    assert ran.values["event"]["claims"] == {"found": 0, "not_found": 1, "checked": 1}
    assert "1 of 1 figures in it" in notices(ran)
    assert len(ran.model.requests) == 2


@pytest.mark.parametrize(
    ("check", "requests", "status"),
    [
        ("off", 2, "finished"),
        ("mark", 2, "finished"),
        ("ask", 3, "finished"),
        ("fail", 3, "failed"),
    ],
)
async def test_the_setting_says_what_happens_to_them(
    check: Any, requests: int, status: str
) -> None:
    ran = await ask(SHOW, *[MADE_UP] * 9, answer_check=check)
    assert (len(ran.model.requests), ran.values["status"]) == (requests, status)
    assert (ran.values["event"]["claims"]["not_found"] == 1) == (check in ("mark", "ask"))
    assert ("7,345" in ran.values["answer"]) is True


async def test_what_ends_the_run_by_a_tool_is_checked_as_well() -> None:
    def end(prefix: str) -> AIMessage:
        given = {"status": "success", "answer": MADE_UP}
        return calls(("terminate", given), prefix=prefix)

    ran = await ask(SHOW, end("a"), end("b"), answer_check="ask")
    assert (*ended(ran), ran.values["answer"]) == ("finished", "terminate", MADE_UP)
    assert ran.values["event"]["claims"]["not_found"] == 1
    assert "7,345" in ran.model.requests[2][-1].text
    ran = await ask(SHOW, end("a"), end("b"), answer_check="fail")
    assert ended(ran) == ("failed", "error")
    ran = await ask(SHOW, calls(("terminate", {"status": "success", "answer": RIGHT}), prefix="r"))
    assert (*ended(ran), ran.values["answer"]) == ("finished", "terminate", RIGHT)


async def test_an_object_that_only_wraps_the_answer_is_taken_off() -> None:
    ran = await ask(SHOW, f'{{{{"response": "{RIGHT}"}}}}')
    assert (*ended(ran), ran.values["answer"]) == ("finished", "answer", RIGHT)
    asked = '{"units": 555}'
    ran = await ask(SHOW, asked, task=f"{TASK} Reply as JSON.")
    assert (*ended(ran), ran.values["answer"]) == ("finished", "answer", asked)


@pytest.mark.parametrize("said", ['{{"response": "Done."}}', TASK, f"Task: {TASK}"])
async def test_an_empty_object_and_an_echo_are_asked_about_and_marked(said: str) -> None:
    ran = await ask(SHOW, said, RIGHT)
    assert (*ended(ran), ran.values["answer"]) == ("finished", "answer", RIGHT)
    assert "does not answer the task" in ran.model.requests[2][-1].text
    ran = await ask(SHOW, said, said)
    assert (ran.values["status"], ran.values["claims"]["not_found"]) == ("finished", 1)
    assert ended(await ask(SHOW, said, said, answer_check="fail")) == ("failed", "error")


@pytest.mark.parametrize("said", ["I'm ready to work with the tool interface.", "Answer:", "Done."])
@pytest.mark.parametrize("check", ["off", "mark"])
async def test_talk_is_never_an_answer(said: str, check: Any) -> None:
    ran = await ask(SHOW, said, RIGHT, answer_check=check)
    assert (*ended(ran), ran.values["answer"]) == ("finished", "answer", RIGHT)
    assert ended(await ask(SHOW, said, said, answer_check=check)) == ("failed", "error")


async def test_our_own_words_are_no_answer() -> None:
    announced = "Now I will read the file."

    def echo(messages: Any) -> AIMessage:
        return AIMessage(messages[-1].text)

    ran = await ask(SHOW, announced, echo, answer_check="fail")
    assert ended(ran) == ("failed", "error")


@pytest.mark.parametrize("said", ["555", "I cannot find the file.", "It has 12 rows.", RIGHT])
@pytest.mark.parametrize("check", ["off", "mark"])
async def test_of_a_file_that_no_call_has_read_nothing_is_believed(said: str, check: Any) -> None:
    ran = await ask(FAILS, said, said, answer_check=check)
    assert ended(ran) == ("failed", "error")
    assert "sales.csv" in ran.values["answer"]
    ran = await ask(FAILS, said, SHOW, RIGHT, answer_check=check)
    assert (*ended(ran), ran.values["answer"]) == ("finished", "answer", RIGHT)


async def test_what_the_request_shows_need_not_be_read() -> None:
    parts: Any = [{"type": "text", "text": one} for one in (TASK, SALES)]
    pictured = HumanMessage(TASK, additional_kwargs={"images": ["sales.png"]})
    for message in (HumanMessage(parts), pictured, HumanMessage(f"{TASK}\n```\n{SALES}```")):
        ran = await ask(RIGHT, task={"messages": [message]})
        assert ended(ran) == ("finished", "answer")


async def test_what_was_read_in_the_run_before_counts() -> None:
    put_files()
    graph = build_manus_graph(tools=[show], checkpointer=InMemorySaver())
    model = ScriptedChatModel([SHOW, RIGHT, "West of sales.csv sold 310."])
    await run_graph(graph, model=model, task=TASK, config=CONFIG)
    ran = await run_graph(graph, model=model, task="And west of sales.csv?", config=CONFIG)
    assert ended(ran) == ("finished", "answer")
    assert ran.values["claims"]["found"] == 2


WANTED = "Write the number of units of sales.csv to total.txt."
CLAIMED = "I wrote 555 to total.txt."


@pytest.mark.parametrize("check", ["off", "mark"])
async def test_a_file_that_is_missing_is_asked_for_and_fails_the_run(check: Any) -> None:
    written = calls(("write", {"path": "total.txt", "text": "555"}), prefix="w")
    ran = await ask(SHOW, CLAIMED, written, CLAIMED, task=WANTED, answer_check=check)
    assert ended(ran) == ("finished", "answer")
    assert "unchanged: total.txt." in ran.model.requests[2][-1].text
    ran = await ask(SHOW, CLAIMED, CLAIMED, task=WANTED, answer_check=check)
    assert ended(ran) == ("failed", "error")
    assert "total.txt" in ran.values["answer"]


async def test_who_says_that_the_file_was_not_made_has_answered() -> None:
    said = "555 units. I could not write total.txt: the disk is full."
    assert ended(await ask(SHOW, said, task=WANTED)) == ("finished", "answer")


async def test_a_pasted_traceback_is_answered_without_being_asked_again() -> None:
    pasted = (
        'Why does it fail?\nTraceback (most recent call last):\n  File "/srv/app/main.py", line 3, '
        "in <module>\n    open('settings.toml')\nFileNotFoundError: [Errno 2] No such file or "
        "directory: 'settings.toml'"
    )
    ran = await ask("settings.toml is not in the folder that it is started from.", task=pasted)
    assert ended(ran) == ("finished", "answer")
    assert len(ran.model.requests) == 1


async def test_a_question_without_files_is_never_judged() -> None:
    for said in ("17 x 23 is 391.", "391"):
        ran = await ask(said, task="What is 17 x 23?")
        assert (*ended(ran), len(ran.model.requests)) == ("finished", "answer", 1)


SAME = "same as the last one"


async def test_a_result_that_was_shown_already_is_one_line() -> None:
    other = calls(("write", {"path": "sales.csv", "text": "gone"}), prefix="w")
    shows = [calls(("show", {"path": "sales.csv"}), prefix=one) for one in "abc"]
    ran = await ask(*shows[:2], other, shows[2], "It is 555.")
    first, second, _, third = ran.results()
    assert (first, third) == (SALES, "gone")
    assert SAME in second
    assert "\n" not in second
    assert ran.model.requests[2][-1].text == second


async def test_polling_runs_each_time_and_shows_what_has_changed() -> None:
    polled.clear()
    ran = await ask(*[calls(("poll", {}), prefix=f"p{n}.") for n in range(6)], "1 part is done.")
    assert len(polled) == 6
    whole = [result for result in ran.results() if SAME not in result]
    assert whole == ["0 of 9 parts", "1 of 9 parts", "2 of 9 parts"]
    assert ran.values["status"] == "finished"


class Tempered(ScriptedChatModel):
    """Has a temperature, as clients do."""

    temperature: float | None = None

    def __init__(self, *answers: Any, **fields: Any) -> None:
        super().__init__(answers, **fields)


def temperatures(ran: Ran) -> list[Any]:
    return [options.get("temperature") for options in ran.model.options]


@pytest.mark.parametrize("said", ["", "I'm ready to help.", MADE_UP, "Now I will read it."])
async def test_a_useless_reply_is_asked_for_again_once_at_a_higher_temperature(said: str) -> None:
    ran = await ask(model=Tempered(SHOW, said, RIGHT), answer_check="ask")
    assert temperatures(ran) == [None, None, 1.0]
    ran = await ask(model=Tempered(SHOW, said, RIGHT, temperature=0.2), answer_check="ask")
    assert temperatures(ran) == [None, None, None]
    ran = await ask(model=Tempered(SHOW, RIGHT))
    assert temperatures(ran) == [None, None]


async def test_a_repeated_reply_is_asked_for_again_once_at_a_higher_temperature() -> None:
    again = [calls(("write", {"path": "a", "text": "b"}), prefix=one) for one in "abcd"]
    ran = await ask(model=Tempered(*again, "It is done."), task="Keep a note.")
    assert temperatures(ran) == [None, None, 1.0, None, None]


CHANGE = "Set the price of north to 3 in sales.csv."
CHANGED = calls(("write", {"path": "sales.csv", "text": SALES.replace("2.50", "3")}), prefix="w")
TO_MAKE = "Make total.txt with the total of units of sales.csv."


async def test_a_file_that_was_to_be_changed_and_was_not_is_no_success() -> None:
    said = "The price of north is now 3."
    assert ended(await ask(SHOW, said, said, task=CHANGE, answer_check="fail")) == (
        "failed",
        "error",
    )
    ran = await ask(SHOW, said, CHANGED, said, task=CHANGE, answer_check="fail")
    assert ended(ran) == ("finished", "answer")
    assert "sales.csv" in ran.model.requests[2][-1].text
    honest = "sales.csv cannot be changed: it is read-only."
    assert ended(await ask(SHOW, honest, task=CHANGE, answer_check="fail")) == (
        "failed",
        "terminate",
    )
    assert ended(await ask(SHOW, said, task=CHANGE)) == ("finished", "answer"), (
        "a strong model is believed"
    )


@pytest.mark.parametrize("check", ["mark", "fail"])
async def test_an_empty_file_is_not_made(check: Any) -> None:
    empty = calls(("write", {"path": "total.txt", "text": ""}), prefix="w")
    full = calls(("write", {"path": "total.txt", "text": "555"}), prefix="x")
    said = "total.txt has the total."
    ran = await ask(SHOW, empty, said, said, task=TO_MAKE, answer_check=check)
    assert ended(ran) == ("failed", "error")
    ran = await ask(SHOW, empty, said, full, said, task=TO_MAKE, answer_check=check)
    assert ended(ran) == ("finished", "answer")
    ran = await ask(empty, "Done.", task="Make an empty file total.txt.", answer_check=check)
    assert ended(ran) == ("finished", "answer")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("I could not find the column.", False),
        ("The total cannot be determined.", False),
        ("Je ne peux pas lire le fichier.", False),
        ("The total is still failing.", False),
        ("The total was not defined. I need to import it before using it.", False),
        ("sales.csv needs to be fixed first.", False),
        ("无法读取该文件。", False),
        ("In total 555 units were sold, which is not a lot.", True),
        ("Not all regions sold 120 units.", True),
        ("In total 555 units were sold; the north still sells 120.", True),
    ],
)
async def test_what_says_that_it_is_not_done_is_no_success(said: str, kept: bool) -> None:
    ran = await ask(SHOW, said, answer_check="fail")
    assert ended(ran) == (("finished", "answer") if kept else ("failed", "terminate"))
    assert ran.values["answer"] == said
    by_tool = calls(("terminate", {"status": "success", "answer": said}), prefix="t")
    ran = await ask(SHOW, by_tool, answer_check="fail")
    assert ended(ran) == ("finished" if kept else "failed", "terminate")
    assert ended(await ask(SHOW, said)) == ("finished", "answer")


async def test_an_answer_after_a_failed_call_has_to_say_so() -> None:
    ran = await ask(SHOW, FAILS, RIGHT, RIGHT, answer_check="fail")
    assert ended(ran) == ("failed", "error")
    again = calls(("show", {"path": "sales.csv"}), prefix="g")
    ran = await ask(SHOW, FAILS, RIGHT, again, RIGHT, answer_check="fail")
    assert ended(ran) == ("finished", "answer")
    assert "(show) failed" in ran.model.requests[3][-1].text
    by_tool = [calls(("terminate", {"status": "success", "answer": RIGHT}), prefix=n) for n in "tu"]
    ran = await ask(SHOW, FAILS, *by_tool, answer_check="fail")
    assert ended(ran) == ("failed", "error"), "the call that ends the run proves nothing"
    assert ended(await ask(SHOW, FAILS, RIGHT)) == ("finished", "answer")


READ = ("show", {"path": "sales.csv"})


async def test_an_answer_after_a_repeated_call_proves_nothing() -> None:
    again, other = (calls((name, args), prefix=name) for name, args in (READ, ("poll", {})))
    ran = await ask(SHOW, again, RIGHT, RIGHT, answer_check="fail")
    assert ended(ran) == ("failed", "error")
    assert "only repeated" in ran.values["answer"]
    assert ended(await ask(SHOW, again, RIGHT)) == ("finished", "answer")
    for replies in [(SHOW, again, RIGHT, other, RIGHT), (SHOW, again, other, RIGHT)]:
        assert ended(await ask(*replies, answer_check="fail")) == ("finished", "answer")


async def test_a_call_that_gives_something_else_than_before_is_no_repeat() -> None:
    polls = [calls(("poll", {}), prefix=one) for one in "abcdef"]
    for count, outcome in [(2, "failed"), (3, "finished")]:
        polled.clear()
        said = f"{count // 3} of 9 parts are done."
        ran = await ask(*polls[:count], said, said, task="How far is the job?", answer_check="fail")
        assert ended(ran)[0] == outcome


@pytest.mark.parametrize(
    ("name", "written", "valid"),
    [
        ("people.json", '{"a": 1}\n{"a": 2}', False),
        ("people.json", '[{"a": 1}]', True),
        ("people.json", "[" * 9000, False),
        ("people.json", "\ufeff[1]", True),
        ("setup.toml", "a = ", False),
        ("setup.toml", "a = 1", True),
        ("tool.py", "def f(:", False),
        ("tool.py", "print(3)", True),
        ("people.jsonl", '{"a": 1}\n{"a": 2}', True),
        ("all.csv with the columns item, price and stock", "item,price\nx,3\nitem,stock", False),
        ("all.csv with the columns item, price and stock", "Item;Price;Stock\nx;3;4", True),
        ("all.csv", "item,price\nx,3", True),
        ("notes.txt", "{", True),
    ],
)
async def test_a_file_that_no_reader_of_its_kind_can_read_is_not_made(
    name: str, written: str, valid: bool
) -> None:
    task, name = f"Write what you find to {name}.", name.partition(" ")[0]
    said = f"{name} is written."
    made = calls(("write", {"path": name, "text": written}), prefix="w")
    ran = await ask(made, said, said, task=task, answer_check="fail")
    assert ended(ran) == (("finished", "answer") if valid else ("failed", "error"))
    assert ended(await ask(made, said, task=task)) == ("finished", "answer")


async def test_a_folder_that_was_asked_for_is_made() -> None:
    task = "Make a folder garden with the folders quartz and orange in it."
    made, said = calls(("make_folder", {"path": "garden/quartz"}), prefix="m"), "They are made."
    rest = calls(("make_folder", {"path": "garden/orange"}), prefix="n")
    ran = await ask(made, said, rest, said, task=task, answer_check="fail")
    assert ended(ran) == ("finished", "answer")
    assert "unchanged: garden/orange." in ran.model.requests[2][-1].text
    ran = await ask(made, said, said, task=task, answer_check="fail")
    assert ended(ran) == ("failed", "error")
    assert ended(await ask(made, said, task=task)) == ("finished", "answer"), "it may be elsewhere"


@pytest.mark.parametrize(
    ("task", "text", "kept"),
    [
        ("In sales.csv, set the price of north to 3.", "north,3\n", False),
        ("Add the line `west,4` to sales.csv. Leave the rest.", "west,4\n", False),
        ("In sales.csv, change north to NORTH.", SALES.upper(), True),
        ("Add the line `west,4` to sales.csv.", SALES + "west,4\n", True),
        ("Remove all lines but the first from sales.csv.", "region\n", True),
        ("Replace what is in sales.csv by one line.", "region\n", True),
    ],
)
async def test_a_change_leaves_most_of_a_file(task: str, text: str, kept: bool) -> None:
    changed = calls(("write", {"path": "sales.csv", "text": text}), prefix="w")
    said = "sales.csv is changed."
    ran = await ask(SHOW, changed, said, said, task=task, answer_check="fail")
    assert (ended(ran) == ("finished", "answer")) is kept
    assert ended(await ask(SHOW, changed, said, task=task)) == ("finished", "answer")


async def test_figures_of_a_file_that_the_run_made_are_known() -> None:
    made = calls(("sum_up", {"path": "total.txt"}))
    ran = await ask(made, MADE_UP, MADE_UP, task=TO_MAKE, answer_check="fail")
    assert ended(ran) == ("finished", "answer")
    ran = await ask(made, *["It is 61,874,213 units."] * 2, task=TO_MAKE, answer_check="fail")
    assert ended(ran) == ("failed", "error")


async def test_a_run_that_goes_in_circles_has_proved_nothing() -> None:
    look, other = calls(READ, prefix="g"), calls(READ, prefix="h")
    ran = await ask(SHOW, FAILS, look, RIGHT, answer_check="fail")
    assert ended(ran) == ("finished", "answer"), "it has only looked again"
    ran = await ask(SHOW, FAILS, look, other, RIGHT, RIGHT, answer_check="fail")
    assert ended(ran) == ("failed", "error")
    made = calls(("write", {"path": "total.txt", "text": "555"}), prefix="w")
    ran = await ask(SHOW, made, look, other, RIGHT, task=TO_MAKE, answer_check="fail")
    assert ended(ran) == ("finished", "answer"), "the file is there"


@pytest.mark.parametrize(
    ("task", "asked"),
    [
        ("Fix the price in sales.csv so that the test passes.", True),
        ("Fix the function in sales.csv so that the test passes.", True),
        ("How do I fix sales.csv?", False),
    ],
)
async def test_a_fix_that_was_asked_for_is_made(task: str, asked: bool) -> None:
    said = "It is right already."
    ran = await ask(SHOW, said, said, task=task, answer_check="fail")
    assert (ended(ran) == ("failed", "error")) is asked


async def test_the_task_repeated_is_an_answer_where_its_files_were_made() -> None:
    made = calls(("write", {"path": "total.txt", "text": "555"}), prefix="w")
    ran = await ask(SHOW, made, TO_MAKE, task=TO_MAKE, answer_check="fail")
    assert ended(ran) == ("finished", "answer")
    ran = await ask(SHOW, *[TASK] * 2, answer_check="fail")
    assert ended(ran) == ("failed", "error")
