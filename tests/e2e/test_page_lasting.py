"""What outlives a reload, a second tab and the server's death; and very much on one page."""

import json
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from openmanus_graph.persistence.database import Database, open_database
from openmanus_graph.persistence.journal import JournalTable
from openmanus_graph.persistence.threads import Threads
from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab, desk

MANY_THREADS = 1000
MANY_EVENTS = 10_000
LONG = str(uuid.uuid4())
HEAP_BYTES = 200e6
FRAME_S = 0.05
"""Of the page's own work; other programs of this machine may take the processor meanwhile."""
SCROLLED = """async () => {
    const box = document.querySelector('.timeline');
    for (let i = 0; i < 100; i += 1) {
        box.scrollTop -= 700;
        await new Promise((resolve) => requestAnimationFrame(resolve));
    }
}"""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    root = tmp_path_factory.mktemp("lasting")
    write_past(root / "home")
    with desk(root) as found:
        yield found


@pytest.fixture
def tab(at: Desk) -> Iterator[Tab]:
    at.model.begin_anew()
    tab = at.tab()
    yield tab
    tab.close()


def write_past(home: Path) -> None:
    """Write down threads of former days, one of them very long."""
    home.mkdir()
    database: Database = open_database(home)
    threads = Threads(database)
    for number in range(MANY_THREADS):
        threads.begin(str(uuid.uuid4()), "manus", f"Old task {number}", {}, None)
    threads.begin(LONG, "manus", "A very long task", {}, None)
    threads.end(LONG, "finished")
    table, events = JournalTable(database), list(long_run())
    for start in range(0, len(events), 1000):
        part = events[start : start + 1000]
        table.write(LONG, [(event["seq"], json.dumps(event)) for event in part])
    database.close()


def long_run() -> Iterator[dict[str, Any]]:
    """Yield the events of one run with very many steps."""
    usage = {"input_tokens": 9, "cached_tokens": 0, "output_tokens": 3, "model_calls": 1,
             "cost_usd": 0.0}  # fmt: skip
    told: list[dict[str, Any]] = [
        {"type": "run_start", "task": "A very long task", "agent": "manus", "model": "m",
         "workspace": "/w"}
    ]  # fmt: skip
    for step in range(1, MANY_EVENTS // 4):
        call = {"call_id": f"c{step}", "tool": "bash", "args": {"command": f"echo {step}"}}
        told += [
            {"type": "think_start", "step": step},
            {"type": "think_end", "step": step, "text": f"Now **{step}**. " * (step % 9),
             "tool_calls": [call], "usage": usage, "seconds": 1.0},
            {"type": "tool_start", **call},
            {"type": "tool_end", "call_id": f"c{step}", "tool": "bash", "ok": True, "seconds": 0.1,
             "output": f"line {step}\n" * 80},
        ]  # fmt: skip
    told.append({"type": "final", "status": "finished", "stop_reason": "answer", "answer": "Over.",
                 "structured": None, "usage": usage, "artifacts": []})  # fmt: skip
    for number, event in enumerate(told, 1):
        yield {**event, "seq": number, "run": "r", "ns": "", "thread": LONG,
               "ts": "2026-01-01T00:00:00.000+00:00"}  # fmt: skip


def test_a_reload_in_the_middle_loses_nothing_and_doubles_nothing(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(text="One.", calls=(Call("bash", {"command": "echo one"}),)),
        Reply(text="Two.", calls=(Call("bash", {"command": "sleep 2; echo two"}),)),
        Reply(text="Three."),
    )
    tab.start("Count.")
    expect(tab.page.locator(".call.running")).to_be_visible()
    tab.page.reload()
    tab.sees("One.")
    tab.until("Finished")
    heads = tab.page.locator(".row-think .md")
    assert heads.all_inner_texts() == ["One.", "Two.", "Three."]
    expect(tab.page.locator(".row-call")).to_have_count(2)
    expect(tab.page.locator(".row-task")).to_have_count(1)


def test_a_second_tab_sees_the_same_and_may_answer(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(calls=(Call("ask_human", {"inquire": "Go on?"}),)), Reply(text="Gone on."))
    thread = tab.start("Ask me.")
    tab.until("Waiting for you")
    second = at.tab(thread)
    second.until("Waiting for you")
    second.page.get_by_label("Your answer").fill("yes")
    second.page.get_by_role("button", name="Send answer").click()
    for each in (tab, second):
        each.until("Finished")
        each.sees("Gone on.")
        expect(each.page.locator(".ask")).to_have_count(0)
    second.close()


def test_the_server_dies_and_comes_back(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(text="I work.", calls=(Call("bash", {"command": "sleep 60"}),)),
        Reply(text="It may have slept."),
    )
    tab.start("Sleep long.")
    expect(tab.page.locator(".call.running")).to_be_visible()
    at.served.stop(signal.SIGKILL)
    banner = tab.page.locator(".banner", has_text="The server does not answer")
    expect(banner).to_be_visible()
    tab.page.get_by_label("Correction for the running agent").fill("Are you there?")
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("alert").filter(has_text="does not answer").first).to_be_visible()
    at.served.start()
    expect(banner).to_be_hidden()
    tab.until("Cut off")
    tab.sees("I work.")
    tab.page.get_by_role("button", name="Resume").click()
    tab.until("Finished")
    tab.sees("It may have slept.")
    expect(tab.page.locator(".row-task")).to_have_count(1)


