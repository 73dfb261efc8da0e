"""How runs end: replies that are not an answer are questioned, and limits give a final summary."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.tools.closing import terminate
from tests.support.graphs import Ran, add, calls, run_graph, scripted
from tests.support.planning import PlanBrain, plan_call

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_blocking")]
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
ANNOUNCED = "Sure! I will first read all the invoices. Let me start by listing the files."
ADD = calls(("add", {"a": 1, "b": 1}))
CALL_AS_TEXT = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 1}}</tool_call>'


class Priced(ScriptedChatModel):
    """Calls itself a model whose price is known."""

    model_name: str = "gpt-4o"

    def __init__(self, *answers: Any, **fields: Any) -> None:
        super().__init__(list(answers), **fields)


@tool
def read_out() -> str:
    """Read a page."""
    return f"first\n{CALL_AS_TEXT}"


def adds(times: int) -> list[AIMessage]:
    return [calls(("add", {"a": number, "b": 1}), prefix=f"c{number}.") for number in range(times)]


async def manus(*answers: Any, **context: Any) -> Ran:
    graph = build_manus_graph(tools=[add, terminate], checkpointer=InMemorySaver())
    return await run_graph(graph, *answers, config=CONFIG, **context)


def ended(ran: Ran) -> tuple[str, str]:
    return ran.values["status"], ran.values["stop_reason"]


def suffix(ran: Ran, request: int = -1) -> str:
    return ran.model.requests[request][-1].text


def took_turns(request: list[BaseMessage]) -> bool:
    roles = ["tool" if one.type == "tool" else one.type for one in request]
    return all(a != b or a == "tool" for a, b in zip(roles, roles[1:], strict=False))


async def test_work_that_is_only_announced_is_asked_about_and_then_done() -> None:
    ran = await manus(ANNOUNCED, ADD, "The sum is 2.")
    assert ended(ran) == ("finished", "answer")
    assert ran.values["answer"] == "The sum is 2."
    assert "calls no tool" in suffix(ran, 1)
    assert took_turns(ran.model.requests[2])
    assert [m.type for m in ran.messages] == ["human", "ai", "ai", "tool", "ai"]
    assert ANNOUNCED in ran.model.requests[2][2].text


async def test_who_never_stops_announcing_fails() -> None:
    ran = await manus(ANNOUNCED, ANNOUNCED)
    assert ended(ran) == ("failed", "error")
    assert ANNOUNCED in ran.values["answer"]


async def test_it_is_asked_about_anew_after_work_was_done() -> None:
    ran = await manus(ANNOUNCED, ADD, "Now I will add more.", *adds(1), "The sums are 2 and 1.")
    assert ended(ran) == ("finished", "answer")


async def test_a_call_written_as_text_is_run_and_no_hint_follows() -> None:
    ran = await manus(f"I add them.\n{CALL_AS_TEXT}", "The sum is 2.")
    assert ran.results() == ["2"]
    assert ran.model.requests[1][-1].type == "tool"
    assert [event["tool_calls"][0]["tool"] for event in ran.events if event["type"] == "think_end"
            and event["tool_calls"]] == ["add"]  # fmt: skip
    assert ended(ran) == ("finished", "answer")
    assert CALL_AS_TEXT not in str(ran.model.requests[1])


async def test_a_call_written_as_text_is_validated() -> None:
    wrong = '<tool_call>{"name": "add", "arguments": {"a": "x"}}</tool_call>'
    broken = '<tool_call>{"name": "add", "arguments": {"a": 1,</tool_call>'
    ran = await manus(wrong, broken, "I could not.")
    assert ["was not run" in result for result in ran.results()] == [True, True]


async def test_a_call_that_an_answer_quotes_is_not_run() -> None:
    ran = await manus(f"Write it so:\n```\n{CALL_AS_TEXT}\n```")
    assert ended(ran) == ("finished", "answer")
    assert ran.results() == []


async def test_a_cut_reply_is_continued_and_its_pieces_are_the_answer() -> None:
    ran = await manus(cut("The sum of all of them is"), cut(" forty-"), "two.")
    assert ended(ran) == ("finished", "answer")
    assert ran.values["answer"] == "The sum of all of them is forty-two."
    assert "cut off" in suffix(ran, 1)
    assert ran.model.requests[2][-2].text == "The sum of all of them is forty-"


UNREAD = 'Action: add\nAction Input: {"a": 1, "b": 1}'


async def test_a_call_in_a_form_that_is_not_read_is_asked_about() -> None:
    ran = await manus(UNREAD, ADD, "The sum is 2.")
    assert ended(ran) == ("finished", "answer")
    assert "nothing was run" in suffix(ran, 1)
    assert ran.results() == ["2"]
    again = await manus(UNREAD, UNREAD)
    assert ended(again) == ("failed", "error")
    assert "parser of tool calls" in again.values["answer"]
    meant = await manus(UNREAD, f"Answer:\n{UNREAD}")
    assert (ended(meant), meant.values["answer"]) == (("finished", "answer"), UNREAD)


async def test_a_call_that_is_not_read_is_no_answer_of_a_bare_success() -> None:
    bare = calls(("terminate", {"status": "success"}))
    ran = await manus(UNREAD, bare, "The sum is 2.")
    assert ran.values["answer"] == "The sum is 2."


def cut(text: str, **metadata: Any) -> AIMessage:
    return AIMessage(text, response_metadata=metadata or {"finish_reason": "length"})


@pytest.mark.parametrize(
    "following",
    [
        " right: 4 of 4.",
        "of them are all right: 4 of 4.",
        "The invoices of them are all right: 4 of 4.",
    ],
)
async def test_what_follows_a_cut_text_may_repeat_some_of_it(following: str) -> None:
    ran = await manus(cut("The invoices of them are all"), following)
    assert ran.values["answer"] == "The invoices of them are all right: 4 of 4."


@pytest.mark.parametrize(
    "metadata",
    [
        {"finish_reason": "model_length"},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        {"stop_reason": "model_context_window_exceeded"},
    ],
)
async def test_every_provider_s_word_for_a_cut_is_known(metadata: dict[str, Any]) -> None:
    ran = await manus(cut("The sum is", **metadata), " 2.")
    assert ran.values["answer"] == "The sum is 2."


async def test_the_beginning_of_a_cut_answer_beside_terminate_is_not_lost() -> None:
    ending = calls(("terminate", {"status": "success"}), text=" all right: 4 of 4.")
    ran = await manus(cut("The invoices are"), ending)
    assert ended(ran) == ("finished", "terminate")
    assert ran.values["answer"] == "The invoices are all right: 4 of 4."


@tool
def write_report(text: str) -> str:
    """Write report.md."""
    Path("work").mkdir(exist_ok=True)
    Path("work/report.md").write_text(text)
    return "written"


REPORT = "Add 1 and 1, and write the sum to report.md"
GEORGIAN = "ახლა დავწერ ანგარიშს."
"""An announcement in a language of which no words are known."""
WRITTEN = calls(("write_report", {"text": "2"}), prefix="w")


async def reports(*answers: Any, task: str = REPORT) -> Ran:
    graph = build_manus_graph(tools=[add, write_report, terminate], checkpointer=InMemorySaver())
    return await run_graph(graph, *answers, task=task, config=CONFIG)


async def test_a_file_that_the_task_names_and_nobody_wrote_is_asked_about() -> None:
    ran = await reports(ADD, GEORGIAN, WRITTEN, "It is written.")
    assert (ended(ran), ran.values["answer"]) == (("finished", "answer"), "It is written.")
    assert "calls no tool" in suffix(ran, 2)


async def test_who_never_writes_the_file_that_the_task_names_fails_in_any_language() -> None:
    assert ended(await reports(ADD, GEORGIAN, GEORGIAN)) == ("failed", "error")


async def test_who_wrote_the_file_that_the_task_names_is_believed_when_asked() -> None:
    said = "report.md says 2. From there I will go on holiday."
    ran = await reports(ADD, WRITTEN, said, said)
    assert (ended(ran), ran.values["answer"]) == (("finished", "answer"), said)


async def test_who_says_what_came_of_a_file_that_is_not_there_has_answered() -> None:
    failed = calls(("write_report", {"txt": "2"}), prefix="w")
    for ran in (await reports(ADD, failed, "It could not be written."),
                await reports(ADD, "I was not allowed to write report.md.")):  # fmt: skip
        assert ended(ran) == ("finished", "answer")


async def test_a_remark_on_the_way_is_no_answer_of_a_bare_success() -> None:
    remark = calls(("add", {"a": 1, "b": 1}), text="Sum 1 of 40 is 2. On to the others.")
    bare = calls(("terminate", {"status": "success"}), prefix="t")
    ran = await reports(remark, bare, WRITTEN, "It is written: 2.")
    assert ran.values["answer"] == "It is written: 2."
    beside = calls(("terminate", {"status": "success"}), text=GEORGIAN)
    assert "without an answer" in suffix(await reports(beside, WRITTEN, "Written: 2."), 1)


@pytest.mark.parametrize(
    "marked",
    ["Answer:\nIt is blue.", "**Answer:** It is blue.", "It is done.\n\nAnswer: It is blue.",
     "## Answer\nIt is blue.", "答案：It is blue.", "Die Antwort:\nIt is blue."],
)  # fmt: skip
async def test_an_answer_that_was_asked_for_has_a_mark(marked: str) -> None:
    ran = await reports("It is blue.", marked, task="Which colour is in config.json?")
    assert (ended(ran), ran.values["answer"]) == (("finished", "answer"), "It is blue.")


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "add", "arguments": {"a": 1, "b": 1}}\n\nThis will add them.',
        '{"name": "sum_up", "arguments": {"a": 1}}',
        '```json\n{"a": 1, "b": 1}\n```',
        "<add>1, 1</add>",
        'Action: add\nAction Input: {"a": 1, "b": 1}\nObservation:',
    ],
)
async def test_every_other_way_to_write_a_call_is_asked_about(text: str) -> None:
    ran = await manus(text, ADD, "The sum is 2.")
    assert (ended(ran), ran.results()) == (("finished", "answer"), ["2"])
    assert "nothing was run" in suffix(ran, 1)


async def test_who_only_asks_whether_to_begin_is_asked_to_do_it() -> None:
    ran = await reports("Sure! Shall I start?", WRITTEN, "It is written: 2.")
    assert ran.values["answer"] == "It is written: 2."
    asked = await reports("Which of the two reports do you mean?", task="Read the report.")
    assert ended(asked) == ("finished", "answer")


@pytest.mark.parametrize(
    "said",
    [
        "The sum of them is 2. I'll finish here.",
        "이상으로 보고를 마치겠습니다. 합계는 2입니다.",
    ],
)
async def test_figures_and_closing_words_are_an_answer(said: str) -> None:
    ran = await manus(ADD, said)
    assert ended(ran) == ("finished", "answer")


async def test_a_mark_makes_no_answer_of_an_announcement() -> None:
    ran = await reports(ANNOUNCED, f"Answer:\n{ANNOUNCED}")
    assert ended(ran) == ("failed", "error")


async def test_a_bare_success_is_asked_for_its_answer_once() -> None:
    bare = calls(("terminate", {"status": "success"}))
    ran = await manus(bare, "The sum is 2.")
    assert ended(ran) == ("finished", "answer")
    assert "without an answer" in suffix(ran, 1)
    failed = await manus(*[calls(("terminate", {"status": "success"}), prefix=p) for p in "ab"])
    assert ended(failed) == ("failed", "error")


async def test_the_call_that_ends_the_run_may_hold_the_answer() -> None:
    given = {"status": "success", "answer": "The sum is 2."}
    ran = await manus(ADD, calls(("terminate", given), text="I end this.", prefix="t"))
    assert (*ended(ran), ran.values["answer"]) == ("finished", "terminate", "The sum is 2.")
    given = {"status": "failure", "answer": "There is nothing to add."}
    ran = await manus(ADD, calls(("terminate", given), prefix="t"))
    assert (*ended(ran), ran.values["answer"]) == (
        "failed",
        "terminate",
        "There is nothing to add.",
    )  # fmt: skip
    blank = calls(("terminate", {"status": "success", "answer": " "}), text="It is 2.", prefix="t")
    assert (await manus(ADD, blank)).values["answer"] == "It is 2."


async def test_the_answer_of_a_success_may_stand_beside_an_earlier_call() -> None:
    found = calls(("add", {"a": 1, "b": 1}), text="The sum is 2.")
    ran = await manus(found, calls(("terminate", {"status": "success"}), prefix="d"))
    assert ended(ran) == ("finished", "terminate")
    assert ran.values["answer"] == "The sum is 2."


async def test_a_step_of_a_plan_that_only_announces_has_failed() -> None:
    brain = PlanBrain([plan_call("one"), "No other way."], lambda step, messages: ANNOUNCED)
    graph = build_planning_graph(
        executors={"manus": build_manus_graph(tools=[add])}, checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(), config=CONFIG)
    assert ended(ran) == ("failed", "terminate")
    assert "announced work" in brain.requests("summary")[0][-1].text


async def test_a_step_s_own_text_says_what_it_is_to_make() -> None:
    brain = PlanBrain(
        [plan_call("write report.md"), "No other way."], lambda step, messages: GEORGIAN
    )
    graph = build_planning_graph(
        executors={"manus": build_manus_graph(tools=[add])}, checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(), config=CONFIG)
    assert ended(ran) == ("failed", "terminate")


async def test_a_call_as_text_is_no_answer_of_a_plan() -> None:
    independent: list[Any] = [{"text": text, "depends_on": []} for text in ("one", "two")]
    brain = PlanBrain([plan_call(*independent)], summary=CALL_AS_TEXT)
    graph = build_planning_graph(
        executors={"manus": build_manus_graph(tools=[add])}, checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(), config=CONFIG)
    assert "result of 0" in ran.values["answer"]
    assert "tool_call" not in ran.values["answer"]


async def test_near_its_limit_the_model_is_told_what_is_left() -> None:
    ran = await manus(*adds(4), "done", max_steps=5)
    reported = ["steps, this one included" in request[-1].text for request in ran.model.requests]
    assert reported == [False, False, True, True, True]
    assert "3 of 5 steps" in suffix(ran, 2)


async def test_at_90_percent_of_a_budget_the_model_is_told_what_is_left() -> None:
    ran = await manus(*adds(30), "28 are done.", max_total_tokens=4000)
    reported = ["of 4000 tokens" in request[-1].text for request in ran.model.requests]
    first = reported.index(True, 1)
    assert 0.8 <= first * 120 / 4000 <= 0.9
    assert all(reported[first:])


async def test_the_final_summary_has_the_tools_and_the_prefix_and_runs_nothing() -> None:
    closing = calls(("add", {"a": 5, "b": 5}), text="One sum is done.")
    ran = await manus(*adds(2), closing, max_steps=2)
    assert ended(ran) == ("stopped", "max_steps")
    assert ran.values["answer"] == "One sum is done."
    assert len(ran.results()) == 2
    assert ran.model.options[-1] == ran.model.options[0]
    before, last = ran.model.requests[-2:]
    prefix = [one.model_dump_json() for one in before[:-1]]
    assert [one.model_dump_json() for one in last][: len(prefix)] == prefix
    assert "limit of 2 steps" in last[-1].text
    assert not ran.messages[-1].tool_calls  # type: ignore[union-attr]
    assert ran.values["step_count"] == 2
    assert ran.values["usage"]["model_calls"] == 3


ECHO = "The run has reached its limit of 1 steps and ends with this reply; calls in it are not run."


@pytest.mark.parametrize("said", ["", CALL_AS_TEXT, ECHO, ValueError("broken")])
async def test_a_final_summary_without_text_leaves_what_there_is(said: Any) -> None:
    ran = await manus(calls(("add", {"a": 1, "b": 1}), text="It is 2."), said, max_steps=1)
    assert ended(ran) == ("stopped", "max_steps")
    assert ran.values["answer"].startswith("It is 2.")
    assert "limit of 1 steps" in ran.values["answer"]


async def test_room_for_the_final_summary_is_kept_within_the_budget() -> None:
    usage = {"input_tokens": 2000, "output_tokens": 500, "total_tokens": 2500}
    made = [one.model_copy(update={"usage_metadata": usage}) for one in adds(9)]
    last = AIMessage("Three are done.", usage_metadata=usage)
    ran = await manus(*made[:3], last, max_total_tokens=11_500)
    assert ended(ran) == ("stopped", "budget")
    assert ran.values["answer"] == "Three are done."
    assert ran.values["usage"]["input_tokens"] + ran.values["usage"]["output_tokens"] <= 11_500
    assert "limit of 11500 tokens" in suffix(ran)


async def test_a_budget_without_room_for_it_has_no_final_summary() -> None:
    model = scripted(*adds(2), usage=(1000, 200))
    ran = await manus(model=model, max_total_tokens=2500)
    assert ended(ran) == ("stopped", "budget")
    assert len(model.requests) == 1
    assert "limit of 2500 tokens: 1300 tokens are left, and the next" in ran.values["answer"]


@pytest.mark.parametrize("most", [1700, 2900, 3400, 4000, 8000])
async def test_a_budget_of_tokens_is_not_overrun(most: int) -> None:
    model = scripted(*adds(9), usage=(1300, 200))
    ran = await manus(model=model, max_total_tokens=most)
    assert ended(ran) == ("stopped", "budget")
    assert 1500 <= 1500 * len(model.requests) <= most


async def test_a_budget_of_dollars_is_not_overrun() -> None:
    model = Priced(*adds(9), usage=(10_000, 1000))
    ran = await manus(model=model, max_cost_usd=0.06)
    assert ended(ran) == ("stopped", "budget")
    assert 0.03 <= ran.values["usage"]["cost_usd"] <= 0.06


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"max_total_tokens": 150, "max_cost_usd": 1}, "its limit of 150 tokens is too small"),
        ({"max_total_tokens": 10_000, "max_cost_usd": 0.001}, "its limit of $0.001 is too small"),
    ],
)
async def test_a_budget_too_small_for_one_call_says_so(limit: dict[str, Any], said: str) -> None:
    ran = await manus(model=Priced("never asked"), **limit)
    assert ended(ran) == ("stopped", "budget")
    assert said in ran.values["answer"]
    assert "one model call, which takes about" in ran.values["answer"]
    assert not ran.model.requests


async def test_what_is_told_to_be_left_is_true() -> None:
    model = scripted(*adds(2), "The sums are 1 and 2.", usage=(1000, 100))
    await manus(model=model, max_total_tokens=5000)
    reported = [request[-1].text for request in model.requests]
    left = ["5000 of 5000", "3900 of 5000", "2800 of 5000"]
    shown = [text in request for text, request in zip(left, reported, strict=True)]
    assert shown == [False, True, True]


async def test_a_step_of_a_plan_has_no_final_summary() -> None:
    brain = PlanBrain(
        [plan_call("one")], lambda step, messages: calls(("add", {"a": len(messages), "b": 1}))
    )
    graph = build_planning_graph(
        executors={"manus": build_manus_graph(tools=[add])}, checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(), config=CONFIG, max_steps=4)
    assert ended(ran) == ("stopped", "max_steps")
    assert len(brain.requests("0")) == 3  # the fourth was the planner's
    assert "steps, this one included" in brain.requests("0")[-1][-1].text


async def test_after_a_limit_the_run_goes_on_and_says_so() -> None:
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    model = scripted(*adds(1), "One is done.", ANNOUNCED, *adds(1), "Both are done.")
    await run_graph(graph, model=model, config=CONFIG, max_steps=1)
    ran = await run_graph(
        graph, model=model, config=CONFIG, task=Command(goto="think"), max_steps=9
    )
    assert ended(ran) == ("finished", "answer")
    assert "goes on" in model.requests[2][-1].text
    assert took_turns(model.requests[-1])


async def test_who_goes_on_under_the_same_limit_is_not_closed_again() -> None:
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    model = scripted(*adds(1), "One is done.")
    await run_graph(graph, model=model, config=CONFIG, max_steps=1)
    ran = await run_graph(
        graph, model=model, config=CONFIG, task=Command(goto="think"), max_steps=1
    )
    assert len(model.requests) == 2
    assert ran.values["answer"].startswith("One is done.\n\nThe run stopped at its limit of 1 ")


@pytest.mark.parametrize(
    ("limit_s", "elapsed_s", "ends", "reported"),
    [
        (100, 91.0, ("stopped", "timeout"), "limit of 100 seconds"),
        (10_000, 9200.0, ("finished", "answer"), "of 10000 seconds"),
    ],
)
async def test_near_the_end_of_its_time_the_model_is_told_and_time_to_close_is_kept(
    limit_s: int, elapsed_s: float, ends: tuple[str, str], reported: str
) -> None:
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    model = scripted(*adds(1), "One is done.")
    context = Context(model=model, workspace="work", timeout_s=limit_s)
    said: Any = {"messages": [HumanMessage("the task")]}
    await graph.ainvoke(said, CONFIG, context=context, interrupt_before=["stuck_check"])
    await graph.aupdate_state(CONFIG, {"elapsed_s": elapsed_s}, as_node="act")
    values = await graph.ainvoke(None, CONFIG, context=context)
    assert (values["status"], values["stop_reason"]) == ends
    assert values["answer"] == "One is done."
    assert reported in model.requests[-1][-1].text


async def test_who_is_asked_and_has_answered_says_so_in_a_line() -> None:
    ran = await manus("I will be there at six.", "Answer:\nI will be there at six.")
    assert ended(ran) == ("finished", "answer")
    assert ran.values["answer"] == "I will be there at six."


async def test_a_reply_that_is_cut_again_and_again_fails() -> None:
    ran = await manus(*(cut(f"{number} ") for number in range(20)))
    assert ended(ran) == ("failed", "error")
    assert len(ran.model.requests) == 9


async def test_what_the_final_summary_said_is_not_the_answer_later() -> None:
    graph = build_manus_graph(tools=[add, terminate], checkpointer=InMemorySaver())
    bare = calls(("terminate", {"status": "success"}), prefix="t")
    model = scripted(*adds(1), "1 of 2 sums is not done.", bare, "Both: 1 and 2.")
    await run_graph(graph, model=model, config=CONFIG, max_steps=1)
    ran = await run_graph(
        graph, model=model, config=CONFIG, task=Command(goto="think"), max_steps=9
    )
    assert ran.values["answer"] == "Both: 1 and 2."


async def test_a_final_summary_that_is_cut_is_no_part_of_a_later_answer() -> None:
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    model = scripted(*adds(1), cut("One is"), "Both: 1 and 2.")
    await run_graph(graph, model=model, config=CONFIG, max_steps=1)
    ran = await run_graph(
        graph, model=model, config=CONFIG, task=Command(goto="think"), max_steps=9
    )
    assert ran.values["answer"] == "Both: 1 and 2."


async def test_a_call_that_the_model_reads_out_is_not_run() -> None:
    graph = build_manus_graph(tools=[read_out, add], checkpointer=InMemorySaver())
    look = calls(("read_out", {}))
    ran = await run_graph(graph, look, f"Its last line is {CALL_AS_TEXT}", config=CONFIG)
    assert ran.results() == [f"first\n{CALL_AS_TEXT}"]


async def test_an_object_that_the_caller_wants_is_no_call() -> None:
    wanted = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    made = {"name": "add", "arguments": {"a": 1, "b": 1}}
    ran = await manus(json.dumps(made), response_format=wanted)
    assert ended(ran) == ("finished", "answer")
    assert ran.values["structured"] == made


WANTED = {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}}


async def test_a_final_summary_gives_the_object_that_the_caller_wants() -> None:
    ran = await manus(*adds(1), '```json\n{"sum": 1}\n```', max_steps=1, response_format=WANTED)
    assert ended(ran) == ("stopped", "max_steps")
    assert ran.values["structured"] == {"sum": 1}
    ran = await manus(*adds(1), "One is done.", max_steps=1, response_format=WANTED)
    assert (ran.values["structured"], ran.values["answer"]) == (None, "One is done.")


async def test_a_closing_text_that_was_cut_says_so() -> None:
    cut = AIMessage("One of the", response_metadata={"finish_reason": "length"})
    ran = await manus(*adds(1), cut, max_steps=1)
    said = "One of the\n\n[This text was cut off by its length limit (max_tokens).]"
    assert ran.values["answer"] == ran.messages[-1].text == said


async def test_a_call_that_a_closing_text_quotes_is_no_answer() -> None:
    graph = build_manus_graph(tools=[read_out, add], checkpointer=InMemorySaver())
    look = calls(("read_out", {}), text="I read the page.")
    ran = await run_graph(graph, look, CALL_AS_TEXT, config=CONFIG, max_steps=1)
    assert CALL_AS_TEXT not in ran.values["answer"]
    assert ran.values["answer"].startswith("I read the page.\n\nThe run stopped at its limit of 1 ")


async def test_a_closing_text_with_a_call_that_cannot_be_read_is_no_answer() -> None:
    closing = "I stop.<|tool_call_start|>add 1 and 1"
    ran = await manus(calls(("add", {"a": 1, "b": 1}), text="I add."), closing, max_steps=1)
    assert ran.values["answer"].startswith("I add.\n\nThe run stopped at its limit of 1 ")


async def test_a_call_beside_a_call_written_as_text_leaves_the_text_before() -> None:
    both = calls(("add", {"a": 5, "b": 5}), text=f"One is done.\n{CALL_AS_TEXT}", prefix="d")
    ran = await manus(*adds(1), both, max_steps=1)
    assert ran.values["answer"] == "One is done."


async def test_a_run_that_is_stuck_ends_with_its_newest_text_and_why() -> None:
    found = calls(("add", {"a": 2, "b": 2}), text="Two and two are 4.", prefix="f")
    ran = await manus(found, *[ADD] * 30)
    assert ended(ran) == ("stopped", "stuck")
    assert ran.values["answer"].startswith("Two and two are 4.\n\nThe run stopped because its last")
    assert "Further repeats" in suffix(ran), "it is asked for what it has before, not after it"


async def test_a_run_that_could_not_begin_begins_with_a_higher_budget() -> None:
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    model = scripted("The sum is 2.")
    await run_graph(graph, model=model, config=CONFIG, max_total_tokens=150)
    ran = await run_graph(
        graph, model=model, config=CONFIG, task=Command(goto="think"), max_total_tokens=9000
    )
    assert (*ended(ran), ran.values["answer"]) == ("finished", "answer", "The sum is 2.")
    assert "goes on" not in suffix(ran)
