"""The browser says each thing once, and shows where links lead as long as that is short."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.page.snapshot import shown_address
from openmanus_graph.state.settings import BrowserSettings
from tests.support.browsing import Browsing
from tests.support.static_site import SiteHandler, serving

QUERY = "utm_source=" + "x" * 200
LINKS = f"""<!doctype html><title>Links</title>
<a href="/orders?page=2">Orders</a> <a href="/search?{QUERY}">Search</a>
<a href="https://other.example/a">Other</a> <a href="#below">Below</a> <a href="#/app">App</a>
<a href="javascript:void 0">Script</a> <a href="mailto:ada@engine.example">Mail</a>"""
FORM = """<!doctype html><title>Form</title><label>Name <input></label> <label>City <input></label>
<label>Size <select><option>S<option>L</select></label>
<label><input type=checkbox> Agreed</label> <label>Long <textarea></textarea></label>
<label>Day <input type=date></label> <label>Capitals <input oninput="value=value.toUpperCase()">
</label><div style="height: 3000px"></div>"""
PAGES = {"/links": LINKS, "/form": FORM, "/many": "<title>Many</title>" + 300 * LINKS[15:]}


class WordsHandler(SiteHandler):
    """Serves the pages above."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(PAGES.get(self.path, "").encode())


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serving(WordsHandler) as url:
        yield url


@pytest.fixture
def use(tmp_path: Path) -> Iterator[Browsing]:
    browsing = Browsing(tmp_path / "work", BrowserSettings(observation_tokens=5000))
    with contextlib.closing(browsing.session):
        yield browsing


async def test_what_an_action_says_is_not_said_again(use: Browsing, site: str) -> None:
    seen = await use("go_to_url", url=f"{site}/form")
    assert seen.startswith(f'Page "Form" {site}/form\n'), "which is where it went"
    name = use.index("Name")
    typed = f'Typed "Ada" into [{name}] textbox "Name".'
    assert await use("input_text", index=name, text="Ada") == typed
    assert await use("input_text", index=name, text="") == f'Cleared [{name}] textbox "Name".'
    size = use.index("Size")
    chosen = await use("select_dropdown_option", index=size, text="L")
    assert chosen == f'Chose "L" in [{size}] combobox "Size".'
    box = use.index("Agreed")
    clicked = f'Clicked [{box}] checkbox "Agreed".\nChanged: [{box}]'
    assert await use("click_element", index=box) == f"{clicked} checked"
    assert await use("click_element", index=box) == f"{clicked} (no longer checked)"
    day = use.index("Day")
    assert await use("input_text", index=day, text="2026-01-02") == (
        f'Set [{day}] date input "Day" to "2026-01-02".'
    )
    text = "word " * 100
    assert (await use("input_text", index=use.index("Long"), text=text)).count("word word") < 21
    city = use.index("City")
    await use("click_element", index=name)
    assert await use("send_keys", keys="Tab") == (
        f'Pressed Tab. The focus is on [{city}] textbox "City".'
    )
    assert (await use("scroll_down", scroll_amount=300)).count("300 px above") == 1


async def test_what_an_action_does_not_say_is_said(use: Browsing, site: str) -> None:
    await use("go_to_url", url=f"{site}/form")
    index = use.index("Capitals")
    seen = await use("input_text", index=index, text="ada")
    assert 'It shows "ADA".' in seen
    assert "Changed" not in seen
    page = "document.querySelector('input').value = 'by itself'"
    box = use.index("Agreed")
    await use("get_state")
    view = use.browser.current.page
    await browser_loop.run(lambda: view.evaluate(page))
    seen = await use("click_element", index=box)
    assert f'Changed: [{use.index("Name")}] textbox "Name" value="by itself"' in seen
    again = await use("input_text", index=use.index("Name"), text="by itself")
    assert again == f'Typed "by itself" into [{use.index("Name")}] textbox "Name".'


async def test_links_show_short_addresses_and_hover_the_long_ones(use: Browsing, site: str) -> None:
    seen = await use("go_to_url", url=f"{site}/links")
    assert '[1] link "Orders" /orders?page=2 [2] link "Search" /search… ' in seen
    assert '[3] link "Other" https://other.example/a [4] link "Below" [5] link "App" ' in seen
    assert '/links#/app [6] link "Script" [7] link "Mail" mailto:ada@engine.example' in seen
    assert "(hover shows an address whole that ends in …)" in seen
    assert f'over [2] link "Search", which leads to {site}/search?{QUERY}.' in await use(
        "hover", index=2
    )
    assert (await use.observe("get_state")).site == site


async def test_a_page_that_is_too_long_shows_no_addresses(use: Browsing, site: str) -> None:
    seen = await use("go_to_url", url=f"{site}/many")
    assert '[1] link "Orders" [2] link "Search" ' in seen
    assert "(Addresses of links are left out: hover shows one.)" in seen


@pytest.mark.parametrize(
    ("href", "shown"),
    [
        ("https://a.example/b", "/b"),
        ("https://a.example/b?c=d#e", "/b?c=d#e"),
        ("https://a.example/" + "b" * 60, "/" + "b" * 58 + "…"),
        ("https://a.example/b?" + "c" * 60, "/b…"),
        ("http://a.example/b", "http://a.example/b"),
        ("https://a.example:444/b", "https://a.example:444/b"),
        ("https://a.example/page#there", ""),
        ("https://a.example/page#/there", "/page#/there"),
        ("https://a.example/page?x#!there", "/page?x#!there"),
        ("https://[::1/", ""),
        ("javascript:alert(1)", ""),
        ("tel:+41", "tel:+41"),
        ("", ""),
    ],
)
def test_an_address_is_shown_short(href: str, shown: str) -> None:
    assert shown_address(href, "https://a.example/page") == shown
