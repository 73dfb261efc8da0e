"""The page's list of threads: groups, pins, the archive, and changes of several at once."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.test_page_access import violations
from tests.support.openai_script import Reply
from tests.support.page import Desk, Tab
from tests.support.serving import BIN

pytestmark = pytest.mark.slow

DRAWN = """async () => {
    for (let i = 0; i < 4; i += 1) await new Promise((resolve) => requestAnimationFrame(resolve));
}"""
REFRESH = "() => document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture
def tab(at: Desk) -> Iterator[Tab]:
    tab = at.tab()
    yield tab
    tab.close()
    assert tab.wrong == []


def run_tasks(at: Desk, tab: Tab, *tasks: str) -> None:
    at.model.begin_again()
    at.model.add(*(Reply("Done.") for _ in tasks))
    for task in tasks:
        tab.start(task)
        tab.until("Finished")


def row(tab: Tab, title: str) -> Locator:
    return tab.page.locator(".thread", has=tab.page.get_by_text(title, exact=True))


def press(tab: Tab, name: str) -> None:
    tab.page.get_by_role("button", name=name, exact=True).click()


def test_threads_are_pinned_and_archived_and_that_is_undone(at: Desk, tab: Tab) -> None:
    run_tasks(at, tab, "Pin alpha zq2.", "Keep beta zq2.")
    first = tab.page.locator(".thread").first
    expect(first.get_by_role("heading")).to_have_text("Today")
    press(tab, "Pin the thread Pin alpha zq2.")
    expect(first.get_by_role("heading")).to_have_text("Pinned")
    expect(first).to_contain_text("Pin alpha zq2.")
    expect(first.get_by_role("link")).to_be_focused()
    expect(tab.page.locator(".thread").nth(1).get_by_role("heading")).to_have_text("Today")
    tab.page.reload()
    expect(first.get_by_role("heading")).to_have_text("Pinned")

    press(tab, "Archive the thread Keep beta zq2.")
    expect(row(tab, "Keep beta zq2.")).to_have_count(0)
    expect(tab.page.locator(".done")).to_have_text("1 thread archived.Undo")
    press(tab, "Archived")
    expect(row(tab, "Keep beta zq2.")).to_be_visible()
    expect(row(tab, "Pin alpha zq2.")).to_have_count(0)
    press(tab, "Archived")
    press(tab, "Undo")
    expect(row(tab, "Keep beta zq2.").get_by_role("link")).to_be_focused()
    press(tab, "Unpin the thread Pin alpha zq2.")
    expect(first.get_by_role("heading")).to_have_text("Today")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_several_threads_are_archived_and_deleted_by_keyboard(at: Desk, scheme: str) -> None:
    tab = at.tab(color_scheme=scheme)
    run_tasks(at, tab, *(f"Task {number} of {scheme} zq3." for number in range(5)))
    page, keys = tab.page, tab.page.keyboard
    page.get_by_label("Search threads").fill(f"{scheme} zq3")
    expect(page.locator(".thread")).to_have_count(5)
    page.get_by_role("button", name="Select", exact=True).focus()
    keys.press("Enter")
    boxes = page.get_by_role("checkbox", name="Select the thread")
    expect(boxes).to_have_count(5)
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    keys.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Select all"
    boxes.first.focus()
    keys.press("Space")
    keys.press("ArrowDown")
    expect(boxes.nth(1)).to_be_focused()
    keys.press("ArrowDown")
    boxes.nth(2).click(modifiers=["Shift"])
    expect(page.locator(".bulk")).to_contain_text("3 selected")
    assert violations(tab) == []
    press(tab, "Archive")
    expect(page.locator(".thread")).to_have_count(2)
    expect(page.locator(".done")).to_contain_text("3 threads archived.")
    assert violations(tab) == []
    press(tab, "Archived")
    expect(page.locator(".thread")).to_have_count(3)
    press(tab, "Select")
    press(tab, "Select all")
    press(tab, "Delete")
    assert violations(tab) == []
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".thread")).to_have_count(0)
    expect(page.locator(".done")).to_have_text("3 threads deleted.")
    found = at.ask("GET", f"/app/api/threads?q={scheme}+zq3").json()["threads"]
    assert [one["title"] for one in found] == [f"Task {n} of {scheme} zq3." for n in (1, 0)]
    assert tab.wrong == []
    tab.close()


def test_the_list_stays_where_it_is_while_threads_come_and_go(at: Desk, tab: Tab) -> None:
    box = tab.page.locator(".thread-list")
    expect(box.locator(".thread").first).to_be_visible()
    for _ in range(3):
        box.evaluate("(it) => { it.scrollTop = 2500; }")
        tab.page.evaluate(DRAWN)
    seen = "(it) => [...it.querySelectorAll('.thread')].map((one) => [one.innerText,"
    seen += " one.getBoundingClientRect().top]).filter(([, top]) => top > 200 && top < 700)"
    before = dict(box.evaluate(seen))
    assert len(before) > 3
    other = at.tab()
    run_tasks(at, other, "Come first zq4.", "Come second zq4.")
    other.close()
    with tab.page.expect_response(lambda answer: "/app/api/threads?" in answer.url):
        tab.page.evaluate(REFRESH)
    tab.page.evaluate(DRAWN)
    after = dict(box.evaluate(seen))
    assert {text: after.get(text) for text in before} == pytest.approx(before, abs=1)
    box.evaluate("(it) => { it.scrollTop = 0; }")
    expect(box.locator(".thread").first).to_contain_text("Come second zq4.")


def test_a_thread_is_shared_by_a_link_until_it_is_revoked(at: Desk, tab: Tab) -> None:
    run_tasks(at, tab, "Show this to others.")
    press(tab, "Save or share the thread")
    box = tab.page.get_by_role("dialog", name="Save or share the thread")
    box.get_by_role("button", name="Make a link").click()
    link = box.get_by_role("textbox").input_value()
    expect(box).to_contain_text("1 active link")
    assert violations(tab) == []
    stranger = at.browser.new_page()
    stranger.goto(link)
    expect(stranger.get_by_text("Done.", exact=True)).to_be_visible()
    box.get_by_role("button", name="Revoke all links").click()
    expect(box).to_contain_text("There are no links.")
    stranger.goto(link)
    expect(stranger.get_by_role("heading")).to_have_text("This link does not work any more.")
    stranger.close()


def test_threads_of_a_batch_are_listed_by_themselves(at: Desk, tab: Tab) -> None:
    run_tasks(at, tab, "A task of mine zq9.")
    at.model.begin_again()
    at.model.add(Reply("Done."))
    folder = at.served.folder
    (folder / "tasks.jsonl").write_text('{"id": "one", "task": "Of a batch zq9."}\n', "utf-8")
    argv = [str(BIN / "openmanus"), "batch", "tasks.jsonl", "--out", "results.jsonl"]
    env = {**os.environ, **at.served.env, "OPENMANUS_HOME": str(at.served.home)}
    subprocess.run(argv, cwd=folder, env=env, check=True)
    tab.page.evaluate(REFRESH)
    tab.page.get_by_label("Search threads").fill("zq9")
    expect(tab.page.locator(".thread")).to_have_count(1)
    expect(row(tab, "A task of mine zq9.")).to_be_visible()
    press(tab, "Batches")
    expect(row(tab, "Of a batch zq9.")).to_be_visible()
    expect(tab.page.locator(".thread")).to_have_count(1)
    press(tab, "Batches")
    expect(row(tab, "A task of mine zq9.")).to_be_visible()
