"""What the page says, in which language, and what it finds, names and hands out."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.e2e.test_page_access import violations
from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab

pytestmark = pytest.mark.slow

ENGLISH = """() => {
    const allowed = /OpenManus|JSON|Markdown|Python|CSV|report\\.md|MCP|Tab|Enter|Shift|Esc|EN/g;
    const texts = [];
    const seen = (node) => {
        const box = node.getBoundingClientRect();
        return box.width && box.height && getComputedStyle(node).visibility !== 'hidden';
    };
    for (const node of document.querySelectorAll('body *')) {
        if (!seen(node) || node.closest('[lang=en], option, .mono, .thread, .tool, kbd')) continue;
        for (const name of ['aria-label', 'title', 'placeholder']) {
            texts.push(node.getAttribute(name) ?? '');
        }
        for (const child of node.childNodes) if (child.nodeType === 3) texts.push(child.data);
    }
    return texts.filter((text) => /[A-Za-z]{2,}/.test(text.replace(allowed, '')));
}"""
CREATE = Call(
    "str_replace_editor",
    {"command": "create", "path": "sum.py", "file_text": "def add(a, b):\n    return a - b\n"},
)
MEND = Call(
    "str_replace_editor",
    {"command": "str_replace", "path": "sum.py", "old_str": "a - b", "new_str": "a + b"},
)


@pytest.fixture
def tab(at: Desk) -> Iterator[Tab]:
    at.model.begin_again()
    tab = at.tab(permissions=["clipboard-read", "clipboard-write"])
    yield tab
    tab.close()


def test_a_browser_in_chinese_gets_a_chinese_page_and_may_change_it(at: Desk) -> None:
    at.model.begin_again()
    at.model.add(
        Reply(text="第一步。", calls=(Call("send_invoice", {"customer": "1"}),)), Reply(text="好。")
    )
    tab = at.tab(locale="zh-CN")
    page = tab.page
    expect(page.locator("#agent option").first).to_be_attached()
    assert page.locator("html").get_attribute("lang") == "zh-Hans"
    known = ("manus", "openai:test-model")
    left = [text for text in page.evaluate(ENGLISH) if not any(one in text for one in known)]
    assert left == []
    assert violations(tab, ["label-content-name-mismatch"]) == [], "names in two languages"
    page.locator(".options-box summary").click()
    page.locator("#agent").select_option("clerk")
    page.get_by_role("textbox", name="任务", exact=True).fill("开发票")
    page.get_by_role("button", name="开始", exact=True).click()
    expect(page.locator(".ask-title")).to_contain_text("允许 send_invoice 吗？")
    expect(page.locator(".pill")).to_have_text("等待您")
    page.get_by_role("button", name="批准", exact=True).click()
    expect(page.locator(".final-head")).to_contain_text("已完成")
    page.get_by_role("textbox", name="下一条消息").fill("还有一件")
    page.get_by_role("button", name="English").click()
    expect(page.locator(".pill")).to_have_text("Finished")
    assert page.locator("html").get_attribute("lang") == "en"
    expect(page.get_by_role("textbox", name="Next message")).to_have_value("还有一件")
    page.reload()
    expect(page.locator(".pill")).to_have_text("Finished")
    tab.close()


def test_a_thread_keeps_its_first_task_as_its_title_until_it_is_renamed(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(text="One."), Reply(text="Two."))
    tab.start("Tell me of quinces.\nAnd more.")
    tab.until("Finished")
    tab.page.get_by_role("textbox", name="Next message").fill("Now of medlars.")
    tab.page.get_by_role("button", name="Send", exact=True).click()
    tab.sees("Two.")
    tab.until("Finished")
    title = tab.page.get_by_role("heading", level=1)
    expect(title).to_have_text("Tell me of quinces.")
    tab.page.get_by_role("button", name="Rename the thread").click()
    tab.page.get_by_label("Title").fill("Fruit of autumn")
    tab.page.keyboard.press("Enter")
    expect(title).to_have_text("Fruit of autumn")
    tab.page.reload()
    expect(title).to_have_text("Fruit of autumn")
    expect(tab.page.locator(".thread-title").first).to_have_text("Fruit of autumn")


def test_threads_are_found_by_what_was_said_and_shown_in_them(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(Call("bash", {"command": "echo 'rare: xylograph 木版画'"}),)),
        Reply(text="A **palimpsest** it is."),
    )
    tab.start("Look at the old sheet.")
    tab.until("Finished")
    threads = tab.page.locator(".thread")
    search = tab.page.get_by_label("Search threads")
    for words in ("palimpsest", "XYLOGRAPH", "木版", "xylograph 木"):
        search.fill(words)
        expect(threads).to_have_count(1)
        expect(threads.locator(".thread-found")).to_contain_text(re.compile(words, re.IGNORECASE))
    search.fill("call_id")  # a word of the events' own form, which nobody said
    expect(threads).to_have_count(0)


def test_edits_are_shown_as_changed_lines_and_code_in_colours(at: Desk, tab: Tab) -> None:
    at.model.add(
        Reply(calls=(CREATE,)), Reply(calls=(MEND,)), Reply(text="So:\n\n```py\nx = 'é'\n```")
    )
    tab.start("Mend it.")
    tab.until("Finished")
    calls = tab.page.locator(".call", has_text="str_replace_editor")
    expect(calls.last.locator(".summary")).to_have_text("edit sum.py")
    calls.last.get_by_role("button").first.click()
    lines = calls.last.locator(".line")
    expect(lines.locator(".text")).to_have_text(["a - b", "a + b"])
    expect(lines.first).to_have_class(re.compile("removed"))
    code = tab.page.locator(".codebox")
    expect(code.locator(".hljs-string")).to_have_text("'é'")
    code.get_by_role("button", name="Copy").click()
    copied(tab, "x = 'é'")
    head = tab.page.locator(".row-think").last.locator(".step-head")
    head.get_by_role("button", name="Copy").click()
    copied(tab, "So:\n\n```py\nx = 'é'\n```")


def copied(tab: Tab, text: str) -> None:
    """Wait until the clipboard holds a text."""
    while tab.page.evaluate("() => navigator.clipboard.readText()") != text:
        tab.page.wait_for_timeout(20)  # lets the page work; the tests' own limit ends this


def test_a_running_call_shows_what_it_has_written_by_now(at: Desk, tab: Tab) -> None:
    wait = "while [ ! -e go ]; do sleep 0.1; done"
    at.model.add(
        Reply(calls=(Call("bash", {"command": f"echo first; echo second line; {wait}"}),)),
        Reply(text="Done."),
    )
    thread = tab.start("Work.")
    running = tab.page.locator(".call.running")
    expect(running.locator(".preview")).to_have_text("second line")
    path = f"/app/api/threads/{thread}/files/go"
    assert at.ask("PUT", path, content=b"").status_code == 201
    tab.until("Finished")


@pytest.mark.exhaustive
def test_a_thread_is_saved_as_markdown(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(text="It is **bold**."))
    tab.start("Be bold.")
    tab.until("Finished")
    tab.page.get_by_role("button", name="Save or share the thread").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("dialog").get_by_role("button", name="Markdown").click()
    assert download.value.suggested_filename == "Be-bold.md"
    text = download.value.path().read_text("utf-8")
    assert text.startswith("# Be bold.\n")
    assert "## User\n\nBe bold." in text
    assert "It is **bold**." in text


def test_the_model_of_a_thread_is_shown_and_another_one_chosen(at: Desk, tab: Tab) -> None:
    at.model.add(Reply(text="One."), Reply(text="Two."))
    page = tab.page
    tab.start("Say one.")
    tab.until("Finished")
    expect(page.locator(".model")).to_have_text("openai:test-model")
    page.locator(".options-box summary").click()
    page.locator("#model").select_option("Another one…")
    page.get_by_label("Name of the model").fill("openai:other-model")
    page.get_by_role("textbox", name="Next message").fill("Say two.")
    page.get_by_role("button", name="Send", exact=True).click()
    tab.sees("Two.")
    expect(page.locator(".model")).to_have_text("openai:other-model")
    assert at.model.requests[-1].body["model"] == "other-model"
    page.reload()
    tab.until("Finished")
    expect(page.locator(".options-box summary")).to_contain_text("openai:other-model")


CUT_WORDS = """() => {
    const lines = (node) => {
        const words = document.createRange();
        words.selectNodeContents(node);
        return new Set([...words.getClientRects()].map((box) => Math.round(box.top))).size;
    };
    const cut = (node) => lines(node) > 1 || node.scrollWidth > node.clientWidth + 1;
    const names = document.querySelectorAll('th, td.right, .arg > .arg-name, .thread-meta span');
    return [...names].filter((node) => node.getBoundingClientRect().width && cut(node))
        .map((node) => node.textContent);
}"""


@pytest.mark.parametrize("width", [390, 800, 1280])
def test_words_of_tables_and_lists_are_whole_at_any_width(at: Desk, width: int) -> None:
    long = "a rather long remark that has to be wrapped inside of its cell"
    table = f"| month | revenue | remark |\n| - | -: | - |\n| May | 1,250.00 | {long} |"
    at.model.begin_again()
    invoice = Call("send_invoice", {"customer": "with-lease " * 9})
    at.model.add(Reply(text=table, calls=(invoice,)))
    tab = at.tab(viewport={"width": width, "height": 800})
    tab.start("Say it.", agent="clerk")
    tab.until("Waiting for you")
    expect(tab.page.locator(".arg > .arg-name").first).to_be_visible()
    assert tab.page.evaluate(CUT_WORDS) == []
    if width == 390:
        tab.page.get_by_role("button", name="Threads", exact=True).click()
        assert tab.page.evaluate(CUT_WORDS) == []
    tab.close()
