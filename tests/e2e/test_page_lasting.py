"""What outlives a reload, a second tab and the server's death; and very much on one page."""

import json
import os
import re
import signal
import tempfile
import uuid
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.openai_script import Call, Reply
from tests.support.page import SCROLLED, Desk, Tab
from tests.support.past import LONG, MANY_EVENTS
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

FILES = re.compile("/api/threads/[^/]+/files$")
PAGE = 50
"""Threads that the list fetches at once."""
MEMORY_BYTES = 200e6
MOST_DRAWN = 2200
"""Rows, by 100 frames that pass 1,470 of them; 3,200, if each drew all in sight anew."""
COUNT_DRAWN = """() => {
    window.drawn = 0;
    new MutationObserver((changes) => {
        for (const { addedNodes } of changes) window.drawn += addedNodes.length;
    }).observe(document.querySelector('.timeline .rows'), { childList: true });
}"""

CUT_ANYWHERE = """async () => {
    const { sseParser } = await import('/app/static/js/stream.js');
    const text = 'id: 1\\ndata: {"seq":1,"text":"a\\\\nb é 👍"}\\n\\n: ping\\n\\n'
        + 'data: not json\\n\\nevent: live\\ndata: {"running":true,"seq":1}\\n\\ndata: {"se';
    const told = new Set();
    for (let at = 0; at <= text.length; at += 1) {
        const parse = sseParser();
        told.add(JSON.stringify([...parse(text.slice(0, at)), ...parse(text.slice(at))]));
    }
    return [...told];
}"""
RENDERED = """async (text) => {
    const { markdown } = await import('/app/static/js/markdown.js');
    const body = markdown(text);
    const count = (name) => body.querySelectorAll(name).length;
    const words = [...body.children].map((one) => one.textContent).join('\\n\\n');
    return { strong: count('strong'), em: count('em'), wbr: count('wbr'), text: words };
}"""
REDUCED = """async (events) => {
    const { apply, modelOf, newModel } = await import('/app/static/js/reducer.js');
    const inParts = newModel();
    for (let i = 0; i < events.length; i += 1) {
        apply(inParts, events.slice(Math.max(0, i - 3), i + 1));
    }
    const plain = (model) => JSON.stringify([model.rows, model.usage, model.status, model.plan]);
    const whole = modelOf(events);
    return { same: plain(whole) === plain(inParts), rows: whole.rows, status: whole.status,
        plan: whole.plan };
}"""


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


@pytest.mark.exhaustive
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
    tab.page.route(FILES, lambda route: route.abort())  # as if it had died before it told them
    tab.start("Sleep long.")
    expect(tab.page.locator(".call.running")).to_be_visible()
    at.served.stop(signal.SIGKILL)
    banner = tab.page.locator(".banner", has_text="The server does not answer")
    expect(banner).to_be_visible()
    tab.page.get_by_label("Correction for the running agent").fill("Are you there?")
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("alert").filter(has_text="does not answer").first).to_be_visible()
    expect(tab.page.locator(".banner", has_text="does not answer")).to_have_count(1)
    expect(tab.page.locator(".sidebar, .panel", has_text="does not answer")).to_have_count(0)
    tab.page.unroute(FILES)
    at.served.start()
    expect(banner).to_be_hidden()
    expect(tab.page.locator(".panel")).to_contain_text("No files yet")
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


def test_a_thread_of_the_terminal_is_shown_and_goes_on_there(
    at: Desk, tab: Tab, zygote: Zygote
) -> None:
    at.model.add(Reply(text="From the terminal."))
    env = {**os.environ, **at.served.env, "OPENMANUS_HOME": str(at.served.home)}
    command = ["run", "Begin here", "--thread", "mine", "--quiet"]
    with tempfile.TemporaryFile() as out:
        written = out.fileno()
        done = zygote.start(command, cwd=at.served.folder, env=env, out=written, err=written)
        assert done.wait() == 0
    tab.open("mine")
    tab.sees("From the terminal.")
    expect(tab.page.get_by_text("openmanus resume mine")).to_be_visible()
    expect(tab.page.get_by_role("textbox", name="Next message")).to_be_hidden()


@pytest.mark.exhaustive
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
    box.evaluate("(it) => { it.scrollTop = 0; }")
    before = _listed(tab)
    at.model.add(Reply(text="New."))
    tab.start("A task more.")
    tab.until("Finished")
    expect(box.get_by_text("A task more.")).to_be_visible()
    assert (_listed(tab) - before) % PAGE == 1  # none is lost where the first page ends
    tab.page.get_by_label("Search threads").fill("task 77")
    expect(box.get_by_text("Old task 77", exact=True)).to_be_visible()


def _listed(tab: Tab) -> int:
    rows = tab.page.get_by_role("list", name="Threads").get_by_role("listitem")
    return int(rows.first.get_attribute("aria-setsize") or 0)


