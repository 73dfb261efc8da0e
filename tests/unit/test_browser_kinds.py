"""An element of another kind than an action needs is refused, and never clicked."""

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Error

from openmanus_graph.backends.browser.browsers import first_line
from tests.support.browsing import Browsing
from tests.support.pages import PageServer

pytestmark = pytest.mark.slow
PAGE = """<!doctype html><title>Kinds</title><script>
let clicks = 0;
addEventListener('click', () => { clicks++; document.title = 'clicked'; }, true);
</script>
<a href="/elsewhere">Away</a> <a href="/shop" aria-haspopup="true" aria-expanded="false">Shop</a>
<a href="#/route">Route</a> <a href="/elsewhere">
<span onclick="" style="cursor:pointer">Inner</span></a>
<form action="/elsewhere"><input aria-label="Name"><button>Send</button><input type=submit value=Go>
<input type=reset value=Reset></form>
<button type="button" onclick="">Delete</button>
<input type=checkbox aria-label=Check><input type=radio aria-label=Radio>
<div role=switch tabindex=0 aria-checked=false>Switch</div>
<div role=checkbox tabindex=0 aria-checked=false>Box</div>
<div role=menuitemcheckbox tabindex=0>Item</div><div role=tab tabindex=0 aria-controls=x>Tab</div>
<div role=option tabindex=0>Choice</div><div role=treeitem tabindex=0>Entry</div>
<input type=range aria-label=Range><input type=date aria-label=Date>
<input type=color aria-label=Colour>
<input type=file aria-label=File><canvas width=50 height=50 role=img onclick=""></canvas>
<details><summary>More</summary>text</details><textarea aria-label=Area></textarea>
<select aria-label=Native><option>One<option>Two</select>
<div role=listbox tabindex=0 aria-label=List>Nothing</div>"""
CLICKED = (
    'link "Away"', 'link "Shop"', 'link "Route"', '"Inner"', '"Send"', '"Go"', '"Reset"',
    '"Delete"', '"Switch"', '"Box"', '"Item"', '"Tab"', '"Choice"', '"Entry"', '"Check"', '"Radio"',
)  # fmt: skip
TYPED = ('"Name"', '"Range"', '"Date"', '"Colour"', '"Area"')


@pytest.fixture(scope="module")
def kinds() -> Iterator[str]:
    with PageServer() as server:
        server.add("/kinds", PAGE)
        yield server.url("/kinds")


@pytest.mark.parametrize(
    ("action", "elements"),
    [
        ("select_dropdown_option", (*CLICKED, *TYPED, '"File"', "canvas", '"List"')),
        ("get_dropdown_options", (*CLICKED, *TYPED, '"File"', "canvas")),
        ("input_text", (*CLICKED, '"File"', "canvas", '"More"', '"List"')),
        ("upload_file", (*CLICKED[:7], *CLICKED[8:], *TYPED, "canvas", '"Native"', '"List"')),
    ],
)
async def test_another_kind_is_refused(
    used: Browsing, kinds: str, action: str, elements: tuple[str, ...]
) -> None:
    await used("go_to_url", url=kinds)
    (used.session.workspace.root / "a.txt").write_text("x")
    text = {} if action == "get_dropdown_options" else {"text": "a.txt"}
    for words in elements:
        seen = await used.observe(action, index=used.index(words), **text)
        assert seen.failed, (words, seen.text)
        assert "Protocol error" not in seen.text
        now = await used("get_state")
        assert f'Page "Kinds" {kinds}\n' in now, (words, seen.text, now)


LEAVES = "location='/next'"
LEAVING = f"""<title>Leaves</title><div onclick="{LEAVES}" style="cursor:pointer">Plain</div>
<input aria-label=Focus onfocus="{LEAVES}"><input aria-label=Asks onfocus="confirm('Sure?')">
<select aria-label=Select onchange="{LEAVES}"><option>One<option>Two</select>
<div role=combobox tabindex=0 aria-label=Removed onclick="this.remove()">c</div>
<div role=combobox tabindex=0 aria-label=Rewritten
 onclick="document.open(); document.write('<p>new'); document.close()">c</div>
<div role=combobox tabindex=0 aria-label=Confirms onclick="confirm('Sure?')">c</div>
<button onmouseover="{LEAVES}">Over</button>
<div role=slider tabindex=0 aria-valuenow=1 aria-label=Slider onkeydown="{LEAVES}">s</div>"""


@pytest.mark.parametrize(
    ("action", "label", "args", "shown"),
    [
        ("select_dropdown_option", "Plain", {"text": "Two"}, "Next page"),
        ("get_dropdown_options", "Plain", {}, "Next page"),
        ("input_text", "Plain", {"text": "x"}, "Next page"),
        ("input_text", "Focus", {"text": "x"}, "Next page"),
        ("input_text", "Slider", {"text": "5"}, "Next page"),
        ("upload_file", "Plain", {"text": "a.txt"}, "Next page"),
        ("select_dropdown_option", "Select", {"text": "Two"}, "Next page"),
        ("select_dropdown_option", "Removed", {"text": "Two"}, "Leaves"),
        ("select_dropdown_option", "Rewritten", {"text": "Two"}, "new"),
        ("select_dropdown_option", "Confirms", {"text": "Two"}, "Answer with handle_dialog"),
        ("input_text", "Asks", {"text": "x"}, "Answer with handle_dialog"),
        ("click_element", "Over", {}, "Next page"),
        ("click_at", "", {"x": -5, "y": 9000}, "outside the window"),
        ("drag_and_drop", "Plain", {"x": 5, "y": 9000}, "outside the window"),
    ],
)
async def test_what_ends_an_action_early_is_said_in_a_sentence(
    used: Browsing, leaving: str, action: str, label: str, args: dict[str, object], shown: str
) -> None:
    (used.session.workspace.root / "a.txt").write_text("x")
    await used("go_to_url", url=leaving)
    seen = await used(action, label=label or None, **args)
    assert not re.search(r"Protocol error|uniqueContextId|Runtime\.|Traceback", seen), seen
    if "handle_dialog" in seen:
        await used("handle_dialog", accept=False)
    assert shown in seen + await used("get_state")


@pytest.fixture(scope="module")
def leaving() -> Iterator[str]:
    with PageServer() as server:
        server.add("/leaving", LEAVING)
        server.add("/next", "<h1>Next page</h1>")
        yield server.url("/leaving")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("CDPSession.send: Protocol error (Runtime.evaluate): uniqueContextId not found",
         "the page loaded another document meanwhile."),
        ("Page.bring_to_front: Protocol error (Page.bringToFront): Target closed",
         "the page or the browser was closed."),
        ("CDPSession.send: Protocol error (DOM.setFileInputFiles): Node is not a file input",
         "the page has removed or changed the element."),
        ("Page.pdf: Protocol error (Page.printToPDF): Printing failed",
         "the browser did not do it (Page.printToPDF)."),
        ("Runtime.evaluate: TypeError: x is null\n    at <anonymous>",
         "the browser did not do it (Runtime.evaluate)."),
        ("Page.goto: net::ERR_NAME_NOT_RESOLVED at https://a.example/\nCall log:",
         "there is no such host. Check the spelling, or search for the page."),
        ("Page.goto: net::ERR_ODD at https://a.example/", "the browser reports ERR_ODD."),
        ("BrowserType.launch: Executable doesn't exist", "Executable doesn't exist."),
    ],
)  # fmt: skip
def test_errors_of_the_protocol_are_sentences(message: str, said: str) -> None:
    assert first_line(Error(message)) == said
