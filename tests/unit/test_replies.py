"""What a reply without calls is: an answer, or an announcement of work."""

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from openmanus_graph.conversation.announcements import announces_work
from openmanus_graph.conversation.history import (
    NOTES_KEY,
    ORIGIN_KEY,
    STEP_KEY,
    TASK_KEY,
    last_text,
)
from openmanus_graph.conversation.replies import answer_beside_calls, read_reply

TASK = "Compare the invoices with ledger.csv and write the differences to report.md."
CUT = {"finish_reason": "length"}


def announces(text: str, task: str = TASK, *, worked: bool = True, asked: bool = False) -> bool:
    return announces_work(text, task=task, worked=worked, asked=asked)


@pytest.mark.parametrize(
    "text",
    [
        "Sure! I will first read all the invoices. Let me start by listing the files.",
        "Great. Now I'll compare each of them with the ledger.",
        "Next, I am going to write the report.",
        "I need to find the duplicates in the invoices.",
        "I need to fix the syntax error.",
        "The invoices are read:",
        "I have the list. Comparing them now...",
        "好的，我先读取所有发票，然后与账本比较。",
        "接下来我将写报告。",
        "让我先看看文件。",
        "Ich werde zuerst alle Rechnungen lesen.",
        "Als Nächstes vergleiche ich sie. Lass mich damit beginnen.",
        "Je vais d'abord lire toutes les factures.",
        "Voy a leer primero las facturas.",
        "Vou ler as faturas primeiro.",
        "Сначала я прочитаю все счета.",
        "Önce tüm faturaları okuyacağım.",
        "まず請求書をすべて読みます。",
        "먼저 모든 송장을 읽겠습니다.",
        "Saya akan membaca semua faktur.",
        "Tôi sẽ đọc tất cả hóa đơn.",
        "**Plan**\n- I'll list the files.",
        "Working on it! One moment please.",
        "Reading the invoices now.",
        "Thought: I need the files.\nAction: bash\nAction Input: ls",
        "正在处理，请稍候。",
        "少々お待ちください。",
        "ผมจะอ่านใบแจ้งหนี้ทั้งหมดก่อน",
    ],
)
def test_work_is_announced_in_many_languages(text: str) -> None:
    assert announces(text)


@pytest.mark.parametrize(
    "text",
    [
        "Two invoices differ: 17 and 23. The report is in report.md.",
        "Done. Let me know if you need anything else.",
        "The report is in report.md. I will not change the ledger without your consent.",
        "If you like, I'll also add a chart.",
        "Which ledger do you mean? I will begin as soon as I know?",
        "两张发票不同：17 和 23。报告在 report.md。",
        "报告已写好。如果需要，我会补充图表。",
        "合計は42円です。",
        "합계는 42원입니다.",
        "Zwei Rechnungen weichen ab.",
        "The ledger is right. The total is 1,204.50.",
        "forty-two",
        "La capitale è Canberra, però molti dicono Sydney.",
        'In English: "I will go there tomorrow."',
        "“Let me go” is the title.",
        "Done. Just say the word and I'll open a pull request.",
        "Das ist erledigt. Sobald Sie mir den Schlüssel geben, werde ich es veröffentlichen.",
        "Hecho. Si necesitas más, voy a ayudarte.",
        "完成了。如有需要，我会继续修改。",
        "Готово. Если что, я буду рад помочь.",
        "Let me explain. A monad is a structure that composes computations.",
        "Let me be clear. The answer is no.",
        "name:\nversion:\nauthors:",
        "def main():",
        "North sells most; sales fall from March on.",
        "Most of the errors come from the parser.",
    ],
)
def test_an_answer_announces_nothing(text: str) -> None:
    assert not announces(text)


def test_a_long_report_counts_by_its_last_sentence() -> None:
    report = "I will go through what was found. " + "Invoice 17 is wrong by 3. " * 40
    assert not announces(report, worked=False)
    assert announces(report + "Now I will write it to the file.")


@pytest.mark.parametrize(
    "text", ["Jeg kikker på bilagene.", "Filerne bliver læst og sammenlignet.", "ខ្ញុំកំពុងមើលឯកសារ"]
)
def test_where_nothing_was_called_no_language_needs_to_be_known(text: str) -> None:
    assert announces(text, worked=False)
    assert not announces(text, worked=True)
    assert announces(text, worked=False, asked=True)
    assert not announces(text, task="Say something about bookkeeping.", worked=False)


def test_figures_and_addresses_of_its_own_make_an_answer() -> None:
    assert not announces("Summen er 42.", worked=False)
    assert announces("Summen fra ledger.csv er regnet ud.", worked=False)
    assert not announces("Se https://example.com/a.", worked=False)


