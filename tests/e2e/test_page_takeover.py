"""A person takes the agent's browser over on the page, and gives it back."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.test_page_access import PHONE, violations
from tests.support.limits import BACKSTOP_S
from tests.support.login_site import CODE, FIELD, PASSWORD, USER, LoginSite, login_site
from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab

pytestmark = pytest.mark.slow

ASK = Call("ask_human", {"inquire": "Please log in.", "kind": "browser"})
LOOK = Call("browser_use", {"action": "get_state"})


@pytest.fixture
def site() -> Iterator[LoginSite]:
    with login_site() as site:
        yield site


def go(site: LoginSite) -> Call:
    return Call("browser_use", {"action": "go_to_url", "url": f"{site.url}/"})


def begin(at: Desk, site: LoginSite, *more: Reply, **options: Any) -> Tab:
    """Start a run whose agent opens the site and asks for a login."""
    at.model.begin_again()
    at.model.add(Reply(calls=(go(site),)), Reply(calls=(ASK,)), *more)
    tab = at.tab(**options)
    tab.start("See how many cups I have.", agent="browser")
    tab.until("Waiting for you")
    return tab


def take(tab: Tab, title: str) -> None:
    """Take the browser over, and wait until its page is seen."""
    tab.page.get_by_role("button", name="Take the browser over").first.click()
    sees(tab, title)


def take_when_free(tab: Tab, title: str) -> None:
    """Take the browser over without taking it from anybody, however often that must be tried."""
    seen = tab.page.locator(".takeover-address", has_text=title)
    held = tab.page.locator(".takeover-note", has_text="in another tab")
    while not seen.is_visible():
        tab.page.get_by_role("button", name="Take the browser over").first.click()
        expect(seen.or_(held)).to_be_visible()
        if held.is_visible():
            tab.page.get_by_role("button", name="Leave").click()


def sees(tab: Tab, title: str) -> None:
    expect(tab.page.locator(".takeover-address")).to_contain_text(title)


def place(tab: Tab, x: float, y: float) -> tuple[float, float]:
    """Return where on the page a place of the agent's window is."""
    box = tab.page.locator(".stage").bounding_box()
    size = tab.page.locator(".stage").evaluate("(it) => [it.width, it.height]")
    natural = tab.page.locator(".stage").evaluate(
        "(it) => [Number(it.getAttribute('width')), Number(it.getAttribute('height'))]"
    )
    assert box is not None
    assert size[0] > 0
    return box["x"] + x * box["width"] / natural[0], box["y"] + y * box["height"] / natural[1]


def log_in(tab: Tab) -> None:
    """Do as a person does: name, password, and the code in its six boxes."""
    keys = tab.page.keyboard
    keys.type(USER)
    keys.press("Tab")
    keys.type(PASSWORD)
    keys.press("Enter")
    sees(tab, "Second factor")
    keys.type(CODE)
    sees(tab, "Home")


def test_a_person_logs_in_and_the_agent_learns_only_that_it_is_done(
    at: Desk, site: LoginSite
) -> None:
    tab = begin(at, site, Reply(calls=(LOOK,)), Reply(text="You have 7 cups."))
    thread = tab.thread
    take(tab, "Log in")
    assert violations(tab) == []
    tab.page.mouse.click(*place(tab, *FIELD))
    log_in(tab)
    assert site.tried[0] == {"user": USER, "word": PASSWORD}
    tab.page.get_by_role("button", name="Give it back").click()
    tab.until("Finished")
    tab.sees("You have 7 cups.")
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
    sent = json.dumps([one.body for one in at.model.requests], ensure_ascii=False)
    assert "Welcome, [typed by the person]. 7 cups." in sent
    assert "Done." in sent
    events = at.ask("GET", f"/app/api/threads/{thread}/checkpoints").text
    kept = [path for path in at.served.folder.rglob("*") if path.is_file()]
    for typed in (USER, PASSWORD, CODE):
        assert typed not in sent
        assert typed not in events
        assert not [path for path in kept if typed.encode() in path.read_bytes()]
    tab.close()


@pytest.mark.exhaustive
def test_one_person_at_a_time_and_another_one_may_take_it(at: Desk, site: LoginSite) -> None:
    first = begin(at, site)
    take(first, "Log in")
    second = at.tab(first.thread)
    second.until("Waiting for you")
    second.page.get_by_role("button", name="Take the browser over").first.click()
    expect(second.page.locator(".takeover-note")).to_contain_text("in another tab")
    second.page.get_by_role("button", name="Take it all the same").click()
    sees(second, "Log in")
    expect(first.page.locator(".takeover-note")).to_contain_text("This is over")
    first.page.get_by_role("button", name="Leave").click()
    second.page.mouse.click(*place(second, *FIELD))
    second.page.keyboard.type("abcx")
    second.page.keyboard.press("Backspace")
    second.page.keyboard.press("Enter")
    sees(second, "Log in")
    second.page.keyboard.press("Escape")
    expect(second.page.get_by_role("button", name="Give it back")).to_be_focused()
    while not site.tried:
        second.page.wait_for_timeout(20)
    assert site.tried == [{"user": "abc"}]
    second.close()
    # The tab was closed: the browser is free again, and the question still open.
    take_when_free(first, "Log in")
    first.page.get_by_role("button", name="Leave").click()
    expect(first.page.locator(".ask")).to_be_visible()
    first.close()


