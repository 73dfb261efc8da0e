"""Pages that are too much for a reader: what they show is shown in time, and the rest is said."""

import re

import pytest

from openmanus_graph.backends.browser.page import frames, view
from openmanus_graph.backends.browser.page.dropdown import dropdown_options, select_dropdown_option
from openmanus_graph.backends.browser.page.pointer import click, click_at, scroll, scroll_to_text
from openmanus_graph.backends.browser.page.text import change_text
from openmanus_graph.errors import ToolError
from tests.support.limits import BACKSTOP_S
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("paragraphs", [8_000, pytest.param(66_000, marks=pytest.mark.exhaustive)])
async def test_of_very_many_elements_it_is_said_how_many_were_not_looked_at(
    paragraphs: int, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{tab.site}/bad.html?elements#{paragraphs}"
    await tab.page.goto(address, timeout=BACKSTOP_S * 1000)
    await tab.view.settle()
    left_out = re.search(
        r"of its HTML elements (\d+) at its end were not looked at", await tab.see()
    )
    assert left_out
    assert 3 * paragraphs - 18_000 < int(left_out[1]) < 3 * paragraphs
    # A look is bounded in time, and on a busy machine it would not come to the end.
    monkeypatch.setitem(view.WALK_LIMITS, "milliseconds", BACKSTOP_S * 1000)
    monkeypatch.setattr(frames, "CALL_LIMIT_S", BACKSTOP_S)
    await tab.do(scroll_to_text, Text("The last"))
    assert tab.has('button "The last"')


async def test_what_moves_without_end_is_hit(tab: Tab) -> None:
    await tab.open("bad.html?moving")
    assert "Caught" in await tab.do(click, '"Catch me"')


@pytest.mark.parametrize("page", ["jumping=1", "jumping=3", "inside=1", "slipping"])
async def test_what_leaves_before_the_press_is_pressed_where_it_has_gone(
    tab: Tab, page: str
) -> None:
    await tab.open(f"bad.html?{page}")
    said = await tab.do(click, '"Catch me"')
    assert re.match(
        r'Clicked \[\d+\] button "Catch me"\. It moves: before, .+ was hit instead\.', said
    )
    assert "Caught" in said


async def test_what_no_press_lands_on_is_not_called_clicked(tab: Tab) -> None:
    await tab.open("bad.html?jumping=99")
    missed = r'None of 5 presses landed on \[\d+\] button "Catch me", which moves: \S+ .+ was hit'
    with pytest.raises(ToolError, match=missed):
        await tab.do(click, '"Catch me"')
    assert "Caught" not in await tab.see()


async def test_a_page_that_grows_as_it_is_scrolled_is_read_part_by_part(tab: Tab) -> None:
    text = await tab.open("bad.html?scrolling")
    assert re.search(r"0 px above, \d+ px below the window", text)
    assert 'button "Entry 40"' not in text
    assert 'button "Entry 40"' in await tab.do(scroll, 100_000, None)


async def test_a_dialog_in_a_frame_that_leaves_blocks_nothing(tab: Tab) -> None:
    await tab.open("bad.html?leaving")
    said = await tab.do(click, '"Go"')
    assert "Left" in said


async def test_of_10_000_options_any_can_be_chosen(tab: Tab) -> None:
    assert "(+9992 more)" in await tab.open("bad.html?options")
    said = await tab.do(dropdown_options, "Number")
    assert "99: Number 99\n(9900 more; choose them by their labels)" in said
    said = await tab.do(select_dropdown_option, "Number", Text("Number 9876"))
    assert "Took Number 9876" in said


async def test_a_cover_that_shows_nothing_is_no_dialog(tab: Tab) -> None:
    text = await tab.open("bad.html?overlay")
    assert "Something that shows nothing itself covers the page: 2 elements behind it" in text
    assert "A dialog" not in text
    script = "for (const one of document.querySelectorAll('button, iframe')) one.remove()"
    await tab.page.evaluate(script)
    assert "covers the page: 0 elements behind it" in await tab.see(), "words are behind it"


async def test_text_of_other_directions_is_read_and_used(tab: Tab) -> None:
    text = await tab.open("bad.html?directions")
    assert 'textbox "שם"' in text
    assert "日本語の文" in text
    assert "שמר" in await tab.do(click, '"שמור"')
    assert "縦" in await tab.do(click, '"縦書き"')


@pytest.mark.parametrize("part", [0, 1])
async def test_what_is_scrolled_to_from_the_right_is_listed_and_used(tab: Tab, part: int) -> None:
    await tab.open("bad.html?fromRight")
    assert all(tab.has(f'"Part {part} {number}"') for number in range(40))
    assert f"Pressed {part} 39" in await tab.do(click, f'"Part {part} 39"')


async def test_what_is_drawn_anew_in_each_frame_is_clicked(tab: Tab) -> None:
    await tab.open("bad.html?ticking")
    assert "Bought 2" in await tab.do(click, '"Buy 2"')


async def test_of_a_page_that_is_all_canvas_it_is_said_how_to_act_on_it(tab: Tab) -> None:
    text = await tab.open("bad.html?canvas")
    assert "only a screenshot shows it. Act on it with click_at and send_keys." in text
    assert re.search(r"canvas #c 400x300 at x=\d+ y=\d+, click by coordinates", text)


async def test_what_a_canvas_draws_is_not_called_unchanged(tab: Tab) -> None:
    await tab.open("bad.html?canvas")
    report = await click_at(tab.view, 100, 100)
    assert tab.shot
    said = change_text(tab.shot, await tab.view.look(), 500, said=report)
    assert said.startswith("Nothing on the page changed. What a canvas draws is not read")


async def test_a_page_that_changes_all_the_time_is_read(tab: Tab) -> None:
    await tab.page.goto(f"{tab.site}/bad.html?changing")
    await tab.view.settle(2)
    assert (await tab.see()).count('button "Again"') == 200