def test_what_is_wrong_is_said_plainly(at: Desk, tab: Tab) -> None:
    tab.open(str(uuid.uuid4()))
    expect(tab.page.locator(".banner").first).to_contain_text("There is no such thread")
    stranger = Tab(at.browser, at.served).open(token=False)
    form = stranger.page.get_by_role("dialog", name="This server asks for a token")
    form.get_by_label("Token").fill("wrong")
    form.get_by_role("button", name="Connect").click()
    expect(form.get_by_role("alert")).not_to_be_empty()
    form.get_by_label("Token").fill(at.served.token)
    form.get_by_role("button", name="Connect").click()
    expect(form).to_be_hidden()
    expect(stranger.page.locator("#agent option").first).to_be_attached()
    stranger.close()


def test_a_thousand_threads_are_listed_as_far_as_one_scrolls(at: Desk, tab: Tab) -> None:
    box = tab.page.locator(".thread-list")
    expect(box.locator(".thread").first).to_be_visible()
    assert box.locator(".thread").count() < 60
    for _ in range(40):
        if box.get_by_text("Old task 700", exact=True).count():
            break
        box.evaluate("(it) => { it.scrollTop = it.scrollHeight; }")
        tab.page.wait_for_timeout(50)
    expect(box.locator(".thread").first).to_be_visible()
    assert box.locator(".thread").count() < 60
    tab.page.get_by_label("Search threads").fill("task 77")
    expect(box.get_by_text("Old task 77", exact=True)).to_be_visible()


def test_ten_thousand_events_stay_smooth_and_small(at: Desk, tab: Tab) -> None:
    tab.open(LONG)
    tab.until("Finished")
    tab.sees(f"echo {MANY_EVENTS // 4 - 1}")
    rows = tab.page.locator(".timeline .row")
    assert rows.count() < 80
    busy = tab.busiest_s(lambda: tab.page.evaluate(SCROLLED))
    assert rows.count() < 80
    assert busy < FRAME_S
    assert tab.heap_bytes() < HEAP_BYTES
    tab.page.locator(".timeline").evaluate("(it) => { it.scrollTop = 0; }")
    expect(tab.page.locator(".row-task")).to_have_text(re.compile("A very long task"))
    assert rows.first.get_attribute("aria-setsize") == str(MANY_EVENTS // 2)