@pytest.mark.exhaustive
def test_the_browser_of_a_plans_step_is_the_one_that_is_taken_over(
    at: Desk, site: LoginSite
) -> None:
    calls = (go(site), ASK, LOOK)
    steps: list[dict[str, Any]] = [
        {"id": name, "text": f"do {name}", "depends_on": []} for name in "ab"
    ]

    def answer(body: dict[str, Any]) -> Reply:
        first, messages = str(body["messages"][0]["content"]), body["messages"]
        if first.startswith("You plan how"):
            return Reply(calls=(Call("planning", {"command": "create", "steps": steps}),))
        done = sum(message["role"] == "tool" for message in messages)
        if "Your step (a)" in str(messages[1]["content"]) and done < len(calls):
            return Reply(calls=(calls[done],))
        return Reply(text="Done as asked.")

    at.model.begin_again()
    at.model.add(*[answer] * 20)
    tab = at.tab()
    tab.start("Count my cups, and greet me.", agent="planning")
    tab.until("Waiting for you")
    take(tab, "Log in")
    tab.page.mouse.click(*place(tab, *FIELD))
    log_in(tab)
    tab.page.get_by_role("button", name="Give it back").click()
    tab.until("Finished")
    assert "Welcome, [typed by the person]. 7 cups." in str([one.body for one in at.model.requests])
    tab.close()


def test_of_two_who_begin_at_once_one_has_it(at: Desk, site: LoginSite) -> None:
    tab = begin(at, site)
    path = f"/app/api/threads/{tab.thread}/takeover"
    with ThreadPoolExecutor() as people:
        asked = [people.submit(at.ask, "POST", path, json={}, timeout=BACKSTOP_S) for _ in range(2)]
        first, second = sorted((one.result() for one in asked), key=lambda one: one.status_code)
    assert (first.status_code, second.status_code) == (201, 409)
    assert "in another tab" in second.text
    assert at.ask("DELETE", f"{path}/of-somebody-else").status_code == 410
    held = f"{path}/{first.json()['id']}"
    wrong = at.ask("POST", f"{held}/input", json=[{"kind": "steal", "text": PASSWORD}])
    assert wrong.status_code == 422
    assert at.ask("DELETE", held).status_code == 204
    assert at.ask("POST", f"{held}/input", json=[{"kind": "text", "text": "x"}]).status_code == 410
    assert PASSWORD not in at.served.log
    tab.close()


@pytest.mark.exhaustive
def test_a_run_that_ends_leaves_the_browser_to_the_person_and_a_deletion_takes_it(
    at: Desk, site: LoginSite
) -> None:
    tab = begin(at, site, Reply(text="I do without."))
    take(tab, "Log in")
    questions = at.ask("GET", f"/app/api/threads/{tab.thread}").json()["interrupts"]
    answers = {questions[0]["id"]: {"type": "respond", "message": "No."}}
    path = f"/app/api/threads/{tab.thread}"
    assert at.ask("POST", f"{path}/runs", json={"answers": answers}).status_code == 202
    tab.until("Finished")
    tab.page.mouse.click(*place(tab, *FIELD))
    log_in(tab)
    assert at.ask("DELETE", path).status_code == 204
    expect(tab.page.locator(".takeover-note")).to_contain_text("This is over")
    assert at.ask("POST", f"{path}/takeover", json={}).status_code == 404
    tab.close()


def test_the_agent_waits_while_a_person_has_the_browser_and_a_stopped_run_leaves_it(
    at: Desk, site: LoginSite
) -> None:
    at.model.begin_again()
    at.model.add(
        Reply(calls=(go(site),)), Reply(text="It wants a login."),
        Reply(calls=(LOOK, Call("bash", {"command": "sleep 60"}))), Reply(text="Later."),
    )  # fmt: skip
    tab = at.tab()
    thread = tab.start("Look.", agent="manus")
    tab.until("Finished")
    tab.page.get_by_role("tab", name="Browser").click()
    take(tab, "Log in")
    ask = {"message": "Look again.", "agent": "manus"}
    assert at.ask("POST", f"/app/api/threads/{thread}/runs", json=ask).status_code == 202
    tab.sees("a person has taken the browser over")
    assert at.ask("POST", f"/app/api/threads/{thread}/stop").status_code == 202
    tab.until("Stopped by you")
    tab.page.mouse.click(*place(tab, *FIELD))
    log_in(tab)
    tab.page.get_by_role("button", name="Give it back").click()
    expect(tab.page.locator(".panel .address")).to_contain_text("Home")
    tab.close()


@pytest.mark.exhaustive
def test_it_works_on_a_phone_by_the_link_that_the_terminal_printed(
    at: Desk, site: LoginSite
) -> None:
    started = begin(at, site, Reply(text="Thank you."))
    thread = started.thread
    started.close()
    link = re.compile(rf"take its browser over: (\S+/app/t/{thread}\?browser=#token=\S+)")
    tab = Tab(at.browser, at.served, **PHONE)
    while not (found := link.search(at.served.log)):
        tab.page.wait_for_timeout(20)
    tab.page.goto(found[1])
    sees(tab, "Log in")
    assert violations(tab) == []
    tab.page.touchscreen.tap(*place(tab, *FIELD))
    log_in(tab)
    tab.page.get_by_role("button", name="Give it back").tap()
    tab.until("Finished")
    assert "browser" not in tab.page.url
    tab.close()
