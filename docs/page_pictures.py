"""The pictures of the page, as `docs.pictures` takes them."""

import os
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from tests.support.login_site import FIELD, login_site
from tests.support.openai_script import Call, Reply
from tests.support.page import Desk, Tab, chromium, desk
from tests.support.serving import Served
from tests.support.zygote import Zygote

IMAGES = Path(__file__).parent / "images"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True}
TASK = "Write a program that adds up the invoices of May, test it, and send the sum to customer 17."
TEXTS = (
    "I write the program first, then a test of it.",
    "The first amount was left out. I mend that, and test it again.",
    "It is right now. Sending reaches somebody, so I ask first.",
    "The invoice of **$27.25** is sent.",
    "| customer | amount |",
)
CHINESE_TASK = "写一个程序，把五月的发票加起来，测试它，并把总数发给 17 号客户。"
CHINESE_TEXTS = (
    "我先写程序，再测试它。",
    "漏掉了第一笔金额。我来修正，再测试一遍。",
    "现在对了。发送会到达别人那里，所以先问您。",
    "**27.25 美元**的发票已经发出。",
    "| 客户 | 金额 |",
)
_WRONG = "def total(amounts):\n    return sum(amounts[1:])\n"
_RIGHT = "def total(amounts):\n    return round(sum(amounts), 2)\n"
_EDITOR = "str_replace_editor"


def _script(first: str, second: str, third: str, last: str, head: str) -> tuple[Reply, ...]:
    """Return a model's replies with these texts."""
    edit = {"command": "str_replace", "path": "total.py", "old_str": _WRONG, "new_str": _RIGHT}
    test = {"command": "python3 -c 'import total; print(total.total([9.9]))'"}
    return (
        Reply(
            text=first,
            calls=(Call(_EDITOR, {"command": "create", "path": "total.py", "file_text": _WRONG}),),
        ),
        Reply(text=second, calls=(Call(_EDITOR, edit), Call("bash", test))),
        Reply(text=third, calls=(Call("send_invoice", {"customer": "17", "amount": 27.25}),)),
        Reply(text=f"{last}\n\n```python\n{_RIGHT}```\n\n{head}\n| - | -: |\n| 17 | 27.25 |"),
    )


def take_pictures() -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory() as folder, desk(Path(folder)) as at:
        _work(at, "page-approval", "page-report", color_scheme="light")
        _work(at, "", "page-dark", color_scheme="dark")
        _work(at, "", "page-phone", **PHONE)
        thread = _work(at, "", "", task=CHINESE_TASK, texts=CHINESE_TEXTS)
        tab = at.tab(thread, locale="zh-CN")
        expect(tab.page.locator(".hljs-keyword").first).to_be_visible()
        _save(tab, "page-chinese")
        _takeover(at)
    with tempfile.TemporaryDirectory() as folder, Zygote() as zygote, chromium() as browser:
        _setup(Path(folder), zygote, browser)


def _work(
    at: Desk,
    asking: str,
    finished: str,
    *,
    task: str = TASK,
    texts: tuple[str, str, str, str, str] = TEXTS,
    **options: Any,
) -> str:
    """Have a task done, take the pictures that are named, and return its thread."""
    at.model.begin_again()
    at.model.add(*_script(*texts))
    tab = at.tab(**options)
    thread = tab.start(task, agent="clerk")
    tab.until("Waiting for you")
    if asking:
        tab.page.locator(".call-head", has_text=_EDITOR).last.click()
        _save(tab, asking, close=False)
    tab.page.get_by_role("button", name="Approve", exact=True).click()
    tab.until("Finished")
    expect(tab.page.locator(".hljs-keyword").first).to_be_visible()
    if asking:
        tab.page.locator(".chips").get_by_role("button", name="total.py").click()
        expect(tab.page.get_by_role("dialog").locator(".hljs-keyword").first).to_be_visible()
    if finished:
        _save(tab, finished)
    else:
        tab.close()
    return thread


def _takeover(at: Desk) -> None:
    with login_site() as site:
        go = Call("browser_use", {"action": "go_to_url", "url": f"{site.url}/"})
        ask = Call("ask_human", {"inquire": "Please log in.", "kind": "browser"})
        at.model.begin_again()
        at.model.add(Reply(calls=(go,)), Reply(calls=(ask,)))
        tab = at.tab()
        tab.start("How many cups do I have?", agent="browser")
        tab.page.get_by_role("button", name="Take the browser over").first.click()
        stage = tab.page.locator(".stage")
        expect(tab.page.locator(".takeover-address")).to_contain_text("Log in")
        stage.click(position={"x": FIELD[0] * 0.8, "y": FIELD[1] * 0.8})
        tab.page.keyboard.type("alice")
        _save(tab, "page-takeover")


def _setup(folder: Path, zygote: Zygote, browser: Browser) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENMANUS_MODEL"):
        os.environ.pop(name, None)
    with Served(folder, {"XDG_CONFIG_HOME": str(folder / "config")}, zygote=zygote) as served:
        tab = Tab(browser, served, viewport={"width": 1280, "height": 800}).open()
        expect(tab.page.locator(".setup option").first).to_be_attached()
        _save(tab, "page-start")


def _save(tab: Tab, name: str, *, close: bool = True) -> None:
    tab.page.wait_for_timeout(700)  # pictures load, and lists settle
    tab.page.screenshot(path=IMAGES / f"{name}.png")
    if close:
        tab.close()
