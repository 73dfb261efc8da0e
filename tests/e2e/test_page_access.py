"""The page on a phone, by keyboard alone, in light and dark, and for a screen reader."""

from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

PHONE: dict[str, Any] = {
    "viewport": {"width": 375, "height": 740},
    "has_touch": True,
    "is_mobile": True,
}
INVOICE = Call("send_invoice", {"customer": "17", "amount": 2.0})
TEXT = "# Sum\n\nIt is **17**.\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n- [ ] more\n\n```py\nx\n```"


def violations(tab: Tab, rules: list[str] | None = None) -> list[str]:
    """Return what axe-core finds wrong with what is on the screen."""
    if not tab.page.evaluate("() => 'axe' in window"):
        tab.page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found: Any = tab.page.evaluate("(given) => axe.run(given)", {"runOnly": rules} if rules else {})
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(
    ("scheme", "rules"),
    sampled([("light", None), ("dark", ["color-contrast"])], 1, "axe", rows=True),
)
def test_axe_finds_nothing_wrong_at_any_stage(
    at: Desk, scheme: str, rules: list[str] | None
) -> None:
    at.model.begin_again()
    at.model.add(
        Reply(text=TEXT, calls=(Call("bash", {"command": "cat nothing"}),)),
        Reply(text=TEXT, calls=(INVOICE,)),
        Reply(text=TEXT),
    )
    tab = at.tab(color_scheme=scheme)
    expect(tab.page.locator("#agent option").first).to_be_attached()
    tab.page.locator(".options-box summary").click()
    assert violations(tab, rules) == []
    tab.page.locator(".options-box summary").click()
    tab.start("Invoice.", agent="clerk")
    tab.until("Waiting for you")
    expect(tab.page.locator(".call.bad")).to_be_visible()
    assert violations(tab, rules) == []
    tab.page.get_by_role("button", name="Edit…").click()
    assert violations(tab, rules) == []
    tab.page.get_by_role("button", name="Approve with these arguments").click()
    tab.until("Finished")
    tab.page.get_by_role("tab", name="Steps").click()
    expect(tab.page.locator(".history li").first).to_be_visible()
    assert violations(tab, rules) == []
    tab.page.keyboard.press("?")
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    assert violations(tab, rules) == []
    tab.close()


