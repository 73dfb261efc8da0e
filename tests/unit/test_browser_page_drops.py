"""Zones that wait for something to be dropped and have no field for it."""

from pathlib import Path

import pytest

from openmanus_graph.backends.browser.page.fields import upload_file
from openmanus_graph.backends.browser.page.pointer import drag_and_drop, drag_to_text
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("card", "zone", "said"),
    [
        ("Card one", "Basket", "basket one"),
        ("Card one", "Strict", "strict 1"),  # it looks at the kinds of data first
        ("Card two", "Inbox", "inbox two"),  # it contains other elements
        ("Card three", "Inbox", "inbox http"),  # a link gives its address
        ("Card one", "Frame zone", "frame one"),
        ("Card two", "Closed zone", "closed two"),
    ],
)
async def test_a_card_is_dropped_onto_a_zone(tab: Tab, card: str, zone: str, said: str) -> None:
    await tab.open("drops.html")
    assert f"Did: {said}" in await tab.do(drag_and_drop, card, zone)
    await tab.open("drops.html")
    assert f"Did: {said}" in await tab.do(drag_to_text, card, Text(zone))


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("Drop files here", "files a.txt text/plain 4 text; b.csv text/csv 3 a,b hot=true"),
        ("Drop a picture", "entry file true a.txt"),
        ("Frame zone", "frame a.txt"),
        ("Closed zone", "closed a.txt"),
        ("Click or drop", "pressed a.txt"),  # no chooser opens when it is clicked
    ],
)
async def test_files_are_dropped_onto_a_zone(
    tab: Tab, tmp_path: Path, zone: str, said: str
) -> None:
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    (tmp_path / "b.csv").write_text("a,b", encoding="utf-8")
    await tab.open("drops.html")
    done = await tab.do(upload_file, zone, [tmp_path / "a.txt", tmp_path / "b.csv"])
    assert "Gave a.txt, b.csv to [" in done
    assert f"Did: {said}" in done


@pytest.mark.parametrize("zone", ["Text only", "Card one"])
async def test_files_that_nothing_takes_are_not_opened_by_the_browser(
    tab: Tab, tmp_path: Path, zone: str
) -> None:
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    await tab.open("drops.html")
    with pytest.raises(ToolError, match="takes no files"):
        await tab.do(upload_file, zone, [tmp_path / "a.txt"])
    assert "nothing yet" in await tab.see()
    assert "file:" not in tab.page.url
