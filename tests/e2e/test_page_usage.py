"""What was used, on the page."""

import re
import sqlite3
from contextlib import closing

import pytest
from playwright.sync_api import expect

from tests.e2e.test_page_access import PHONE, violations
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Reply
from tests.support.page import Desk

pytestmark = pytest.mark.slow

OPEN = "Usage: runs, tokens and cost"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_usage_is_shown_in_sums_plots_and_tables(at: Desk, scheme: str) -> None:
    at.model.begin_again()
    # Without a price, the thread with the most tokens comes first.
    at.model.add(Reply(text="done", usage={"prompt_tokens": 9_000_000, "completion_tokens": 1}))
    tab = at.tab(color_scheme=scheme)
    thread = tab.start(f"Use something in the {scheme}.")
    tab.until("Finished")
    tab.page.get_by_role("button", name=OPEN).click()
    dialog = tab.page.get_by_role("dialog", name="Usage")
    for plot in (r"Cost: \$", "Tokens: .* of the input cached", "Runs: .* successful"):
        expect(dialog.get_by_role("img", name=re.compile(plot))).to_be_visible()
    expect(dialog.get_by_role("img").first.locator("g")).to_have_count(30)
    dialog.get_by_label("Time").select_option("7 days")
    expect(dialog.get_by_role("img").first.locator("g")).to_have_count(7)
    dialog.get_by_label("Rows").select_option("Model")
    expect(dialog.get_by_role("rowheader", name="openai:test-model")).to_be_visible()
    assert violations(tab) == []
    costly = dialog.get_by_role("region", name="Thread")
    expect(costly.get_by_role("row")).not_to_have_count(1)
    costly.get_by_role("link", name=f"Use something in the {scheme}.").click()
    expect(dialog).not_to_be_visible()
    assert tab.thread == thread
    tab.close()


def test_usage_fits_on_a_phone_and_names_are_shown_as_text(at: Desk) -> None:
    row = ("r", "<script>alert(1)</script>", "t", "manus", "page")
    with closing(sqlite3.connect(at.served.home / "openmanus.db", timeout=BACKSTOP_S)) as db, db:
        today = "INSERT INTO call_usage VALUES ('', date('now'), ?, ?, ?, ?, ?, 1, 1, 0, 1, 9, 1)"
        db.execute(today, row)
    tab = at.tab(**PHONE)
    tab.page.get_by_role("button", name=OPEN).click()
    dialog = tab.page.get_by_role("dialog", name="Usage")
    dialog.get_by_label("Rows").select_option("Model")
    expect(dialog.get_by_role("rowheader", name="<script>alert(1)</script>")).to_be_visible()
    assert tab.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert violations(tab) == []
    tab.close()
