"""The inbox and the triggers on the page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.test_page_access import PHONE, violations
from tests.support.cli import until
from tests.support.openai_script import Call, Reply
from tests.support.page import Desk

pytestmark = pytest.mark.slow

OPEN = "Inbox and triggers"


@pytest.fixture
def daily(at: Desk) -> Iterator[None]:
    """Configure a schedule, a trigger that cannot work, and a channel."""
    path = Path(at.served.env["XDG_CONFIG_HOME"]) / "openmanus" / "config.toml"
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'{before or ""}\n[triggers.daily]\nkind = "schedule"\ncron = "0 8 * * *"\n'
        'task = "Report <b>{date}</b>."\n[triggers.odd]\nkind = "folder"\ntask = "x"\n'
        '[channels.phone]\nkind = "telegram"\ntoken = "1:x"\nsecret = "s"\nallow = ["7"]\n'
    )
    yield
    if before is None:
        path.unlink()
    else:
        path.write_text(before)


def test_a_trigger_is_run_paused_and_its_question_found_in_the_inbox(at: Desk, daily: None) -> None:
    at.model.begin_again()
    at.model.add(
        Reply(calls=(Call("ask_human", {"inquire": "Which <b>colour</b>?"}),)), Reply("Blue.")
    )
    tab = at.tab()
    tab.page.get_by_role("button", name=OPEN).click()
    dialog = tab.page.get_by_role("dialog", name=OPEN)
    row = dialog.get_by_role("listitem").filter(has=tab.page.get_by_text("daily", exact=True))
    expect(row).to_contain_text(re.compile(r"Active.*8:00"))
    expect(dialog).to_contain_text("[triggers.odd] needs the path of a folder.")
    row.get_by_role("button", name="Run now").click()
    waiting = dialog.get_by_role("listitem").filter(has_text="Which <b>")

    def is_asked() -> bool:
        dialog.get_by_role("button", name="Refresh").click()
        return waiting.count() > 0

    until(is_asked)
    expect(waiting).to_contain_text(re.compile(r"Report <b>.*daily"))
    expect(row.get_by_role("link")).to_have_text("waits for you")
    assert violations(tab) == []
    chat = dialog.get_by_role("listitem").filter(has_text="channel/phone")
    for one in (row, chat):
        one.get_by_role("button", name="Pause").click()
        expect(one).to_contain_text("Paused")
    expect(row.get_by_role("button", name="Run now")).to_have_count(0)
    waiting.get_by_role("link", name="Open").click()
    expect(dialog).not_to_be_visible()
    expect(tab.page.get_by_text("Which <b>colour</b>?").first).to_be_visible()
    tab.close()


def test_the_inbox_fits_on_a_phone(at: Desk, daily: None) -> None:
    tab = at.tab(**PHONE)
    tab.page.get_by_role("button", name=OPEN).click()
    expect(tab.page.get_by_role("dialog", name=OPEN)).to_contain_text("daily")
    assert tab.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert violations(tab) == []
    tab.close()
