"""Links and buttons in rows that are pictures only: their tooltips are their names."""

import contextlib
import re
from pathlib import Path

import pytest

from openmanus_graph.backends.browser.page.pointer import click
from tests.support.browsing import Browsing
from tests.support.tabs import Tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    "line",
    [
        'Ada | [N] link "Edit" /edit/1 [N] link "Delete" /del/1',
        'Bob | [N] link "Edit" /edit/2 [N] link "Delete"',
        'Cy | [N] link "Edit" /edit/3 [N] link "Delete"',
        '[N] clickable "Di" | [N] link "Edit" [N] button "Delete"',  # the row is used, too
        '[N] clickable "Ed" | [N] link "Edit" [N] clickable "Delete"',  # letters of an icon font
        'Flo [N] link "Open Flo in a new window" | [N] link "Edit"',
        '[N] link "Gus" | [N] link "Edit" [N] link "✎ (Delete)"',  # a glyph, and a sign
        'Hal [N] link "Edit"',
        '[N] gridcell "Jo" · [N] gridcell: [N] link "Edit" · [N] gridcell: '
        '[N] link "Delete" [N] link "Copy"',
        '[N] gridcell "Ken" | [N] "44" | [N] "x" | [N] gridcell: [N] link "Edit"',
        'Liz | [N] link "pencil (Edit person)" [N] link "bin (Delete person)" [N] link "Print" '
        '[N] link "Mail" [N] link "Star"',
    ],
)
async def test_a_row_shows_each_of_its_icons_by_its_title(tab: Tab, line: str) -> None:
    text = await tab.open("icon_links.html")
    assert line in re.sub(r"\[\d+\]", "[N]", text).splitlines()


async def test_the_icon_of_one_row_is_clicked_and_not_its_row(tab: Tab) -> None:
    await tab.open("icon_links.html")
    assert tab.shot
    in_row: dict[tuple[str, str], int] = {}
    for line in tab.shot.lines:
        named = [tab.shot.elements[n] for n in line.indices]
        in_row |= {(line.text.split(" ")[0], one.name): one.index for one in named}
    assert "Did: delete Cy" in await tab.do(click, in_row["Cy", "Delete"])
    assert "Did: row" not in await tab.see()


async def test_an_icon_is_found_by_its_title_and_candidates_name_their_rows(
    tmp_path: Path, site: str
) -> None:
    use = Browsing(tmp_path)
    with contextlib.closing(use.session):
        await use("go_to_url", url=f"{site}/icon_links.html")
        said = await use("click_element", label="Edit")
        assert 'elements are called "Edit"' in said
        for name in ("Ada", "Bob", "Cy"):
            assert f'link "Edit" in: {name}' in said
        assert "Clicked" in await use("click_element", label="Delete person")
