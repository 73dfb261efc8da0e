"""Questions on the page, what they are answered with, and what stays in sight."""

import re
import threading

import pytest
from playwright.sync_api import Route, expect

from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab
from tests.support.pdfs import scans

pytestmark = pytest.mark.slow

QUESTION = "Which quarter: **Q1** or `Q2`?"


def ask(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(calls=(Call("ask_human", {"inquire": QUESTION}),)))
    tab.start("Report.")
    tab.until("Waiting for you")


def test_a_question_is_markdown_and_what_is_typed_is_its_answer(at: Desk, tab: Tab) -> None:
    page = tab.page
    ask(at, tab)
    expect(page.locator(".ask strong")).to_have_text("Q1")
    badge = page.get_by_role("button", name="Inbox and triggers: something waits for you")
    badge.click()
    inbox = page.get_by_role("dialog", name="Inbox and triggers")
    expect(inbox.locator("li", has_text="Report.").locator("strong")).to_have_text("Q1")
    page.keyboard.press("Escape")
    expect(page.locator(".call", has_text="ask you: Which quarter: Q1 or Q2?")).to_be_visible()


def test_the_answer_is_focused_when_a_question_comes(at: Desk, tab: Tab) -> None:
    ask(at, tab)
    at.model.add(Reply(text="Done."))
    expect(tab.page.get_by_label("Your answer")).to_be_focused()
    tab.page.keyboard.type("no, the first one")
    tab.page.keyboard.press("Enter")
    tab.until("Finished")
    assert "no, the first one" in str(at.model.requests[-1].body["messages"])
    expect(tab.page.locator(".asked strong")).to_have_text("Q1")


def test_a_message_closes_a_question_only_when_it_is_sent_twice(at: Desk, tab: Tab) -> None:
    page = tab.page

    written = threading.Event()

    def after_that(body: object) -> Reply:
        written.wait()
        return Reply(calls=(Call("ask_human", {"inquire": QUESTION}),))

    at.model.add(after_that, Reply(text="Another."))
    tab.start("Report.")
    tab.until("Running")
    page.get_by_label("Correction for the running agent").fill("Do another thing.")
    written.set()
    tab.until("Waiting for you")
    box = page.get_by_label("Next message")
    expect(box).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".composer")).to_contain_text("would close its question")
    tab.until("Waiting for you")
    page.keyboard.press("Enter")
    tab.until("Finished")
    expect(page.locator(".call", has_text="ask you")).to_contain_text("cut off")
    expect(page.locator(".timeline")).to_contain_text("No longer open")


def test_the_answer_stays_in_sight_above_its_files(at: Desk, tab: Tab) -> None:
    rows = "".join(f"{n},{n}\\n" for n in range(40))
    script = "".join(f"open('t{n}.csv', 'w').write('a,b\\n{rows}');" for n in range(4))
    at.model.add(
        Reply(calls=(Call("python_execute", {"code": script}),)), Reply(text="It is **42**.")
    )
    tab.start("Count.")
    tab.until("Finished")
    expect(tab.page.locator(".artifact")).to_have_count(4)
    answer = tab.page.locator(".row-think strong")
    expect(answer).to_be_in_viewport()
    latest = tab.page.get_by_role("button", name="Latest")
    latest.click()
    expect(tab.page.locator(".artifact").last).to_be_in_viewport()
    expect(answer).not_to_be_in_viewport()
    expect(latest).to_be_hidden()


def test_the_plan_tab_is_left_with_the_plan(at: Desk, tab: Tab) -> None:
    create = {"command": "create", "plan_id": "p", "title": "T", "steps": ["Look", "Write"]}
    at.model.add(Reply(text="No plan."))
    tab.start("Talk.")
    tab.until("Finished")
    plain = tab.thread
    at.model.add(Reply(calls=(Call("planning", create),)), Reply(text="So far."))
    tab.start("Make a plan.", agent="planner")
    tab.until("Finished")
    shown = tab.page.get_by_role("tab", name="Plan")
    expect(shown).to_have_attribute("aria-selected", "true")
    tab.page.locator(f'.thread a[href$="{plain}"]').click()
    expect(shown).to_have_attribute("aria-selected", "false")


def test_a_wrong_token_is_said_in_words(at: Desk, tab: Tab) -> None:
    page = tab.page
    page.evaluate("localStorage.clear()")
    page.reload()
    dialog = page.get_by_role("dialog", name=re.compile("token"))
    dialog.get_by_label("Token").fill("wrong")
    dialog.get_by_role("button", name="Connect").click()
    expect(dialog.get_by_role("alert")).to_have_text("This token is wrong.")


def test_a_pdf_and_a_very_long_table_are_shown_in_part(at: Desk, tab: Tab) -> None:
    page = tab.page
    at.model.add(Reply(text="Hello."))
    tab.start("Say hello.")
    tab.until("Finished")
    files = f"/app/api/threads/{tab.thread}/files"
    rows = b"n,text\n" + b"".join(b"%d,%s\n" % (n, b"x" * 90) for n in range(120_000))
    for name, content in (("two.pdf", scans(2, b"")), ("bad.pdf", b"%PDF-"), ("long.csv", rows)):
        assert at.ask("PUT", f"{files}/{name}", content=content).status_code == 201
    page.reload()
    shown = page.get_by_role("dialog")

    def show(name: str) -> None:
        page.get_by_role("button", name=name).first.click()

    show("two.pdf")
    expect(shown.get_by_role("img", name="Page 1 of two.pdf")).to_be_visible()
    shown.get_by_role("button", name="Next page").click()
    picture = shown.get_by_role("img", name="Page 2 of two.pdf")
    expect(picture).to_be_visible()
    assert picture.evaluate("(img) => img.decode().then(() => img.naturalWidth)") > 500
    expect(shown.get_by_role("button", name="Next page")).to_be_disabled()
    shown.get_by_role("button", name="Close").click()
    show("bad.pdf")
    expect(shown).to_contain_text("This PDF cannot be shown")
    shown.get_by_role("button", name="Close").click()
    show("long.csv")
    expect(shown).to_contain_text("Only the first 2.0 MB of 12 MB are shown")
    expect(shown.locator("tbody tr")).to_have_count(500)


def test_a_role_sees_only_what_it_may_do(at: Desk, tab: Tab) -> None:
    page = tab.page
    another = page.get_by_role("button", name="Set up another model…")
    task = page.get_by_role("textbox", name="Task", exact=True)
    role = ""

    def told(route: Route) -> None:
        route.fulfill(json={"name": "x", "role": role})

    page.route("**/app/api/me", told)
    for role, may_set_up, may_start in (
        ("admin", True, True),
        ("user", False, True),
        ("viewer", False, False),
    ):
        page.reload()
        expect(page.locator(f".role-{role}")).to_be_attached()
        expect(task).to_be_visible(visible=may_start)
        if may_start:
            page.locator(".options-box summary").click()
        expect(another).to_be_visible(visible=may_set_up)
        expect(page.get_by_text("You can read threads here.")).to_be_visible(visible=not may_start)