def test_everything_is_done_with_the_keyboard_alone(at: Desk) -> None:
    at.model.begin_again()
    at.model.add(
        Reply(text="Soon.", calls=(INVOICE, Call("bash", {"command": "echo hi > out.txt"}))),
        Reply(text="Sent."),
    )
    tab = at.tab()
    keys, page = tab.page.keyboard, tab.page
    box = page.get_by_role("textbox", name="Task", exact=True)
    expect(box).to_be_focused()
    keys.type("Invoice 17.")
    keys.press("Tab")
    expect(page.locator(".options-box summary")).to_be_focused()
    keys.press("Enter")
    keys.press("Tab")
    keys.type("clerk")
    keys.press("Escape")
    expect(page.locator(".options-box summary")).to_be_focused()
    expect(page.locator(".options-box summary")).to_contain_text("clerk")
    keys.press("Shift+Tab")
    keys.press("Enter")
    tab.until("Waiting for you")
    keys.press("Escape")
    page.locator("body").evaluate("() => document.activeElement.blur()")
    keys.press("a")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_focused()
    assert outlined(tab)
    keys.press("Tab")
    keys.press("Enter")
    expect(page.get_by_label("customer")).to_be_focused()
    keys.press("Escape")
    expect(page.get_by_role("button", name="Edit…")).to_be_focused()
    keys.press("Shift+Tab")
    keys.press("Enter")
    tab.until("Finished")
    page.locator("body").evaluate("() => document.activeElement.blur()")
    focused = page.locator(".row:focus")
    keys.press("k")
    while "bash" not in focused.inner_text():
        keys.press("k")
    assert outlined(tab)
    keys.press("o")
    expect(focused.locator(".call-body")).to_contain_text("out.txt")
    keys.press("1")
    expect(page.get_by_role("tab", name="Files")).to_be_focused()
    keys.press("ArrowRight")
    expect(page.get_by_role("tab", name="Plan")).to_have_attribute("aria-selected", "true")
    keys.press("?")
    expect(page.get_by_role("dialog", name="Keyboard and help")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    keys.press("/")
    expect(page.get_by_label("Search threads")).to_be_focused()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    expect(page.locator(".thread a").nth(1)).to_be_focused()
    keys.press("ArrowUp")
    expect(page.locator(".thread a").first).to_be_focused()
    keys.press("/")
    assert goes_round(tab), "also with 1,000 threads: their list is one stop"
    tab.close()


def outlined(tab: Tab) -> bool:
    """Whether one sees where the focus is."""
    style = "() => getComputedStyle(document.activeElement).outlineStyle"
    return bool(tab.page.evaluate(style) != "none")


def goes_round(tab: Tab) -> bool:
    """Whether Tab leads through the page and out of it again, with the focus always in sight."""
    tab.page.evaluate("() => document.activeElement.blur()")
    seen: list[str] = []
    for _ in range(80):
        tab.page.keyboard.press("Tab")
        where: str = tab.page.evaluate(
            "() => { const it = document.activeElement; const box = it.getBoundingClientRect();"
            " if (it !== document.body && !(box.width && box.height)) throw new Error('unseen');"
            " return it.tagName + it.className + it.textContent.slice(0, 40); }"
        )
        if seen and where == seen[0]:
            return len(seen) > 10
        seen.append(where)
    return False


def test_a_phone_shows_one_pane_at_a_time_and_nothing_sticks_out(at: Desk) -> None:
    at.model.begin_again()
    long = "word" * 60
    at.model.add(
        Reply(text=f"{long}\n\n| {' | '.join('abcdefghijkl')} |\n|{' - |' * 12}\n",
              calls=(INVOICE,)),
        Reply(text="Sent."),
    )  # fmt: skip
    tab = at.tab(**PHONE)
    tab.start(f"Invoice {long}", agent="clerk")
    tab.until("Waiting for you")
    assert not sticks_out(tab)
    tab.page.get_by_role("button", name="Approve", exact=True).tap()
    tab.until("Finished")
    panes = tab.page.get_by_role("navigation", name="Panes")
    panes.get_by_role("button", name="Details").tap()
    tab.page.get_by_role("tab", name="Steps").tap()
    expect(tab.page.locator(".history li").first).to_be_visible()
    assert not sticks_out(tab)
    expect(tab.page.locator(".timeline")).to_be_hidden()
    assert violations(tab) == []
    panes.get_by_role("button", name="Threads").tap()
    assert violations(tab) == []
    tab.page.locator(".thread-link").first.tap()
    tab.sees("Sent.")
    assert not sticks_out(tab)
    assert violations(tab) == []
    tab.close()


def sticks_out(tab: Tab) -> bool:
    """Whether the page is wider than the screen."""
    wide = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
    return bool(tab.page.evaluate(wide))


def test_colours_follow_the_system_until_one_chooses(at: Desk) -> None:
    tab = at.tab(color_scheme="dark")
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = tab.page.evaluate(background)
    choose = tab.page.get_by_role("button", name="Colours")
    choose.click()
    light = tab.page.evaluate(background)
    assert light != dark
    tab.page.reload()
    expect(choose).to_be_visible()
    assert tab.page.evaluate(background) == light
    choose.click()
    choose.click()
    assert tab.page.evaluate(background) == dark
    tab.close()


def test_a_screen_reader_is_told_what_matters_and_not_each_token(at: Desk) -> None:
    at.model.begin_again()
    words = " ".join(f"word{n}" for n in range(300))
    at.model.add(
        Reply(text=words, calls=(Call("ask_human", {"inquire": "Go on?"}),), piece_size=9),
        Reply(text="Gone."),
    )
    tab = at.tab()
    tab.page.evaluate(
        "() => { window.told = []; new MutationObserver(() => "
        "window.told.push(document.getElementById('live').textContent))"
        ".observe(document.getElementById('live'), { childList: true, characterData: true }); }"
    )
    tab.start("Ask me.")
    tab.until("Waiting for you")
    expect(tab.page.locator("#live")).to_contain_text("The agent waits for you. Go on?")
    reported: list[str] = tab.page.evaluate("() => window.told")
    assert len(reported) < 8
    assert not any("word7" in one for one in reported)
    tab.close()
