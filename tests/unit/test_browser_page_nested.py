"""Controls within controls, and parts of pages that the pointer or the keys reach in odd ways."""

import pytest

from openmanus_graph.backends.browser.page.fields import input_text
from openmanus_graph.backends.browser.page.pointer import click, scroll
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ('checkbox "I agree to the terms', 'checkbox "I agree to the terms .* checked'),
        ('link "the terms', "Went to #terms"),
        ('treeitem "Fruits"', "Tree: Fruits"),
        ('treeitem "Pear"', "Tree: Pear"),
        ('clickable "two"', "Entry: two"),
        ('link "Open the card"', "Went to #card"),
        ('button "Delete"', "Deleted"),
        ('checkbox "Milk"', 'checkbox "Milk" checked'),
        ('button "Remove anna"', "Chip"),
    ],
)
async def test_each_of_several_in_one_another_is_used_by_itself(
    tab: Tab, element: str, said: str
) -> None:
    await tab.open("nested.html")
    await tab.do(click, element)
    text = await tab.see()
    assert tab.has(said) or said in text


async def test_an_entry_around_others_is_clicked_beside_them(tab: Tab) -> None:
    text = await tab.open("nested.html")
    assert "clickable: Parent" in text
    assert tab.shot
    around = next(one.index for one in tab.shot.elements.values() if one.name.startswith("Parent"))
    assert "Entry: Parent" in await tab.do(click, around)


async def test_it_is_said_that_another_one_took_the_press_where_that_is_all_there_is(
    tab: Tab,
) -> None:
    await tab.open("nested.html")
    assert tab.shot
    around = next(one.index for one in tab.shot.elements.values() if one.name == "Around")
    said = await tab.do(click, around)
    assert "All of it is [" in said
    assert 'button "Fills it", which took the press.' in said
    with pytest.raises(ToolError, match=r'is covered by \[\d+\] link "Only a link is in it"'):
        await tab.do(click, 'checkbox "Only a link')


async def test_what_is_clear_or_a_copy_is_listed_only_where_the_pointer_meets_it(tab: Tab) -> None:
    text = await tab.open("nested.html")
    assert 'file input "Files"' in text
    assert "copy of a choice" not in text
    assert 'link "read"' not in text  # of a text that is edited a click sets the cursor only
    assert tab.has('combobox "Country" value="Chile"')
    assert "(Tab reaches in it: Show as a table)" in text


@pytest.mark.parametrize(
    ("way", "said"), [("", "click"), ("double", "dblclick"), ("right", "contextmenu")]
)
async def test_a_row_is_clicked_in_each_way_that_it_waits_for(
    tab: Tab, way: str, said: str
) -> None:
    text = await tab.open("nested.html")
    assert text.count("double-click too right-click too") == 1
    await tab.do(click, 'clickable "a.txt"', Text(way))
    assert f"\n{said}" in await tab.see()


async def test_what_is_scrolled_sideways_says_so_and_is_scrolled(tab: Tab) -> None:
    await tab.open("nested.html")
    assert tab.has(r"scroll area #wide \(0 px before, 2700 px more across: scroll_down with x\)")
    said = await tab.do(scroll, None, tab.index("scroll area #wide"), 1000)
    assert "right by 1000 px: 1000 px before, 1700 px more across." in said
    assert 'button "Column 10"' in said
    said = await tab.do(scroll, None, tab.index("scroll area #wide"))
    assert "right by 270 px" in said


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ('button "Scaled"', "Half as large"),
        ('button "Zoomed"', "Zoomed\n"),
        ('button "Below"', "Below the fold"),
        ('button "Within"', "Within an area"),
        ('link "Slotted text"', "Own link"),
        ('"Night mode"', '"Night mode" checked'),
    ],
)
async def test_what_is_in_a_frame_out_of_view_or_scaled_or_put_into_a_slot_is_hit(
    tab: Tab, element: str, said: str
) -> None:
    await tab.open("parts.html")
    await tab.do(click, element)
    assert said in await tab.see() + "\n"


async def test_what_lies_behind_a_dialog_in_a_shadow_root_is_left_out(tab: Tab) -> None:
    await tab.open("parts.html")
    assert "A dialog or menu is on top: " in await tab.do(click, 'button "Ask"')
    assert not tab.has("Letters only")
    await tab.do(click, 'button "Yes"')
    assert tab.has("Letters only")


async def test_what_moves_in_a_shadow_root_is_awaited(tab: Tab) -> None:
    await tab.open("parts.html")
    assert "Gone: " in await tab.do(click, 'button "Close the box"')
    assert not tab.has("In the box")


async def test_a_slider_is_moved_by_its_keys_or_left_alone(tab: Tab) -> None:
    await tab.open("parts.html")
    assert "Set [" in await tab.do(input_text, 'slider "Volume"', Text("50"))
    assert 'slider "Volume" now holds "56"' in await tab.do(
        input_text, 'slider "Volume"', Text("57")
    )
    assert 'slider "Price" to "30"' in await tab.do(input_text, 'slider "Price"', Text("30"))
    for text, why in (("30", "not moved by keys"), ("loud", "takes a number")):
        with pytest.raises(ToolError, match=why):
            await tab.do(input_text, 'slider "Fixed"', Text(text))
    await tab.see()
    assert tab.has('slider "Fixed" value="20"')


async def test_what_a_field_does_not_keep_is_not_called_typed(tab: Tab) -> None:
    await tab.open("parts.html")
    for signs in ("👍", "--"):
        with pytest.raises(ToolError, match='did not take "'):
            await tab.do(input_text, "Letters only", Text(signs))
