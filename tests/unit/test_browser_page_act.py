"""Clicks, drags, scrolling and what refuses them."""

import pytest
from playwright.async_api import Dialog

from openmanus_graph.backends.browser.page.fields import send_keys
from openmanus_graph.backends.browser.page.pointer import (
    click,
    click_at,
    drag_and_drop,
    drag_to_point,
    drag_to_text,
    scroll,
    scroll_to_text,
)
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('"open details"', "word"), ("icon trash", "trash"), ('"×"', "cross"), ("#red", "red"),
        ("#disc", "disc"), ("#square", "square"), ("Pears", "Pears"), ("Buy mug", "buy"),
        ("Rendered", "reactish"), ("Left room", "#left"), ("Right room", "#right"),
        ('link "\\+"', "#plus"), ('double-clickable "Open by', "twice 2"),
        ('right-clickable "Open its', "other 2"),
    ],
)  # fmt: skip
async def test_what_is_listed_can_be_clicked(tab: Tab, words: str, said: str) -> None:
    await tab.open("clickables.html")
    assert f"Clicked: {said}" in await tab.do(click, words)


async def test_a_card_with_a_button_in_it_is_clicked_beside_the_button(tab: Tab) -> None:
    await tab.open("clickables.html")
    assert tab.shot
    card = next(one for one in tab.shot.elements.values() if one.open)
    assert "Clicked: card" in await tab.do(click, card.index)


async def test_a_canvas_is_clicked_by_coordinates(tab: Tab) -> None:
    await tab.open("clickables.html")
    assert tab.shot
    left, top, _, _ = tab.shot.elements[tab.index("canvas")].box
    assert "Clicked: canvas 30,40" in await tab.do(click_at, left + 30, top + 40)
    with pytest.raises(ToolError, match="outside the window, which is 1000x700"):
        await click_at(tab.view, 5, 5000)


async def test_an_element_below_the_fold_is_scrolled_out_from_under_the_header(tab: Tab) -> None:
    await tab.open("layers.html")
    assert "Below clicked" in await tab.do(click, "Below the fold")


async def test_a_covered_element_says_what_covers_it(tab: Tab) -> None:
    await tab.open("layers.html")
    with pytest.raises(ToolError, match=r'is covered by div#consent "We use cookies'):
        await click(tab.view, tab.index("Under a cover"))
    await tab.do(click, "Accept cookies")
    with pytest.raises(ToolError, match=r'"Under a cover" is covered by div#cover "Sold out"'):
        await click(tab.view, tab.index("Under a cover"))


@pytest.mark.parametrize(
    ("page", "words", "why"),
    [
        ("forms.html", "Voucher", "is disabled"),
        ("forms.html", "Papers", "use upload_file"),
        ("dropdowns.html", '"Size"', r"use select_dropdown_option|choose with select_dropdown"),
    ],
)
async def test_a_click_that_cannot_work_says_what_to_do(
    tab: Tab, page: str, words: str, why: str
) -> None:
    await tab.open(page)
    with pytest.raises(ToolError, match=why):
        await click(tab.view, tab.index(words))


async def test_an_index_that_is_gone_gives_the_current_list(tab: Tab) -> None:
    await tab.open("rerender.html")
    add = tab.index('"Add"')
    with pytest.raises(ToolError, match=r"(?s)no element \[99\].*textbox \"New task\""):
        await tab.view.ask(99, "connected")
    await tab.page.evaluate("app.innerHTML = '<button>Only this</button>'")
    with pytest.raises(ToolError, match=r"(?s)no element.*Only this"):
        await click(tab.view, add)


async def test_an_element_drawn_anew_is_found_again(tab: Tab) -> None:
    await tab.open("rerender.html")
    add = tab.index('"Add"')
    await tab.page.evaluate("state.tasks.push('More'); draw()")
    assert (await tab.view.ask(add, "connected"))[0].element.name == "Add"


async def test_an_index_follows_its_row_through_sorting(tab: Tab) -> None:
    await tab.open("rerender.html")
    text = await tab.see()
    write = int(text.split("Write [")[1].split("]")[0])
    change = await tab.do(click, '"Sort"')
    assert "New order" in change
    assert f"Write [{write}]" in await tab.see()
    await tab.do(click, write)
    assert "Write" not in await tab.see()
    assert "Rest" in await tab.see()


