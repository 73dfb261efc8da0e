"""What an agent made, on the page: in the conversation, beside it and in the exported file."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.e2e.test_page_access import violations
from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab

pytestmark = pytest.mark.slow

PIXEL = base64.b64encode(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJg"
        "gg=="
    )
).decode()
EVIL = "<p>Total</p><link rel=preconnect href=http://127.0.0.1:9><script>alert(1)</script>"
MAKE = f"""
import base64
import re
for name in ("a.png", "b.png"):
    open(name, "wb").write(base64.b64decode("{PIXEL}"))
open("report.html", "w").write({EVIL!r})
open("sales.csv", "w").write("month,amount\\n" + "".join(f"{{n}},{{n * 7}}\\n" for n in range(40)))
open("wide.csv", "w").write(",".join(f"c{{n}}" for n in range(500)) + "\\n" + ",".join("1" * 500))
"""
SAID = "See ![A](a.png), `sales.csv`, report.html. Or [the picture](b.png) of x.y."


def work(at: Desk, tab: Tab) -> str:
    at.model.add(Reply(calls=(Call("python_execute", {"code": MAKE}),)), Reply(text=SAID))
    thread = tab.start("Make them.")
    tab.until("Finished")
    return thread


def test_results_stand_in_the_conversation_and_open_beside_it(at: Desk, tab: Tab) -> None:
    work(at, tab)
    page = tab.page
    cards = page.locator(".artifact")
    expect(cards).to_have_count(4)
    assert [name.split("\n")[0] for name in cards.all_inner_texts()] == [
        "b.png", "report.html", "sales.csv", "wide.csv",
    ], "the picture that the answer shows is not shown again"  # fmt: skip
    expect(cards.nth(1).frame_locator("iframe").locator("p")).to_have_text("Total")
    assert cards.nth(1).locator("iframe").get_attribute("sandbox") == ""
    expect(cards.nth(2)).to_contain_text("… 34 more lines")
    expect(cards.nth(3).locator("th")).to_have_count(8)
    expect(cards.nth(3)).to_contain_text("… 492 more columns")
    links = page.locator(".row-think .md .inline-link")
    expect(links).to_have_text(["sales.csv", "report.html", "the picture"])
    links.first.click()
    beside = page.locator(".panel").get_by_role("dialog", name="sales.csv")
    expect(beside.locator("tbody tr")).to_have_count(40)
    expect(page.get_by_role("textbox", name="Next message")).to_be_visible()
    assert violations(tab) == []
    at.ask("PUT", f"/app/api/threads/{tab.thread}/files/sales.csv?replace=1", content=b"a\n1\n2\n")
    at.model.add(Reply(calls=(Call("bash", {"command": "true"}),)), Reply(text="Changed."))
    page.get_by_role("textbox", name="Next message").fill("Look again.")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(beside.locator("tbody tr")).to_have_count(2)
    tab.until("Finished")
    page.keyboard.press("Escape")
    expect(beside).to_be_hidden()


LARGE = """
size = 100_000_000
open("large.png", "wb").write(bytes.fromhex("89504e470d0a1a0a"))
open("large.png", "ab").truncate(size)
line = "- **a** `b` [c](d.md) and text, 1, 2, 3\\n"
for name in ("large.md", "large.csv"):
    with open(name, "w") as file:
        for _ in range(100):
            file.write(line * (size // 100 // len(line)))
"""
GAPS = """() => {
    let before = performance.now();
    window.longest = 0;
    const look = (now) => {
        window.longest = Math.max(window.longest, now - before);
        before = now;
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
}"""


@pytest.mark.parametrize("name", ["large.png", "large.md", "large.csv"])
def test_a_result_of_100_mb_has_its_size_and_a_download(at: Desk, tab: Tab, name: str) -> None:
    at.model.add(Reply(calls=(Call("python_execute", {"code": LARGE}),)), Reply(f"See `{name}`."))
    tab.start("Make them.")
    tab.until("Finished")
    page = tab.page
    page.evaluate(GAPS)
    page.locator(".row-think .md .inline-link").click()
    beside = page.locator(".panel").get_by_role("dialog", name=name)
    expect(beside).to_contain_text("100 MB")
    expect(beside.get_by_role("link", name=f"Download {name}")).to_be_visible()
    expect(beside).not_to_contain_text("Loading")
    expect(beside.locator(".preview-content > *").first).to_be_attached()
    assert page.evaluate("() => window.longest") < 2000, "milliseconds without a frame"


def test_the_exported_file_has_the_results_and_nothing_of_them_runs(
    at: Desk, tab: Tab, tmp_path: Path
) -> None:
    thread = work(at, tab)
    answer = at.ask("GET", f"/app/api/threads/{thread}/export?form=html")
    assert answer.headers["content-disposition"] == "attachment"
    file = tmp_path / "run.html"
    file.write_bytes(answer.content)
    page = tab.context.new_page()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    page.on("dialog", lambda one: asked.append(one.message))
    page.goto(file.as_uri())
    cards = page.locator(".artifact")
    expect(cards).to_have_count(4)
    expect(cards.nth(1).frame_locator("iframe").locator("p")).to_have_text("Total")
    drawn = page.locator(".md img").evaluate("(img) => img.decode().then(() => img.naturalWidth)")
    assert drawn == 1
    page.locator(".md .inline-link").first.click()
    expect(page.get_by_role("dialog").locator("tbody tr")).to_have_count(40)
    assert not [url for url in asked if not url.startswith(("blob:", "data:", file.as_uri()))]
    shared = at.ask("POST", f"/app/api/threads/{thread}/shares").json()["url"]
    assert "data:image" not in at.ask("GET", shared).text.partition("<script")[2], (
        "a link shows what was said, not the files"
    )
    at.ask("DELETE", f"/app/api/threads/{thread}")
    assert at.ask("GET", shared).status_code == 404


def test_subagents_are_cards_that_open_and_close(at: Desk, tab: Tab) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        text = str(body["messages"])
        done = [one for one in body["messages"] if one["role"] == "tool"]
        if "You are a subagent" in text:
            look = Call("bash", {"command": "echo inner work"})
            return Reply("Looked.") if done else Reply(text="I look.", calls=(look,))
        ask = Call("delegate", {"agent": "manus", "task": "Look."})
        return Reply("All is done.") if done else Reply(calls=(ask, ask))

    at.model.add(*[answer] * 6)
    path = Path(at.served.env["XDG_CONFIG_HOME"]) / "openmanus" / "config.toml"
    before = path.read_text()
    path.write_text(f'tools = ["+delegate"]\n{before}')
    tab.start("Delegate it.")
    tab.until("Finished")
    path.write_text(before)
    cards = tab.page.locator(".group")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text("completed · 1 call · $")
    expect(cards.first).to_contain_text("Look.")
    expect(tab.page.locator(".call", has_text="ask manus")).to_have_count(0)
    timeline = tab.page.locator(".timeline")
    expect(timeline).not_to_contain_text("inner work")
    assert timeline.inner_text().count("Looked.") == 0, "each is shown once, under its card"
    cards.first.get_by_role("button").click()
    expect(tab.page.locator(".row.nested .call")).to_have_text(re.compile("echo inner work"))
    expect(timeline).to_contain_text("Looked.")
    assert violations(tab) == []
    cards.first.get_by_role("button").click()
    expect(timeline).not_to_contain_text("inner work")


def test_a_message_is_edited_and_its_versions_are_looked_at(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(Call("bash", {"command": "echo red > colour"}),)),
        Reply(text="It is red."),
        Reply(text="It is blue."),
        Reply(text="It is green."),
        Reply(text="It is green again."),
    )
    tab.start("Paint it red.")
    tab.until("Finished")
    page, timeline = tab.page, tab.page.locator(".timeline")

    def edit(text: str) -> None:
        page.get_by_role("button", name="Edit the message and go on from there").last.click()
        dialog = page.get_by_role("dialog", name="Edit the message")
        dialog.get_by_label("Your message").fill(text)
        dialog.get_by_role("button", name="Send").click()

    edit("Paint it blue.")
    tab.sees("It is blue.")
    tab.until("Finished")
    expect(timeline).not_to_contain_text("red")
    said = str([one["content"] for one in at.model.requests[-1].body["messages"]])
    assert "blue" in said
    assert "Paint it red." not in said
    folder = at.served.folder / "workspace" / tab.thread
    assert not (folder / "colour").exists(), "the files are those from before the message"
    edit("Paint it green.")
    tab.sees("It is green.")
    tab.until("Finished")
    page.get_by_role("button", name="Regenerate").click()
    tab.sees("It is green again.")
    tab.until("Finished")
    expect(timeline.locator(".versions")).to_have_text(["3/3", "2/2"])
    before = timeline.get_by_role("button", name="Previous version")
    before.first.click()
    expect(timeline.locator(".versions")).to_have_text(["2/3"])
    tab.sees("It is blue.")
    before.first.click()
    tab.sees("It is red.")
    expect(timeline).not_to_contain_text("blue")
    assert violations(tab) == []
    page.reload()
    tab.sees("It is green again.")
    expect(timeline.locator(".row-task, .row-again")).to_have_count(2)


def test_a_message_is_not_edited_while_a_run_goes_on_in_another_tab(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(text="One."))
    tab.start("Say one.")
    tab.until("Finished")
    page = tab.page
    edit = page.get_by_role("button", name="Edit the message and go on from there")
    edit.click()
    dialog = page.get_by_role("dialog", name="Edit the message")
    dialog.get_by_label("Your message").fill("Say three.")
    at.model.add(Reply(text="Two. " * 50, fault="stall"))
    other = at.tab(tab.thread)
    other.until("Finished")
    other.page.get_by_role("textbox", name="Next message").fill("Say two.")
    other.page.get_by_role("button", name="Send", exact=True).click()
    other.until("Running")
    expect(edit).to_have_count(0)
    dialog.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert").filter(has_text="A run works on this thread")).to_be_visible()
    expect(other.page.locator(".row-task")).to_have_count(2)
    other.page.get_by_role("button", name="Stop", exact=True).click()
    other.until("Stopped by you")
    tab.until("Stopped by you")
    expect(edit).to_have_count(2)
    other.close()


FORMULAS = r"""
The roots of $ax^2 + bx + c = 0$ are \(x_{1,2}\), for $5 and for $10:

$$
x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}
$$

\[ \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}
\begin{cases} a & \text{if } b \\ \boxed{c} & \cancel{d} \end{cases} \]

`$y^2$` and $\href{javascript:alert(1)}{x}$
and $\includegraphics{http://127.0.0.1:9/a.png}$ and $\undefined^2$
and $\class{call}{x} \style{position: fixed}{y}$ and $\def\a{\a\a}\a$.
"""


def test_formulas_are_drawn_and_can_do_nothing_else(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(text=FORMULAS))
    tab.start("Solve it.")
    tab.until("Finished")
    said = tab.page.locator(".timeline .md").last
    expect(said.locator("math")).to_have_count(4)
    expect(said.locator("mfrac msqrt")).to_have_count(1)
    expect(said.locator(".formula.display mtable")).to_have_count(2)
    expect(said).to_contain_text("for $5 and for $10:")
    expect(said.locator("code")).to_have_text("$y^2$")
    for unread in ("javascript", "includegraphics", "undefined", "position: fixed", "a\\a"):
        expect(said.locator(".formula", has_text=unread)).to_have_count(1)
    assert said.locator("a, img, [class=call]").count() == 0
    assert tab.wrong == []
    assert violations(tab) == []


def test_reasoning_is_closed_until_it_is_wanted(at: Desk, tab: Tab) -> None:
    thought = "I think <b>hard</b>. " * 50_000
    at.model.add(Reply(text="Four.", reasoning=thought, piece_size=20_000))
    tab.start("Two and two?")
    tab.until("Finished")
    timeline = tab.page.locator(".timeline")
    expect(timeline).not_to_contain_text("I think")
    timeline.get_by_role("button", name=re.compile(r"Thought( for .*)?")).click()
    expect(timeline.locator(".reasoning .pre")).to_contain_text("I think <b>hard</b>.")
    expect(timeline.locator(".reasoning .pre")).to_contain_text("more characters")
    assert violations(tab) == []


def test_reasoning_is_shown_while_the_model_thinks(at: Desk, tab: Tab) -> None:
    thought = "".join(f"Idea {n} is <b>good</b>. " for n in range(50_000))
    at.model.add(Reply(text="Four.", reasoning=thought, piece_size=20_000, fault="stall"))
    tab.start("Two and two?")
    timeline = tab.page.locator(".timeline")
    block = timeline.get_by_role("button", name=re.compile(r"^Thinking"))
    expect(block).to_have_text(re.compile(r"Thinking\d.* s"))
    block.click()
    shown = timeline.locator(".reasoning .pre")
    expect(shown).to_contain_text("is <b>good</b>.")
    assert 3_000 < len(shown.inner_text()) < 5_000, "the newest of it"
    box, inner = shown.bounding_box(), shown.locator("div").bounding_box()
    assert box
    assert inner
    assert abs(box["y"] + box["height"] - inner["y"] - inner["height"]) < 20, "at its end"
    tab.page.get_by_role("button", name="Stop", exact=True).click()
    tab.until("Stopped by you")


def test_a_model_that_is_down_gives_one_notice_and_two_ways_on(at: Desk, tab: Tab) -> None:
    down = Reply(status=400, error={"message": "no such model"})
    at.model.add(down)
    tab.start("Work.")
    tab.until("Failed")
    send = tab.page.get_by_role("button", name="Send", exact=True)
    place = send.bounding_box()
    tab.page.get_by_role("button", name="Change the model").click()
    expect(tab.page.get_by_role("combobox", name="Model")).to_be_focused()
    tab.page.keyboard.press("Escape")
    at.model.add(
        Reply(text="I begin.", calls=(Call("bash", {"command": "sleep 2"}),)), Reply(text="Done.")
    )
    tab.page.get_by_role("button", name="Try again", exact=True).click()
    expect(tab.page.locator(".call.running")).to_be_visible()
    assert send.bounding_box() == place, "Send stays where it is"
    tab.until("Finished")
    assert send.bounding_box() == place
    notices = tab.page.evaluate(
        """async () => {
            const { modelOf } = await import("/app/static/js/reducer.js");
            const notice = (seq, text) => ({ type: "notice", level: "warning", text, ts: "", seq });
            const events = [1, 2, 3].map((n) => notice(n, `Attempt ${n} of 6; next in ${n} s.`));
            const { rows } = modelOf([...events, notice(4, "Another.")]);
            return rows.map((row) => [row.text, row.times]);
        }"""
    )
    assert notices == [["Attempt 3 of 6; next in 3 s.", 3], ["Another.", 1]]


def test_a_person_who_looks_elsewhere_is_told_that_a_run_has_ended(at: Desk, tab: Tab) -> None:
    page = tab.page
    tab.context.grant_permissions(["notifications"])
    page.evaluate(
        """() => {
            window.told = [];
            window.Notification = class {
                static permission = "granted";
                constructor(title, { body }) { window.told.push([title, body]); }
            };
        }"""
    )
    at.model.add(Reply(text="One."), Reply(text="Two."), Reply(text="Three."))
    expect(page.locator("#agent option").first).to_be_attached()
    page.get_by_role("button", name="Keyboard and help").click()
    page.get_by_label("Notify me").check()
    page.keyboard.press("Escape")
    tab.start("First.")
    tab.until("Finished")
    assert page.evaluate("() => window.told") == [], "it is in sight"
    page.evaluate("() => Object.defineProperty(document, 'hidden', { value: true })")
    box = page.get_by_role("textbox", name="Next message")
    box.fill("Second.")
    box.press("Enter")
    tab.sees("Two.")
    tab.until("Finished")
    assert page.evaluate("() => window.told") == [["First.", "Finished"]]


def test_the_settings_list_tools_skills_and_servers(at: Desk, tab: Tab) -> None:
    page = tab.page
    page.locator(".options-box summary").click()
    page.get_by_role("button", name="Tools, skills and MCP servers…").click()
    dialog = page.get_by_role("dialog", name="Tools, skills and MCP servers")
    expect(dialog.get_by_role("listitem").filter(has_text="python_execute")).to_have_count(1)
    expect(dialog).to_contain_text("None. Add one with: openmanus skills add")
    expect(dialog).to_contain_text("None. Add one with: openmanus mcp add")
    assert violations(tab) == []
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
