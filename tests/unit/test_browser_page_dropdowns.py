"""Drop-downs of every kind are listed and chosen from."""

import re

import pytest

from openmanus_graph.backends.browser.page import dropdown
from openmanus_graph.backends.browser.page.dropdown import dropdown_options, select_dropdown_option
from openmanus_graph.backends.browser.page.fields import input_text
from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("field", "text", "chosen"),
    [
        ('"Size"', "Medium", "m"), ('"Size"', "m", "m"), ('"Size"', "1", "m"),
        ('"Size"', "custom", "c"), ('"City"', "Prague", "Prague"), ('"Country"', "Belgium", "Be"),
        ('"Country"', "Ch", "Ch"), ('"Country"', "0", "Au"), ("Speed", "Fast", "Fast"),
        ('"Number"', "Number 321", "Number 321"), ('"Toppings"', "Ham", "Ham"),
    ],
)  # fmt: skip
async def test_an_option_is_chosen_by_label_value_or_place(
    tab: Tab, field: str, text: str, chosen: str
) -> None:
    await tab.open("dropdowns.html")
    assert f"Chosen: {chosen}" in await tab.do(select_dropdown_option, field, Text(text))


@pytest.mark.parametrize(
    ("field", "listed"),
    [
        ('"Size"', "2: Huge (value x), disabled"),
        ('"Size"', "3: Custom cut (value c) in Special"),
        ('"Toppings"', "1: Olives"),
        ('"City"', "0: Paris"),
        ('"Country"', "2: Chile (value Ch)"),
        ("Speed", "1: Fast"),
        ('"Number"', "options were read. Choose one by"),
    ],
)
async def test_the_options_are_listed(tab: Tab, field: str, listed: str) -> None:
    await tab.open("dropdowns.html")
    assert listed in await tab.do(dropdown_options, field)


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        ('"Size"', "Enormous", r'(?s)no option "Enormous".*0: Small'),
        ('"Size"', "Huge", "is disabled"),
        ('"Country"', "Atlantis", "(?s)no option.*Austria"),
    ],
)
async def test_a_wrong_option_gives_the_list(tab: Tab, field: str, text: str, why: str) -> None:
    await tab.open("dropdowns.html")
    with pytest.raises(ToolError, match=why):
        await select_dropdown_option(tab.view, tab.index(field), text)


async def test_an_option_is_chosen_from_the_list_that_was_opened(tab: Tab) -> None:
    await tab.open("dropdowns.html")
    await tab.do(dropdown_options, "Speed")
    assert "Chosen: Fast" in await tab.do(select_dropdown_option, "Speed", Text("Fast"))


async def test_several_options_can_be_selected(tab: Tab) -> None:
    await tab.open("dropdowns.html")
    await tab.do(select_dropdown_option, '"Toppings"', Text("Cheese"))
    said = await tab.do(select_dropdown_option, '"Toppings"', Text("Olives"))
    assert "Selected now: Cheese, Olives" in said


async def test_suggestions_appear_while_typing_and_can_be_clicked(tab: Tab) -> None:
    await tab.open("dropdowns.html")
    change = await tab.do(input_text, '"Fruit"', Text("ap"))
    assert 'option "apple"' in change
    assert "Chosen: apricot" in await tab.do(click, '"apricot"')


async def test_what_opens_no_list_is_reported(tab: Tab) -> None:
    await tab.open("menus.html")
    with pytest.raises(ToolError, match="no list of options appeared"):
        await dropdown_options(tab.view, tab.index("Opens nothing"))


@pytest.mark.parametrize(
    ("field", "text", "done"),
    [
        ('"Owner"', "Users", "owner Users"),
        ('"Many"', "Option 45", "many Option 45"),
        ("Plan none", "Gold", "plan Gold"),
    ],
)
async def test_a_list_is_that_of_the_field_and_of_no_menu_beside_it(
    tab: Tab, field: str, text: str, done: str
) -> None:
    await tab.open("menus.html")
    said = await tab.do(select_dropdown_option, field, Text(text))
    assert f'Chose "{text}" in [' in said
    assert f"Did: {done}" in said


async def test_a_list_that_draws_what_is_in_view_is_read_whole(tab: Tab) -> None:
    await tab.open("menus.html")
    said = await tab.do(dropdown_options, '"Many"')
    assert "\n59: Option 59\n" in said
    assert "Users" not in said
    assert "Did: many Option 7" in await tab.do(select_dropdown_option, '"Many"', Text("option 7"))


@pytest.mark.parametrize("limit", ["MAX_PAGES", "MAX_LISTED"])
async def test_a_list_that_is_not_read_to_its_end_says_so(
    tab: Tab, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(dropdown, limit, 2)
    await tab.open("menus.html")
    said = await tab.do(dropdown_options, '"Many"')
    assert re.search(r"The list may be longer: only its first \d+ options were read", said)
    assert "Option 59" not in said
    if limit == "MAX_PAGES":
        with pytest.raises(ToolError, match='no option "Option 59" in the part of the list that'):
            await tab.do(select_dropdown_option, '"Many"', Text("Option 59"))


@pytest.mark.parametrize("field", ['"Owner"', "Plan none"])
async def test_a_list_that_is_open_already_is_chosen_from(tab: Tab, field: str) -> None:
    await tab.open("menus.html")
    await tab.do(click, field)
    wanted = "Anna" if "Owner" in field else "Basic"
    assert f'Chose "{wanted}"' in await tab.do(select_dropdown_option, field, Text(wanted))


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("Stays as it is", "Other", 'which shows "Stays as it is" now'),
        ("Stays as it is", "it", 'which shows "Stays as it is" now'),
        ('"More"', "Archive", 'Clicked "Archive" in the list of'),
        ('"Mute"', "Other", "which shows no choice of it."),
    ],
)
async def test_what_a_field_does_not_show_was_not_chosen(
    tab: Tab, field: str, text: str, said: str
) -> None:
    await tab.open("menus.html")
    done = await tab.do(select_dropdown_option, field, Text(text))
    assert said in done
    assert "Chose" not in done


async def test_a_menu_of_the_page_is_no_list_of_a_button(tab: Tab) -> None:
    await tab.open("menus.html")
    with pytest.raises(ToolError, match="no list of options appeared"):
        await select_dropdown_option(tab.view, tab.index("Opens nothing"), "Users")
    assert "went to" not in await tab.see()