async def test_indices_are_never_given_to_other_elements(tab: Tab) -> None:
    await tab.open("tables.html")
    first = tab.index('"Save"')
    await tab.do(click, '"Second"')
    second = tab.index('"Save"')
    assert second != first
    await tab.do(click, '"First"')
    assert tab.index('"Save"') == first
    await tab.open("rerender.html")
    assert tab.shot
    assert min(tab.shot.elements) > second


async def test_html5_drag_and_drop_works(tab: Tab) -> None:
    await tab.open("drag.html")
    assert "Dropped parcel" in await tab.do(drag_and_drop, "Parcel", "Van")


async def test_dragging_by_pointer_events_works(tab: Tab) -> None:
    await tab.open("drag.html")
    assert "Knob at" in await tab.do(drag_to_text, "Knob", Text("Parcel"))
    assert "Knob at 580,280" in await tab.do(drag_to_point, "Knob", 600.0, 300.0)
    assert "Knob at 31" in await tab.do(drag_and_drop, "Knob", "Goal")
    with pytest.raises(ToolError, match="does not show"):
        await drag_to_text(tab.view, tab.index("Goal"), "no such words")


async def test_a_drag_too_far_is_refused(tab: Tab) -> None:
    await tab.open("drag.html")
    with pytest.raises(ToolError, match="too far apart"):
        await drag_and_drop(tab.view, tab.index("Parcel"), tab.index("Far away"))


async def test_scrolling_loads_more_and_says_where_it_is(tab: Tab) -> None:
    await tab.open("long.html")
    change = await tab.do(scroll, 5000)
    assert "px above" in change
    assert '"read 60"' in change
    assert "up by" in await tab.do(scroll, -300)
    pane = tab.index("scroll area")
    assert f"Scrolled [{pane}]" in await tab.do(scroll, None, pane)
    assert "into view" in await tab.do(scroll, None, tab.index('"read 1"'))


async def test_scrolling_to_a_text_finds_the_next_place_each_time(tab: Tab) -> None:
    await tab.open("long.html")
    first = await tab.do(scroll_to_text, Text("ENTRY  2"))
    assert 'Scrolled to "Entry 2 read 2" (place 1 of 11)' in first
    assert "place 2 of 11" in await tab.do(scroll_to_text, Text("Entry 2"))
    with pytest.raises(ToolError, match='does not show "unheard of"'):
        await scroll_to_text(tab.view, "unheard of")


async def test_keys_are_pressed_by_name_and_text_is_typed(tab: Tab) -> None:
    await tab.open("forms.html")
    await tab.do(click, '"Short"')
    assert 'value="abc"' in await tab.do(send_keys, Text("abc"))
    assert 'value="x"' in (
        await tab.do(send_keys, Text("Ctrl+A Backspace")) + await tab.do(send_keys, Text("x"))
    )
    assert 'The focus is on [5] date input "Born"' in await tab.do(send_keys, Text("Tab"))
    with pytest.raises(ToolError, match="There is no key"):
        await send_keys(tab.view, "Control+Nonsense")


async def test_a_dialog_of_the_page_blocks_and_is_reported(tab: Tab) -> None:
    held: list[Dialog] = []
    tab.page.on("dialog", lambda dialog: held.append(dialog))
    await tab.open("dialogs.html")
    said = await tab.do(click, '"Alert"')
    assert "A dialog of the page is open" in said
    assert "answer it with handle_dialog" in said
    with pytest.raises(ToolError, match="dialog"):
        await click(tab.view, tab.index('"Prompt"'))
    await held[0].accept()
    await tab.view.settle()
    assert "after alert" in await tab.see()
    await tab.page.close()  # it would hold the dialogs of the next test


async def test_the_source_of_a_script_is_no_text_of_the_page(tab: Tab) -> None:
    await tab.open("menus.html")
    assert 'Scrolled to "Users"' in await tab.do(scroll_to_text, Text("Users"))
    with pytest.raises(ToolError, match="does not show"):
        await scroll_to_text(tab.view, "querySelectorAll")
