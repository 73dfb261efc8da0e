"""What a look at a page lists, and what it leaves out."""

import re

import pytest

from openmanus_graph.backends.browser.page.fields import input_text
from openmanus_graph.backends.browser.page.pointer import click, hover
from openmanus_graph.backends.browser.page.text import full_text, tokens
from openmanus_graph.backends.browser.pages import marked_screenshot
from openmanus_graph.backends.browser.reading import serialize
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

ROLES = "button|link|textbox|checkbox|radio|combobox|listbox|option|slider|spinbutton|tab|searchbox"
CANNOT_BE_SEEN = {
    "Collapsed",
    "Inert",
    "Other slide",
    "Skip",
    "Clipped away",
    "Passed through",
}  # though Playwright lists them


async def test_everything_a_person_can_act_on_is_listed_once(tab: Tab) -> None:
    text = await tab.open("clickables.html")
    for words in (
        'clickable "open details"', 'clickable icon trash', 'button "×"', 'link "\\+"',
        'button "Save file"', "clickable #red.dot red 20x20", "clickable #blue.dot blue",
        "clickable circle #disc green", "clickable rect #square orange", 'clickable "Apples"',
        'clickable "Plums"', 'clickable "Rendered by a framework"', 'button "Nested once"',
        'button "Buy mug"', 'disclosure "More facts" collapsed', 'button "Seen but aria-hidden"',
        'focusable "Focusable thing"', 'link "Left room"', 'link "Right room"',
        'button "Off for now" disabled', 'link "Touchable"',
        'textbox "A field named id"', 'textbox "A field named parentNode"', "canvas #drawing",
    ):  # fmt: skip
        assert tab.has(words), (words, text)
    assert text.count("Nested once") == 1
    assert not tab.has("Passed through"), "but its text is read"
    assert "Passed through" in text
    assert text.count("Left room") == 1


@pytest.mark.parametrize(
    "words",
    [
        "Not displayed",
        "Not visible",
        "Collapsed",
        "Inert",
        "Clipped away",
        "Inside details",
        "Hidden fact",
        "Skip",
        "Other",
    ],
)
async def test_what_cannot_be_seen_is_left_out(tab: Tab, words: str) -> None:
    assert words not in await tab.open("clickables.html")


@pytest.mark.parametrize(
    "page",
    ["forms", "clickables", "frames", "shadow", "dropdowns", "tables", "layers", "shop/index"],
)
async def test_nothing_of_playwrights_accessibility_snapshot_is_missing(
    tab: Tab, page: str
) -> None:
    await tab.open(f"{page}.html")
    assert tab.shot
    aria = await tab.page.aria_snapshot(mode="ai")
    listed = {element.name for element in tab.shot.elements.values()}
    listed |= {option for element in tab.shot.elements.values() for option in element.options}
    theirs = set(re.findall(rf'- (?:{ROLES}) "([^"]+)"', aria))
    assert theirs - listed <= CANNOT_BE_SEEN


async def test_a_look_reads_as_a_person_does(tab: Tab) -> None:
    text = await tab.open("tables.html")
    assert '# Prices\nName | Price | Stock\nBolt | 1.20 | [1] link "12 left"' in text
    assert 'tab "First" selected' in text
    assert "Second panel" not in text
    forms = await tab.open("forms.html")
    assert "E-mail [" not in forms  # the label is the name and said once
    assert 'textbox "E-mail" value="old@site.test" required' in forms
    assert 'textbox "Customer number" value="C-17" readonly' in forms
    assert 'radio "Large" checked' in forms
    assert 'checkbox "I accept the terms"' in forms
    assert "(yyyy-mm-dd 1900-01-01..)" in forms
    assert "options: Small, Medium, Huge, Custom cut" in await tab.open("dropdowns.html")


async def test_frames_are_read_in_their_place_and_across_origins(tab: Tab) -> None:
    text = await tab.open("frames.html")
    order = ["Outer button", "I am same", "Nested button", "I am cross"]
    assert sorted(order, key=text.index) == order
    assert "gone" not in text
    for which in ("same", "cross"):
        place = text.index(f"I am {which}")
        index = int(text[place:].split("[", 2)[2].split("]")[0])
        assert f"{which} pressed" in await tab.do(click, index)


async def test_nested_frames_can_be_acted_on(tab: Tab) -> None:
    await tab.open("frames.html")
    assert "Nested clicked" in await tab.do(click, "Nested button")


async def test_open_shadow_roots_are_read_with_what_is_slotted(tab: Tab) -> None:
    text = await tab.open("shadow.html")
    assert "## Slotted title" in text
    assert "1 times" in await tab.do(click, "Deep shadow button")
    assert "pressed" in await tab.do(click, "Plain press")