def conversation(*said: AnyMessage, task: str = TASK) -> list[AnyMessage]:
    return [HumanMessage(task, id="h"), *said]


def ending(text: str = "") -> list[AnyMessage]:
    call = tool_call(name="terminate", args={"status": "success"}, id="e")
    return [AIMessage(text, tool_calls=[call]), ToolMessage("ends", tool_call_id="e")]


def test_an_announcement_fails_the_run_only_when_it_was_asked_about() -> None:
    say = AIMessage("I will list the files.")
    first = read_reply(conversation(say), None)
    second = read_reply(conversation(say, say), None)
    assert (first.kind, first.failed) == ("announcement", False)
    assert (second.kind, second.failed) == ("announcement", True)
    after_work = read_reply(conversation(say, *ending(), say), None)
    assert (after_work.kind, after_work.failed) == ("announcement", False)


def test_pieces_of_a_cut_answer_are_one_answer() -> None:
    cut = AIMessage("Invoice 17 differs, and so do", response_metadata=CUT)
    messages = conversation(cut, AIMessage(" 23 and 25."))
    assert read_reply(messages[:2], None).kind == "cut"
    assert read_reply(messages, None).kind == "answer"
    assert last_text(messages) == "Invoice 17 differs, and so do 23 and 25."


def test_pieces_of_a_cut_object_are_one_object() -> None:
    schema = {"type": "object", "properties": {"total": {"type": "integer"}}}
    cut = AIMessage('{"total": ', response_metadata=CUT)
    reading = read_reply(conversation(cut, AIMessage("42}")), schema)
    assert (reading.kind, reading.structured) == ("answer", {"total": 42})


def test_a_text_in_the_wrong_form_is_asked_about_three_times() -> None:
    said = [AIMessage("no object") for _ in range(4)]
    assert not read_reply(conversation(*said[:3]), {"type": "object"}).failed
    assert read_reply(conversation(*said), {"type": "object"}).failed


def test_a_task_that_a_flow_wrote_does_not_make_short_results_suspicious() -> None:
    result = "Es ist nun alles fertig."
    step = HumanMessage(TASK, id="h", additional_kwargs={ORIGIN_KEY: {}, STEP_KEY: ""})
    assert read_reply([step, AIMessage(result)], None).kind == "answer"
    assert read_reply(conversation(AIMessage(result)), None).kind == "announcement"


def test_the_answer_beside_terminate_is_its_own_text_or_an_earlier_one_with_facts() -> None:
    assert answer_beside_calls(conversation(*ending("It is done."))) == "It is done."
    assert answer_beside_calls(conversation(*ending())) == ""
    call = tool_call(name="bash", args={}, id="b")
    found = AIMessage("The total is 42.", tool_calls=[call])
    looking = AIMessage("Looking at the files.", tool_calls=[call])
    result = ToolMessage("ok", tool_call_id="b")
    assert answer_beside_calls(conversation(found, result, *ending())) == "The total is 42."
    assert answer_beside_calls(conversation(looking, result, *ending())) == ""
    assert answer_beside_calls(conversation(*ending("Let me end this."))) == ""


def test_after_a_compaction_the_notes_are_not_the_task_and_work_was_done() -> None:
    extra = {TASK_KEY: TASK, NOTES_KEY: "The total is 42."}
    task = HumanMessage(f"{TASK}\nNotes: the total is 42.", id="h", additional_kwargs=extra)
    assert read_reply([task, AIMessage("Es ist nun alles fertig geworden.")], None).kind == "answer"
    call = tool_call(name="bash", args={}, id="b")
    found = AIMessage("The total is 42.", tool_calls=[call])
    result = ToolMessage("ok", tool_call_id="b")
    assert answer_beside_calls([task, found, result, *ending()]) == "The total is 42."


def test_a_call_that_failed_is_no_work() -> None:
    call = AIMessage("", tool_calls=[tool_call(name="bash", args={}, id="b")])
    said = AIMessage("Jeg kikker på bilagene.")
    for status, kind in ("error", "announcement"), ("success", "answer"):
        result = ToolMessage("ls: no such file", tool_call_id="b", status=status)
        assert read_reply(conversation(call, result, said), None).kind == kind


def test_a_text_that_was_to_be_written_may_speak_of_the_future() -> None:
    task, text = "Translate to English: Ich komme morgen", "I will come tomorrow."
    assert announces(text, task=task, worked=False)
    assert not announces(text, task=task, worked=False, asked=True)


def test_the_numbers_of_a_list_are_no_figures() -> None:
    plan = "1. Read every invoice\n2. Parse the totals\n3. Compare with the ledger"
    assert announces(plan, worked=False)
