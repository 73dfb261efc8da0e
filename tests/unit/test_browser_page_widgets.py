"""What real applications are made of: each was misread or lost in one of them."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.backends.browser.page.snapshot import Line, Snapshot
from openmanus_graph.backends.browser.page.text import change_text
from tests.support.browsing import Browsing
from tests.support.tabs import Tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_a_label_around_a_box_for_screen_readers_is_its_checkbox(tab: Tab) -> None:
    await tab.open("widgets.html")
    assert 'Changed: [1] checkbox "☐ As a gift" checked' in await tab.do(
        click, 'checkbox "☐ As a gift"'
    )


async def test_a_message_is_repeated_only_if_it_is_gone(tab: Tab) -> None:
    await tab.open("widgets.html")
    said = await tab.do(click, '"Remove"')
    assert 'Message (gone again): "Removed it"' in said
    assert said.count("gone again") == 1


async def test_a_message_that_is_only_shown_and_hidden_again_is_repeated(tab: Tab) -> None:
    await tab.open("widgets.html")
    assert 'Message (gone again): "Shown for a moment"' in await tab.do(click, '"Show"')


async def test_a_message_that_is_gone_stands_before_a_whole_page_too() -> None:
    lines = tuple(Line((f"Line {number} of a long page that is left",)) for number in range(9))
    before = Snapshot("http://a/", "A", "1", 0, 0, (9, 9), lines)
    after = replace(before, lines=(Line(("Done.",)),), messages=("Saved",))
    said = change_text(before, after, 500)
    assert said == 'Message (gone again): "Saved"\nPage "A" http://a/\nDone.'


async def test_lines_that_are_drawn_around_something_are_no_elements_but_edges_are(
    tab: Tab,
) -> None:
    text = await tab.open("widgets.html")
    assert ".line" not in text
    assert "hoverable .edge" in text


@pytest.mark.parametrize("day", ["30", "1", "3"])
async def test_entries_of_a_list_that_listens_around_them_are_listed(tab: Tab, day: str) -> None:
    await tab.open("widgets.html")
    assert f"Day {day}" in await tab.do(click, f'clickable "{day}"')


async def test_a_placeholder_that_is_drawn_is_a_name(tab: Tab) -> None:
    await tab.open("widgets.html")
    assert tab.has('textbox "Write to Ada"')


async def test_a_control_that_begins_with_another_is_named_before_it(tab: Tab) -> None:
    text = await tab.open("widgets.html")
    assert re.search(r'columnheader "Price": \[\d+\] button "Filter" Price', text)


async def test_what_the_keys_reach_in_turn_is_listed_alike(tab: Tab) -> None:
    await tab.open("widgets.html")
    assert "Opened b.csv" in await tab.do(click, 'button "b.csv"')


async def test_what_lies_behind_a_dialog_is_counted_one_by_one(tab: Tab) -> None:
    await tab.open("widgets.html")
    assert tab.shot
    count = len(tab.shot.elements)
    said = await tab.do(click, '"Ask"')
    behind = re.search(r"(\d+) elements behind it cannot be reached", said)
    assert behind
    assert int(behind[1]) == count


async def test_what_only_moves_is_not_called_unchanged_nor_what_comes_late(
    tmp_path: Path, site: str
) -> None:
    use = Browsing(tmp_path)
    with contextlib.closing(use.session):
        await use("go_to_url", url=f"{site}/widgets.html")
        moved = f"of [{use.index('Berlin')}]-[{use.index('Munich')}]."
        assert f"Nothing but places or sizes changed: {moved}" in await use.click('"Zoom"')
        assert "Came late" in await use.click('"Later"')
