"""Tables that are one thing to the keys: their cells are seen, clicked and written into."""

import pytest

from openmanus_graph.backends.browser.page.fields import input_text, send_keys
from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

GRIDS = ("divs", "bare", "plain", "twice")


async def test_cells_are_listed_empty_ones_too(tab: Tab) -> None:
    text = await tab.open("grids.html")
    assert tab.shot
    roles = [one.role for one in tab.shot.elements.values()]
    assert roles.count("gridcell") == 9 * len(GRIDS) + 360, text
    assert sum("empty" in one.words for one in tab.shot.elements.values()) == len(GRIDS)
    assert not tab.has("R0C0 R0C1"), "no element swallows the cells"


async def test_words_that_only_stand_in_rows_are_no_cells(tab: Tab) -> None:
    assert 'gridcell "Height"' not in await tab.open("grids.html")


async def test_a_cell_of_a_large_grid_is_clicked_in_and_out_of_view(tab: Tab) -> None:
    await tab.open("grids.html")
    for cell in ("R2C3", "R38C7"):
        assert f"large: {cell}" in await tab.do(click, f'gridcell "{cell}"$')


@pytest.mark.parametrize(
    ("grid", "cell", "place"),
    [
        *((grid, "Rent", (1, 0)) for grid in ("divs", "bare", "plain", "hidden")),
        *((grid, "510", (1, 2)) for grid in ("divs", "bare", "plain", "hidden")),
        *((grid, "", (2, 1)) for grid in ("divs", "bare", "plain")),
    ],
)
async def test_a_cell_is_written_into(
    tab: Tab, grid: str, cell: str, place: tuple[int, int]
) -> None:
    await tab.open("grids.html")
    for other in {*GRIDS, "hidden", "large"} - {grid}:
        await tab.page.evaluate(f"{other}.remove()")
    await tab.see()
    index = tab.index(f'"{cell}"$' if cell else "empty$")
    assert f"at {place[0]},{place[1]}" in await tab.do(click, index)
    await tab.do(send_keys, Text("77"))
    done = await tab.do(send_keys, Text("Enter"))
    rows = [["Item", "Jan", "Feb"], ["Rent", "500", "510"], ["Food", "", "120"]]
    rows[place[0]][place[1]] = "77"
    assert f"{grid}: {' / '.join(map(','.join, rows))} at" in done


async def test_a_cell_that_a_double_click_opens_is_written_into(tab: Tab) -> None:
    await tab.open("grids.html")
    for other in {*GRIDS, "hidden", "large"} - {"twice"}:
        await tab.page.evaluate(f"{other}.remove()")
    await tab.see()
    await tab.do(click, '"500"$', Text("double"))
    await tab.do(input_text, 'textbox.* value="500"', Text("77"))
    assert "twice: 77" in await tab.do(send_keys, Text("Enter"))
    assert tab.has('"77"')


@pytest.mark.parametrize("cell", ['"R2C3"$', 'gridcell "Jan"$'])
async def test_typing_into_a_cell_that_is_no_field_says_what_to_do(tab: Tab, cell: str) -> None:
    await tab.open("grids.html")
    for other in ("bare", "plain", "twice"):
        await tab.page.evaluate(f"{other}.remove()")
    await tab.see()
    with pytest.raises(ToolError, match="A cell may take send_keys after a click"):
        await tab.do(input_text, cell, Text("lost"))
    assert "lost" not in await tab.see()