async def test_closed_shadow_roots_are_read_and_acted_on(tab: Tab) -> None:
    text = await tab.open("shadow.html")
    assert "Closed text" in text
    assert 'link "Light child"' in text
    assert "closed button pressed" in await tab.do(click, "Closed button")
    assert 'value="typed"' in await tab.do(input_text, "Closed field", Text("typed"))
    assert 'button "Made later"' in await tab.do(click, "Closed press")
    assert "later button pressed" in await tab.do(click, "Made later")


async def test_what_lies_behind_a_dialog_is_left_out(tab: Tab) -> None:
    await tab.open("layers.html")
    await tab.do(click, "Open dialog")
    text = await tab.see()
    assert tab.has("No thanks")
    assert tab.has("Your e-mail")
    assert "Below the fold" not in text
    assert "behind it cannot be reached" in text
    assert "Below the fold" in await tab.do(click, "No thanks")
    await tab.do(click, "Open native dialog")
    assert list(filter(tab.has, ["Close native", "Below the fold"])) == ["Close native"]


async def test_odd_pages_are_read_and_acted_on(tab: Tab) -> None:
    """Fields named like properties, text right in a shadow root, deep nesting, other built-ins."""
    text = await tab.open("odd.html")
    assert re.search(r'Jug · \[\d+\] button "Buy" only one left', text)
    assert "go" in await tab.do(click, '"Go"')
    assert "from below" in await tab.do(click, "Deep down")
    assert [part["html"].count("Deep down") for part in await serialize(tab.page)] == [1]
    await tab.do(click, "Ask")
    assert "only one left" in await tab.do(click, "Yes")


async def test_of_a_hundred_thousand_elements_only_so_many_are_looked_at(tab: Tab) -> None:
    text = await tab.open("huge.html")
    assert "link 0" in text
    assert "not looked at" in text
    assert tab.shot
    assert len(tab.shot.elements) <= 4200


async def test_a_long_page_is_cut_at_the_window_and_says_what_is_left_out(tab: Tab) -> None:
    await tab.open("long.html")
    shot = await tab.view.look()
    text = full_text(shot, 250)
    assert tokens(text) <= 260
    assert "more lines with" in text
    await tab.page.evaluate("scrollTo(0, 600)")
    lower = full_text(await tab.view.look(), 300)
    assert "elements are left out: scroll up" in lower
    assert 'read 1"' not in lower


async def test_a_scroll_area_and_links_below_the_fold_have_indices(tab: Tab) -> None:
    await tab.open("long.html")
    assert tab.has(r"scroll area #pane \(\d+ px more\)")
    assert tab.has("Pane end")
    assert tab.has('"read 30"')


async def test_hovering_shows_what_appears(tab: Tab) -> None:
    await tab.open("tables.html")
    await tab.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend',"
        " '<style>.sub{display:none} .top:hover .sub{display:block}</style>"
        '<div class="top"><a href="#m">Menu</a><div class="sub"><a href="#s">Sub entry</a></div>'
        "</div>')"
    )
    await tab.see()
    assert 'link "Sub entry"' in await tab.do(hover, '"Menu"')


async def test_what_opens_on_hover_is_marked(tab: Tab) -> None:
    await tab.open("hover.html")
    for trigger, inside in (
        ('link "Products" opens on hover', 'link "Phones"'),
        ('hoverable "Services" opens on hover', 'link "Repairs"'),
        ('hoverable "Term" opens on hover', "Its meaning"),
        ("hoverable .side red 100x20 opens on hover", 'button "In the panel"'),
        ('hoverable "Card" opens on hover', 'button "In the card"'),
        ('hoverable "Row one" opens on hover', 'button "Delete one"'),
        ('hoverable "Row two" opens on hover', 'button "Delete two"'),  # it slips away once
    ):
        assert inside not in await tab.see()
        assert inside in await tab.do(hover, trigger), trigger
    assert tab.has('button "Fading"$')
    assert not tab.has("Coloured")
    await tab.do(hover, "Services")
    assert "Faded" in await tab.do(click, "Fading")  # it moves up as the list closes


async def test_the_screenshot_is_small_and_marked(tab: Tab) -> None:
    import io

    from PIL import Image

    await tab.open("clickables.html")
    assert tab.shot
    before = await tab.page.content()
    data = await marked_screenshot(tab.view, tab.shot)
    assert await tab.page.content() == before
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.format == "JPEG"
        assert picture.size == (1000, 700)
        marked = {colour for _, colour in picture.convert("RGB").getcolors(10**6) or []}
    assert len(data) < 60_000
    assert len(marked) > 50
