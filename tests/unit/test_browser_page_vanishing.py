"""Nothing that a person can act on is missing from a look without a word."""

import re

import pytest

from openmanus_graph.backends.browser.page.pointer import click, scroll
from openmanus_graph.backends.browser.page.text import full_text
from tests.support.tabs import Tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("element", "used"),
    [
        (r'link "\+ \(Zoom in\)"', "#in"),
        ('link "−"', "#out"),
        ('link "All of it floats"', "#floats"),
        ('link "Box of its children"', "#contents"),
    ],
)
async def test_what_floats_or_is_placed_in_something_without_size_is_listed(
    tab: Tab, element: str, used: str
) -> None:
    text = await tab.open("vanishing.html")
    assert "Cut away" not in text
    assert f"Used: {used}" in await tab.do(click, element)


async def test_what_is_scrolled_past_within_an_area_stays_listed(tab: Tab) -> None:
    await tab.open("vanishing.html")
    assert tab.has(r"scroll area #inner \(270 px more\)")
    await tab.do(scroll, 10_000, tab.index("scroll area #inner"))
    text = await tab.see()
    assert all(f'button "Entry {number}"' in text for number in range(1, 13))
    assert tab.has(r"scroll area #inner \(270 px above, 0 px more\)")


@pytest.mark.parametrize(
    "words",
    [
        r'button: Open report.ipynb report \[\d+\] button "… \(More of it\)"',
        r'button "New folder"',
        r'button "Upload files"',
        r'button "Marker \(Berlin\)"',
        r'button "Marker \(Munich\)"',
        "button icon trash",
        "button icon cog",
        r"button \(no name\)",
    ],
)
async def test_controls_have_their_names_or_it_is_said_that_there_is_none(
    tab: Tab, words: str
) -> None:
    text = await tab.open("vanishing.html")
    assert re.search(words, text), text
    assert "(image: Marker)" not in text


async def test_each_cell_of_a_grid_can_be_used(tab: Tab) -> None:
    text = await tab.open("vanishing.html")
    assert re.search(r'gridcell "Ann" \| \[\d+\] "1" \| \[\d+\] empty', text), text
    assert re.search(r'gridcell "north" · \[\d+\] gridcell: \[\d+\] link "south"', text), text
    assert "no | grid" in text, "a table that nobody listens to"
    assert re.search(r'Mo \| \[\d+\] link "1" \| \[\d+\] link "2"', text), "its links are enough"
    assert "Used: Bob" in await tab.do(click, '"Bob"')
    assert "Used: empty cell" in await tab.do(click, "gridcell empty")


CELLS = """<div style="height:90px; overflow:auto" onclick="this.title = event.target.textContent">
<div style="height:900px"><p class=c>Cell 0<p class=c>Cell 1<p class=c>Cell 2</div></div>"""
STAR = """<input type=radio id=s style="position:absolute; opacity:0; width:0; height:0">
<label for=s title="One star" style="display:inline-block; width:20px; height:20px"></label>"""
FOCUSED = """<div tabindex=0 style="height:90px; overflow:auto"><p style="height:900px">
<button>Inside</button></div>"""


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (CELLS, r"scroll area .* px more\)\n.*clickable \"Cell 0\"\n.*clickable \"Cell 1\""),
        (FOCUSED, r"scroll area \(\d+ px more\)\n.*button \"Inside\""),
        (STAR, r'radio "One star"'),
        ("<object type=text/html data='about:blank' name=map></object>", r'frame "map"'),
        ("<object data=none><button>Instead</button></object>", 'button "Instead"'),
    ],
    ids=["cells below a wrapper", "focusable area", "title of a label", "object", "no object"],
)
async def test_what_a_page_wraps_or_embeds_is_listed(tab: Tab, content: str, shown: str) -> None:
    await tab.page.set_content(content)
    text = await tab.see()
    assert re.search(shown, text), text


DRAWING = """data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg">
<text y="20" onclick="1">Drawn</text></svg>"""


async def test_a_document_without_a_body_is_read(tab: Tab) -> None:
    assert 'clickable text "Drawn"' in await tab.open(DRAWING)


async def test_a_frame_that_cannot_be_read_is_named(tab: Tab) -> None:
    assert "127.0.0.1:9" in await tab.open("vanishing.html")


async def test_of_a_very_large_page_what_the_window_shows_is_looked_at(tab: Tab) -> None:
    await tab.page.goto(f"{tab.site}/vanishing.html")
    await tab.page.evaluate(
        """document.body.innerHTML = [...Array(6000).keys()]
            .map((n) => `<p><button>Button ${n}</button></p>`).join('')"""
    )
    text = await tab.see(1000)
    assert "of its HTML elements" in text
    assert "at its end were not looked at" in text
    await tab.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    text = await tab.see(1000)
    assert 'button "Button 5999"' in text
    assert "at its end" not in text
    shot = tab.shot
    assert shot
    listed = shot.left_out_above // 2 + len(shot.elements)
    assert listed == 6000, "each is listed or counted"
    assert " elements are left out: scroll up" in full_text(shot, 300)