@pytest.mark.exhaustive
def test_ten_thousand_events_stay_smooth_and_small(at: Desk, tab: Tab) -> None:
    tab.open(LONG)
    tab.until("Finished")
    tab.sees(f"echo {MANY_EVENTS // 4 - 1}")
    rows = tab.page.locator(".timeline .row")
    assert rows.count() < 80
    tab.page.evaluate(COUNT_DRAWN)
    tab.page.evaluate(SCROLLED)
    assert rows.count() < 80
    drawn = tab.page.evaluate("() => window.drawn")
    assert 80 < drawn < MOST_DRAWN, drawn
    assert tab.memory_bytes() < MEMORY_BYTES
    tab.page.locator(".timeline").evaluate("(it) => { it.scrollTop = 0; }")
    expect(tab.page.locator(".row-task")).to_have_text(re.compile("A very long task"))
    assert rows.first.get_attribute("aria-setsize") == str(MANY_EVENTS // 2)


def test_texts_that_would_keep_the_page_busy_for_minutes_stay_as_they_are(tab: Tab) -> None:
    text = f"A **strong** word\n\n{'*a_' * 2000}\n\n{'QUJD' * 1000}"
    found = tab.page.evaluate(RENDERED, text)
    assert found == {"strong": 1, "em": 0, "wbr": 20, "text": text.replace("**", "")}


def test_the_stream_is_read_wherever_it_is_cut(tab: Tab) -> None:
    reported = tab.page.evaluate(CUT_ANYWHERE)
    assert [json.loads(one) for one in reported] == [
        [{"seq": 1, "text": "a\nb é 👍"}, {"running": True, "seq": 1, "type": "live"}]
    ]


def plan_steps(**statuses: str) -> list[dict[str, Any]]:
    made: dict[str, Any] = {"text": "x", "executor": "manus", "depends_on": [], "done_when": ""}
    return [{"id": name, "status": status, **made} for name, status in statuses.items()]


def test_the_page_follows_what_changes_in_a_plan_and_not_the_plan_of_a_step(tab: Tab) -> None:
    reported: list[dict[str, Any]] = [
        {"type": "plan_change", "steps": plan_steps(lost="completed"), "order": ["lost"]},
        {"type": "plan", "title": "T", "steps": plan_steps(a="not_started", b="not_started")},
        {"type": "plan", "title": "T", "steps": plan_steps(x="not_started"), "ns": "a"},
        {"type": "plan_change", "steps": plan_steps(a="in_progress")},
        {"type": "plan_change", "steps": plan_steps(x="completed"), "ns": "a"},
        {"type": "step_end", "id": "a", "executor": "manus", "status": "completed"},
        {"type": "plan_change", "steps": plan_steps(a="completed", c="not_started"),
         "order": ["c", "a"]},
    ]  # fmt: skip
    stamp = {"ns": "", "run": "r", "ts": "2026-01-01T00:00:00Z"}
    events = [{**stamp, **one, "seq": number} for number, one in enumerate(reported, 1)]
    shown = [tab.page.evaluate(REDUCED, events[:count]) for count in range(1, len(events) + 1)]
    assert all(one["same"] for one in shown)
    assert [[f"{one['id']} {one['status']}" for one in each["plan"]] for each in shown[2:]] == [
        ["a not_started", "b not_started"],
        ["a in_progress", "b not_started"],
        ["a in_progress", "b not_started"],
        ["a completed", "b not_started"],
        ["c not_started", "a completed"],
    ]
    assert shown[0]["plan"] == []


def test_events_give_the_same_page_in_any_portions_and_sent_twice(tab: Tab) -> None:
    usage = {"input_tokens": 9, "cached_tokens": 0, "output_tokens": 3, "model_calls": 1,
             "cost_usd": 0.5}  # fmt: skip
    call = {"call_id": "a", "tool": "bash", "args": {"command": "ls"}}
    ended: dict[str, Any] = {"tool_calls": [], "usage": usage, "seconds": 1.0}
    reported: list[dict[str, Any]] = [
        {"type": "run_start", "kind": "start", "task": "T", "agent": "planning", "model": "m"},
        {"type": "think_start", "step": 1, "ns": "one"},
        {"type": "think_start", "step": 1, "ns": "two"},
        {"type": "token", "text": "void ", "ns": "one"},
        {"type": "token", "text": "Two", "ns": "two"},
        {"type": "think_start", "step": 1, "ns": "one"},
        {"type": "token", "text": "One", "ns": "one"},
        {"type": "tool_start", **call, "ns": "one"},
        {"type": "tool_start", **call, "ns": "two"},
        {"type": "tool_end", **call, "ok": True, "seconds": 1.0, "output": "two", "ns": "two"},
        {"type": "think_end", "step": 1, "text": "Two!", **ended, "ns": "two"},
        {"type": "unheard_of"},
        {"type": "final", "status": "cancelled", "stop_reason": "cancelled", "answer": "",
         "structured": None, "usage": usage, "artifacts": []},
    ]  # fmt: skip
    events = [{"ns": "", "run": "r", "ts": "2026-01-01T00:00:00Z", **one, "seq": number}
              for number, one in enumerate(reported, 1)]  # fmt: skip
    found = tab.page.evaluate(REDUCED, events)
    assert found["same"]
    thoughts = {row["ns"]: row["text"] for row in found["rows"] if row["kind"] == "think"}
    assert thoughts == {"one": "One", "two": "Two!"}
    calls = {row["ns"]: (row["ok"], row["output"], row["cut"]) for row in found["rows"]
             if row["kind"] == "call"}  # fmt: skip
    assert calls == {"one": (None, "", True), "two": (True, "two", False)}
    assert found["status"] == "cancelled"
