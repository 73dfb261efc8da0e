"""What a person does on the page, in a real browser against a real server."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.support.graphs import own_words
from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab
from tests.support.static_site import serving

pytestmark = pytest.mark.slow

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
ALERT_LINK = "[see](javascript:alert(3)) [data](data:text/html,<script>alert(4)</script>)"


def invoice(customer: str, amount: float = 1.0) -> Call:
    return Call("send_invoice", {"customer": customer, "amount": amount})


def test_a_task_streams_its_steps_and_asks_and_ends_with_files(at: Desk, tab: Tab) -> None:
    script = (
        "open('chart.svg', 'w').write('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'); print(6 * 7)"
    )
    at.model.add(
        Reply(
            text="First I compute.",
            calls=(Call("python_execute", {"code": script}), Call("bash", {"command": "exit 3"})),
        ),
        Reply(calls=(Call("ask_human", {"inquire": "Go on?"}),)),
        Reply(text="It is **42**.\n\n| a | b |\n| - | - |\n| 1 | 2 |"),
    )
    tab.start("What is 6 times 7?", Steps="7", Dollars="0.5")
    tab.sees("First I compute.")
    tab.until("Waiting for you")
    python = tab.page.locator(".call", has_text="python_execute")
    expect(python).to_contain_text("42")
    expect(python.locator(".took")).to_have_text(re.compile(r"\d m?s$"))
    python.get_by_role("button").first.click()
    expect(python.locator(".call-body")).to_contain_text("print(6 * 7)")
    expect(tab.page.locator(".gauge", has_text="Cost")).to_contain_text("$0.0")
    expect(tab.page.locator(".gauge", has_text="Cost")).to_contain_text("/ $0.500")
    expect(tab.page.locator(".gauge", has_text="Steps")).to_contain_text("2 / 7")
    tab.page.get_by_label("Your answer").fill("Yes, do.")
    tab.page.get_by_role("button", name="Send answer").click()
    tab.until("Finished")
    tab.sees("Answered")
    assert tab.page.locator(".row-think strong").inner_text() == "42"
    expect(tab.page.locator(".row-think td").last).to_have_text("2")
    tab.page.locator(".artifact").get_by_role("button", name="chart.svg").click()
    expect(tab.page.get_by_role("dialog").locator("img")).to_be_visible()


def test_calls_are_approved_edited_rejected_and_answered_one_by_one(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(invoice("1"), invoice("2", 5), invoice("3"), invoice("4"))),
        Reply(text="Sent."),
    )
    tab.start("Invoice them.", agent="clerk")
    tab.until("Waiting for you")
    asks = tab.page.locator(".ask")
    # They are asked about at once, before the first of them runs.
    expect(asks).to_have_count(4)
    asks.filter(has_text="customer 1").get_by_role("button", name="Approve", exact=True).click()
    expect(asks).to_have_count(3)
    tab.until("Waiting for you")
    second = asks.filter(has_text="customer 2")
    second.get_by_role("button", name="Edit…").click()
    second.get_by_label("amount").fill("many")
    second.get_by_role("button", name="Approve with these arguments").click()
    expect(second).to_contain_text("amount must be a number.")
    second.get_by_label("amount").fill("7.5")
    second.get_by_role("button", name="Edit as JSON").click()
    assert '"amount": 7.5' in second.get_by_label("Arguments as JSON").input_value()
    second.get_by_role("button", name="Approve with these arguments").click()
    expect(asks).to_have_count(2)
    tab.until("Waiting for you")
    third = asks.filter(has_text="customer 3")
    third.get_by_role("button", name="Reject…").click()
    third.get_by_label("Reason").fill("Not that one.")
    third.get_by_role("button", name="Reject", exact=True).click()
    expect(asks).to_have_count(1)
    tab.until("Waiting for you")
    asks.get_by_role("button", name="Answer instead…").click()
    asks.get_by_label("Text for the agent").fill("Sent by post.")
    asks.get_by_role("button", name="Send", exact=True).click()
    tab.until("Finished")
    reported = {one["tool_call_id"]: one["content"] for one in
    at.model.requests[-1].body["messages"]
            if one["role"] == "tool"}  # fmt: skip
    assert reported["call_1_0"] == "sent 1.0 to 1"
    edited = tab.page.locator(".decided", has_text='customer="2"')
    expect(edited).to_contain_text("amount=7.5")
    assert reported["call_1_1"] == "sent 7.5 to 2"
    assert "Not that one." in reported["call_1_2"]
    assert "Sent by post." in reported["call_1_3"]


def test_several_calls_are_answered_together(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(calls=(invoice("1"), invoice("2"), invoice("3"))), Reply(text="Sent."))
    tab.start("Invoice them.", agent="clerk")
    asks = tab.page.locator(".ask")
    expect(asks).to_have_count(3)
    tab.page.get_by_label("Collect answers").check()
    for number in ("1", "3"):
        ask = asks.filter(has_text=f"customer {number}")
        ask.get_by_role("button", name="Approve", exact=True).click()
    tab.page.get_by_role("button", name="Send 2 of 3").click()
    expect(asks).to_have_count(1)
    tab.until("Waiting for you")
    asks.get_by_role("button", name="Approve", exact=True).click()
    tab.until("Finished")
    assert len(at.model.requests) == 2


def test_a_run_at_its_limit_goes_on_with_a_higher_one(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(Call("bash", {"command": "echo one"}),)),
        Reply(calls=(Call("bash", {"command": "echo two"}),)),
        Reply(text="Both are done."),
    )
    tab.start("Say two words.", Steps="1")
    tab.until("Stopped")
    tab.sees("Stopped: the step limit was reached")
    more = tab.page.get_by_label("Go on with up to")
    expect(more).to_have_value("2")
    more.fill("5")
    tab.page.get_by_role("button", name="Resume").click()
    tab.until("Finished")
    tab.sees("Both are done.")
    expect(tab.page.locator(".row-task")).to_have_count(1)


def test_a_run_is_stopped_and_resumed(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(Call("bash", {"command": "sleep 60"}),)),
        Reply(text="It was cut off, and I am done."),
    )
    tab.start("Sleep.")
    expect(tab.page.locator(".call.running")).to_be_visible()
    tab.page.get_by_role("button", name="Stop").click()
    tab.until("Stopped by you")
    tab.page.get_by_role("button", name="Resume").click()
    tab.until("Finished")
    tab.sees("It was cut off, and I am done.")


def place_of(shown: Locator) -> tuple[float, float]:
    box = shown.bounding_box()
    assert box is not None
    return box["x"], box["y"]


def test_the_page_shows_what_each_step_changed_in_the_files(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(Call("bash", {"command": "printf 'one\\ntwo\\n' > note"}),)),
        Reply(calls=(Call("bash", {"command": "printf 'one\\n2\\n' > note"}),)),
        Reply(text="Done."),
    )
    tab.start("Write.")
    tab.until("Finished")
    tab.page.get_by_role("tab", name="Steps").click()
    shown = tab.page.get_by_role("button", name="What this changed in the files: Step")
    expect(shown).to_have_count(2)
    shown.first.click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog.locator("summary")).to_have_text("changed note+1 −1")
    expect(dialog.locator("td.removed")).to_have_text("removed: two")
    expect(dialog.locator("td.added")).to_have_text("added: 2")
    before, after = place_of(dialog.locator("td.removed")), place_of(dialog.locator("td.added"))
    assert (before[0] < after[0], before[1] == after[1]) == (True, True)
    tab.page.set_viewport_size({"width": 390, "height": 844})
    before, after = place_of(dialog.locator("td.removed")), place_of(dialog.locator("td.added"))
    assert (before[0] == after[0], before[1] < after[1]) == (True, True)
    dialog.get_by_role("button", name="Close").click()


def test_going_back_to_a_step_takes_back_what_came_after_it(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(Call("bash", {"command": "echo first > note"}),)),
        Reply(calls=(Call("bash", {"command": "echo second > note; echo > more"}),)),
        Reply(text="The wrong end."),
        Reply(text="The right end."),
    )
    tab.start("Try.")
    tab.until("Finished")
    second = tab.page.locator(".row-think", has_text="Step 2")
    second.get_by_role("button", name="Try again from here").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("What to do differently").fill("Say it rightly.")
    dialog.get_by_role("button", name="Try again from here").click()
    tab.sees("The right end.")
    tab.until("Finished")
    wrong = tab.page.locator(".row.dropped", has_text="The wrong end.")
    expect(wrong).to_have_count(0)
    tab.page.get_by_role("button", name="Previous version").click()
    expect(wrong).to_be_visible()
    expect(tab.page.locator(".timeline")).not_to_contain_text("The right end.")
    tab.page.get_by_role("button", name="Next version").click()
    tab.sees("The right end.")
    expect(tab.page.locator(".row-call:not(.dropped)", has_text="echo first")).to_be_visible()
    tab.sees("Files were turned back: 1 written, 1 removed.")
    files = at.served.folder / "workspace" / tab.thread
    assert [(one.name, one.read_text()) for one in files.iterdir()] == [("note", "first\n")]
    said = [one["content"] for one in at.model.requests[-1].body["messages"]]
    assert not any("wrong" in str(one) for one in said)
    assert any("Say it rightly." in str(one) for one in said)


def test_a_running_agent_reads_a_correction_at_its_next_step(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(Call("bash", {"command": "sleep 3"}),)),
        Reply(text="In blue, then."),
    )
    tab.start("Paint it.")
    expect(tab.page.locator(".call.running")).to_be_visible()
    box = tab.page.get_by_label("Correction for the running agent")
    box.fill("Make it blue.")
    box.press("Enter")
    tab.until("Finished")
    tab.sees("In blue, then.")
    expect(tab.page.locator(".row-steer")).to_contain_text("Make it blue.")
    said = [str(one["content"]) for one in at.model.requests[-1].body["messages"]]
    assert any("Make it blue." in one for one in said)


def test_a_plan_is_a_checklist(at: Desk, tab: Tab) -> None:
    create = {"command": "create", "plan_id": "p", "title": "T", "steps": [f"Look {EVIL}", "Write"]}
    done = {"command": "mark_step", "step_index": 0, "step_status": "completed"}
    at.model.add(
        Reply(calls=(Call("planning", create),)),
        Reply(calls=(Call("planning", done),)),
        Reply(text="So far."),
    )
    tab.start("Make a plan.", agent="planner")
    tab.until("Finished")
    panel = tab.page.locator(".panel")
    expect(panel).to_contain_text("1 of 2 steps completed")
    expect(panel.locator("li").first).to_contain_text(f"Look {EVIL}")
    expect(panel.locator("li").first).to_contain_text("completed")


def test_files_chosen_before_the_page_is_ready_are_kept(at: Desk, tab: Tab, tmp_path: Path) -> None:
    names = ("one.txt", "two.txt", "three.txt")
    for name in names:
        (tmp_path / name).write_text(name, "utf-8")
    held: list[Route] = []
    page = tab.page
    page.route("**/app/api/options", lambda route: held.append(route))
    page.route("**/files/three.txt*", lambda route: route.abort())
    page.reload()
    chooser = page.locator(".composer input[type=file]")
    chooser.set_input_files([tmp_path / name for name in names])
    page.get_by_role("textbox", name="Task", exact=True).fill("Look.")
    expect(page.locator(".attached li")).to_have_count(3)
    expect(page.locator(".attached")).to_contain_text("The upload broke off")
    at.model.add(Reply(calls=(Call("bash", {"command": "cat *.txt"}),)), Reply(text="I see them."))
    page.unroute("**/app/api/options")
    held.pop().continue_()
    expect(page.locator("#agent option").first).to_be_attached()
    page.get_by_role("button", name="Start", exact=True).click()
    tab.until("Finished")
    page.get_by_role("tab", name="Files").click()
    expect(page.locator(".files li")).to_have_count(2)
    expect(page.locator(".attached")).to_contain_text("three.txt")
    expect(page.locator(".attached")).to_contain_text("The upload broke off")


@pytest.mark.parametrize(
    "way",
    ["pasted", *(pytest.param(way, marks=pytest.mark.exhaustive) for way in ("inserted", "set"))],
)
def test_a_very_long_text_that_comes_at_once_goes_along_as_a_file(
    at: Desk, tab: Tab, way: str
) -> None:
    at.model.begin_again()
    look = Reply(calls=(Call("bash", {"command": "head -c 99 pasted-*"}),))
    at.model.add(look, Reply(text="Read."))
    page = tab.page
    expect(page.locator("#agent option").first).to_be_attached()
    box = page.get_by_role("textbox", name="Task", exact=True)
    box.fill("Read what I pasted.")
    match way:
        case "pasted":
            page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            page.evaluate("() => navigator.clipboard.writeText('word\\n'.repeat(2e6))")
            box.press("Control+V")
        case "inserted":  # as by a dictation, an input method or a text that is dropped
            page.keyboard.insert_text("word\n" * 2_000_000)
        case _:
            box.evaluate(
                "(box) => { box.value += 'word\\n'.repeat(2e6);"
                " box.dispatchEvent(new Event('input', { bubbles: true })); }"
            )
    expect(box).to_have_value("Read what I pasted.")
    expect(page.locator(".attached")).to_contain_text("10 MB")
    page.get_by_role("button", name="Start", exact=True).click()
    tab.until("Finished")
    tab.sees("Read what I pasted.")
    expect(page.locator(".files li")).to_have_count(1)
    expect(page.locator(".files")).to_contain_text("pasted-")
    reported = own_words(str(at.model.requests[0].messages[-1]["content"]))
    assert re.fullmatch(
        r"Read what I pasted\.\n\nFiles in the workspace: pasted-\d{14}\.txt", reported
    ), "the agent knows what came along"
    expect(page.locator(".thread").first).to_contain_text("Read what I pasted.")
    expect(page.locator(".thread").first).not_to_contain_text("pasted-")


def test_files_are_uploaded_shown_and_downloaded(at: Desk, tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text('name,size\n"a, b",3\n', "utf-8")
    name = "<img src=x onerror=alert(1)>.md"
    (tmp_path / name).write_text(f"# Notes\n\n{EVIL}\n\n{ALERT_LINK}\n", "utf-8")
    (tmp_path / "chart.html").write_text(
        "<p>chart</p><script>try { parent.document.title = 'stolen' } catch { "
        "document.querySelector('p').textContent = 'kept apart' }</script>",
        "utf-8",
    )
    big = tmp_path / "big.bin"
    with big.open("wb") as file:
        file.truncate(100_000_000)
    at.model.add(Reply(text="I see them."))
    page = tab.page
    chooser = page.locator(".composer input[type=file]")
    chooser.set_input_files([tmp_path / "data.csv", tmp_path / name, tmp_path / "chart.html", big])
    tab.start("Look at these files.")
    tab.until("Finished")
    page.get_by_role("tab", name="Files").click()
    files = page.locator(".files")
    expect(files).to_contain_text("100 MB")
    files.get_by_role("button", name="data.csv").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("td").first).to_have_text("a, b")
    page.keyboard.press("Escape")
    files.get_by_role("button", name=name).click()
    expect(dialog.locator(".md h2")).to_have_text("Notes")
    expect(dialog).to_contain_text(EVIL)
    assert dialog.locator(".md a, .md img, .md script").count() == 0
    page.keyboard.press("Escape")
    files.get_by_role("button", name="chart.html").click()
    expect(dialog.frame_locator("iframe").locator("p")).to_have_text("chart")
    dialog.get_by_role("button", name="Run its scripts").click()
    expect(dialog.frame_locator("iframe").locator("p")).to_have_text("kept apart")
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        files.get_by_role("link", name="Download data.csv").click()
    assert download.value.path().read_text("utf-8").startswith("name,size")


def test_what_others_wrote_is_shown_and_never_run(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(
            text=f"{EVIL} {ALERT_LINK} ![x](http://127.0.0.1:1/spy.png) [ok](https://example.org)",
            calls=(Call("bash", {"command": f"echo '{EVIL}'"}),),
        ),
        Reply(calls=(Call("ask_human", {"inquire": EVIL}),)),
        Reply(text="Done."),
    )
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.start(f"Show {EVIL}")
    tab.until("Waiting for you")
    tab.sees(EVIL)
    expect(tab.page.locator(".ask-title")).to_contain_text(EVIL)
    expect(tab.page.locator(".call .preview").first).to_have_text(EVIL)
    links = tab.page.locator(".row-think .md a")
    expect(links).to_have_count(1)
    assert links.get_attribute("rel") == "noopener noreferrer nofollow"
    assert not [url for url in asked if not url.startswith(at.served.url)]
    tab.page.get_by_label("Your answer").fill(EVIL)
    tab.page.get_by_role("button", name="Send answer").click()
    tab.until("Finished")
    assert tab.page.title().endswith("– OpenManus")


def test_threads_are_searched_opened_and_deleted(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(text="Of apples."), Reply(text="Of pears."))
    tab.start("Tell me of apples zq1.")
    tab.until("Finished")
    tab.start("Tell me of pears zq1.")
    tab.until("Finished")
    threads = tab.page.locator(".thread")
    tab.page.get_by_label("Search threads").fill("zq1")
    expect(threads).to_have_count(2)
    tab.page.get_by_label("Search threads").fill("apples zq1")
    expect(threads).to_have_count(1)
    threads.get_by_role("link").click()
    tab.sees("Of apples.")
    tab.page.get_by_label("Search threads").fill("zq1")
    tab.page.get_by_role("button", name="Delete the thread Tell me of pears zq1.").click()
    asked = tab.page.get_by_role("alertdialog")
    expect(asked).to_contain_text("Its files stay in the workspace.")
    asked.get_by_role("button", name="Cancel").click()
    expect(threads).to_have_count(2)
    tab.page.get_by_role("button", name="Delete the thread Tell me of pears zq1.").click()
    asked.get_by_role("button", name="Delete").click()
    expect(threads).to_have_count(1)


@pytest.mark.exhaustive
def test_the_desktop_of_the_agent_is_seen(at: Desk, tab: Tab) -> None:
    look = Call("computer_use", {"action": "screenshot"})
    at.model.add(Reply(calls=(look,)), Reply(text="Seen."))
    tab.start("Look.", agent="desktop")
    tab.page.get_by_role("tab", name="Desktop").click()
    tab.until("Finished")
    view = tab.page.locator(".panel")
    expect(view.locator(".address")).to_contain_text("Desktop")
    width = view.locator("img").evaluate("(it) => it.decode().then(() => it.naturalWidth)")
    assert width == 1280


def test_the_browser_of_the_agent_is_seen(at: Desk, tab: Tab, tmp_path: Path) -> None:
    page = f"<title>{html.escape(EVIL)}</title><body style='background: #08f'><h1>Hello</h1>"
    (tmp_path / "index.html").write_text(page, "utf-8")
    with serving(folder=tmp_path) as site:
        go: dict[str, Any] = {"action": "go_to_url", "url": f"{site}/index.html"}
        at.model.add(Reply(calls=(Call("browser_use", go),)), Reply(text="Seen."))
        tab.start("Look.", agent="browser")
        tab.page.get_by_role("tab", name="Browser").click()
        tab.until("Finished")
        view = tab.page.locator(".panel")
        expect(view.locator(".address")).to_contain_text(EVIL)
        expect(view.get_by_role("link")).to_have_attribute("href", f"{site}/index.html")
        expect(view.locator("img")).to_be_visible()
        width = view.locator("img").evaluate("(it) => it.decode().then(() => it.naturalWidth)")
        assert width > 500
