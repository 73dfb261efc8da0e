"""Custom elements that say by ElementInternals what they are, and not by attributes."""

import pytest
from playwright.async_api import Error

from openmanus_graph.backends.browser.page.dropdown import select_dropdown_option
from openmanus_graph.backends.browser.page.fields import input_text
from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    "shown",
    [
        'checkbox "News" checked$',
        'checkbox "Old" half checked disabled$',
        'switch "Wi-Fi"$',  # it draws itself in a closed root
        'button "Dark" pressed$',
        'button "More" collapsed opens menu$',
        'tab "First" selected$',
        'checkbox "Terms" required$',  # named by a label of the page
        'slider "Volume" value="4"$',
        'button "By hand"$',  # attributes come first
        'combobox "Colour"',  # named by another element
        'menuitemradio "Late" checked$',  # asked for after its constructor
        'checkbox "Nested" checked$',  # it is in a closed root
        'button "Inside"$',  # in a closed root that the page's source declares
    ],
)
async def test_roles_names_and_states_are_shown(tab: Tab, shown: str) -> None:
    text = await tab.open("internals.html")
    assert tab.has(shown), text
    assert '"Only words"' not in text


@pytest.mark.parametrize(
    ("words", "said", "shown"),
    [
        ('"News"', "box false", 'checkbox "News"$'),
        ('"Wi-Fi"', "wifi on", 'switch "Wi-Fi" checked$'),
        ('"More"', "more", 'button "More" expanded'),
        ('"Terms"', "terms", 'checkbox "Terms" checked required$'),
        ('"Nested"', "box false", 'checkbox "Nested"$'),
        ('"Inside"', "inside", 'button "Inside"'),
    ],
)
async def test_a_state_that_a_click_changes_is_reported(
    tab: Tab, words: str, said: str, shown: str
) -> None:
    await tab.open("internals.html")
    assert f"Did: {said}" in await tab.do(click, words)
    assert tab.has(shown)


async def test_a_slider_is_moved_and_what_is_disabled_or_of_another_kind_is_refused(
    tab: Tab,
) -> None:
    await tab.open("internals.html")
    assert "Set [" in await tab.do(input_text, '"Volume"', Text("7"))
    assert tab.has('slider "Volume" value="7"')
    with pytest.raises(ToolError, match="is disabled"):
        await tab.do(click, '"Shut"')
    with pytest.raises(ToolError, match="is of another kind"):
        await tab.do(select_dropdown_option, '"News"', Text("x"))
    assert "nothing yet" in await tab.see()


async def test_the_page_keeps_what_it_knows_of_internals(tab: Tab) -> None:
    await tab.open("internals.html")
    name = "HTMLElement.prototype.attachInternals.name"
    assert await tab.page.evaluate(name) == "attachInternals"
    with pytest.raises(Error, match="NotSupportedError"):
        await tab.page.evaluate("document.querySelector('x-box').attachInternals()")
