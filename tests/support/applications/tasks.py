"""A task on each of the applications, as a reader would do it that only knows the tool's texts."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.applications.installing import (
    bundled_page,
    django_admin,
    gradio,
    jupyterlab,
    node_red,
    streamlit,
)
from tests.support.applications.reader import Lost, Reader
from tests.support.browsing import Browsing


@dataclass(frozen=True)
class Application:
    """An application and what is to be done in it."""

    name: str
    goal: str
    work: Callable[[Reader], Awaitable[None]]
    serve: Callable[[], AbstractContextManager[str]]


SELECTED = "document.querySelector('#id_permissions_to').options.length === 1"
NODES = "(() => {{ let count = 0; RED.nodes.eachNode(() => count++); return count === {}; }})()"
CELLS = "document.querySelector('.jp-OutputArea-output').innerText.trim() === '22\\n33'"


async def _antd(reader: Reader) -> None:
    choose = partial(reader, "select_dropdown_option", "combobox")
    await choose(near="Owner", text="Users", says='Chose "Users"', true="state.owner === 'Users'")
    await choose(
        near="Many", text="Option 45", says='Chose "Option 45"', true="state.many === 'v45'"
    )
    await choose(near="Tags", text="Option 3", says='Chose "Option 3"', true="state.tags == 'v3'")
    await choose(near="Tags", text="Option 50", says='"Option 50"', true="state.tags.length === 2")
    await reader("input_text", "Select date", text="2031-03-09", says="2031-03-09")
    await reader("send_keys", keys="Enter", true="state.due === '2031-03-09'")
    await reader("click_element", "switch", says="checked", true="state.open === true")
    await reader("click_element", '^button "Publish"', says="All will see it")
    await reader("click_element", '^button "OK"', says="Clicked", true="state.published")
    await reader("click_element", "Delete", near="Green", says="Delete Green\\?")
    await reader("click_element", '^button "OK"', says="Clicked", true="state.rows == 'Red,Blue'")
    await reader("get_state", true="state.page === 'none'")


async def _element_plus(reader: Reader) -> None:
    choose = partial(reader, "select_dropdown_option", "Select")
    await choose(near="Owner", text="Users", says='Chose "Users"', true="state.owner === 'Users'")
    await choose(near="Colour", text="Green", says='Chose "Green"', true="state.colour === 'Green'")
    await choose(near="Row", text="Row 120", says='Chose "Row 120"', true="state.row === 120")
    await reader("click_element", "City", says="Germany")
    await reader("click_element", "Germany", says="Munich")
    await reader("click_element", "Munich", true="state.city == 'de,m'")
    await reader("click_element", '^button "Open"', says="Send it\\?")
    await reader("click_element", '^button "Send"', says="Clicked", true="state.said === 'sent'")
    await reader("get_state", true="state.page === '' && state.owner === 'Users'")


async def _ag_grid(reader: Reader) -> None:
    await reader("click_element", '"Make 3"', says="Clicked")
    await reader("send_keys", keys="Enter", says="textbox")
    await reader("input_text", "textbox", text="Zebra")
    await reader("send_keys", keys="Enter", says="Zebra", true="data[3].make === 'Zebra'")
    await reader("click_element", '^(columnheader )?"Price"', says="New order|New or changed")
    await reader("scroll_to_text", text="Model 150")


async def _handsontable(reader: Reader) -> None:
    await reader("click_element", '"Bob"', says="Clicked")
    await reader("send_keys", keys="Bea")
    await reader("send_keys", keys="Enter", says="Bea", true="table.getDataAtCell(1, 0) === 'Bea'")
    await reader("get_state")
    await reader("click_element", '^(gridcell )?"▼"', near="Bea", says="old")
    await reader("click_element", 'option "old"', true="table.getDataAtCell(1, 2) === 'old'")


async def _leaflet(reader: Reader) -> None:
    await reader("click_element", "Zoom in", says="places", true="map.getZoom() === 6")
    await reader("click_element", "Munich", says="weather in Munich")
    await reader("click_element", "Close popup", says="Gone")
    await reader("hover", "Layers", says="Rivers")
    await reader("click_element", "Rivers", says="checked", true="map.hasLayer(rivers)")


async def _monaco(reader: Reader) -> None:
    code = "function twice(x) {\n  return [x, x]\n}\n"
    await reader(
        "input_text",
        "textbox",
        text=code,
        says="Typed|typed",
        true="editor.getValue() === " + repr(code),
    )
    await reader("extract_content", says="return \\[x, x\\]")


async def _codemirror(reader: Reader) -> None:
    code = "for (const x of [1, 2]) {\n  print(x)\n}\n"
    await reader("extract_content", says="line 199")
    await reader(
        "input_text", "textbox", text=code, true="editor.state.doc.toString() === " + repr(code)
    )
    await reader("extract_content", says="print\\(x\\)")


async def _quill(reader: Reader) -> None:
    await reader(
        "input_text",
        "Write here",
        text="Dear Ada,\nall is well.",
        true="quill.getText() === 'Dear Ada,\\nall is well.\\n'",
    )
    await reader("send_keys", keys="Control+A")
    await reader(
        "click_element", "bold", says="pressed|Changed|Clicked", true="quill.getFormat(0, 3).bold"
    )


async def _prosemirror(reader: Reader) -> None:
    await reader(
        "input_text",
        "textbox",
        text="A line.\nAnother (line).",
        true="view.state.doc.textBetween(0, 26, '|') === 'A line.|Another (line).'",
    )
    await reader("send_keys", keys="Control+A")
    await reader("click_element", "strong", true="!!document.querySelector('.ProseMirror strong')")


async def _tinymce(reader: Reader) -> None:
    await reader(
        "input_text",
        "textbox",
        text="Dear Ada,\nall is well.",
        true="tinymce.activeEditor.getContent({ format: 'text' }).includes('all is well.')",
    )
    await reader("send_keys", keys="Control+A")
    await reader(
        "click_element", "Bold", true="tinymce.activeEditor.getContent().includes('<strong>')"
    )
    await reader("click_element", '^menuitem "Format"', says="Code")


async def _flatpickr(reader: Reader) -> None:
    await reader("click_element", "Departure", says="March")
    await reader("click_element", "next|Next", says="April")
    await reader(
        "click_element",
        "April 20, 2031",
        says="2031-04-20",
        true="departure.input.value === '2031-04-20'",
    )


async def _bootstrap(reader: Reader) -> None:
    await reader("click_element", "navbar-toggler", says="Articles")
    await reader("click_element", "Articles", says="Mugs")
    await reader("click_element", "Mugs", true="location.hash === '#mugs'")
    await reader("click_element", "Prices", says="costs 7.20")
    await reader("click_element", "Order", says="Order a mug")
    await reader("click_element", '^checkbox "As a gift"', says="checked", true="gift.checked")
    await reader("click_element", "Order it", says="Ordered", true="ordered.gift")


async def _django(reader: Reader) -> None:
    await reader("input_text", "Username", text="ada")
    await reader("input_text", "Password", text="count-on-it")
    await reader("click_element", "Log in", says="Site administration")
    await reader("click_element", '^link "Add"', near="Groups", says="Add group")
    await reader("input_text", '^textbox "Name:"', text="Editors")
    await reader(
        "select_dropdown_option",
        'listbox "Available',
        text="Authentication and Authorization | group | Can add group",
        says="Can add group",
    )
    await reader("click_element", "Choose selected permissions", says="Remove all permissions")
    await reader("click_element", '^button "Save"', says="added successfully")
    await reader("click_element", '^link "Editors"', near="was added", says="Change group")
    await reader("get_state", true=SELECTED)
    await reader("click_element", '^link "Users"', says="Select user to change")
    await reader("click_element", '^link "ada"', says="Last login")
    await reader("click_element", "Choose a Date", near="last_login", says="15")
    await reader(
        "click_element", '^link "15"', says="-15", true="id_last_login_0.value.endsWith('-15')"
    )


async def _jupyterlab(reader: Reader) -> None:
    await reader.until("Notebook")
    await reader("click_element", "Python 3", near="Notebook", says="Clicked")
    await reader.until("textbox")
    await reader("get_state")
    await reader(
        "input_text",
        "^textbox",
        near="\\[ \\]|textbox",
        text="for n in [2, 3]:\n    print(n * 11)\n",
    )
    await reader("send_keys", keys="Shift+Enter")
    await reader.until("22")
    await reader("get_state", says="33", true=CELLS)


async def _gradio(reader: Reader) -> None:
    await reader.until("Name")
    await reader("input_text", '^textbox "Name"', text="Ada")
    await reader("select_dropdown_option", "Pick", text="Item 33", says='Chose "Item 33"')
    await reader("click_element", "Loud", says="checked")
    await reader("click_element", "Greet", says="Hello Ada with Item 33!")


async def _streamlit(reader: Reader) -> None:
    await reader.until("Name")
    await reader("input_text", '^textbox "Name"', text="Ada")
    await reader("select_dropdown_option", '^combobox "Size"', text="large", says='Chose "large"')
    await reader(
        "click_element",
        "gift",
        says="checked",
        true="document.querySelector('input[type=checkbox]').checked",
    )
    await reader("click_element", '^button "Order"')
    await reader.until("1 large for Ada as a gift")


async def _node_red(reader: Reader) -> None:
    await reader.until("notifications")
    await reader("click_element", "do not enable", says="Welcome")
    await reader("click_element", "icon times", says="inject")
    await reader("drag_and_drop", "inject", x=500, y=200, says="Dragged", true=NODES.format(1))
    await reader("get_state")
    await reader("drag_and_drop", "debug", near="inject|^", x=800, y=200, true=NODES.format(2))
    await reader("click_element", "Deploy", says="deployed")


def _page(name: str) -> Callable[[], AbstractContextManager[str]]:
    return partial(bundled_page, name)


APPLICATIONS = (
    Application("antd", "choose, date, confirm, delete a row", _antd, _page("antd")),
    Application(
        "Element Plus", "choose, one of 1000, cascade", _element_plus, _page("element-plus")
    ),
    Application("AG Grid", "edit a cell, sort", _ag_grid, _page("ag-grid")),
    Application("Handsontable", "edit cells", _handsontable, _page("handsontable")),
    Application("Leaflet", "zoom, open a marker, show a layer", _leaflet, _page("leaflet")),
    Application("Monaco", "write code", _monaco, _page("monaco")),
    Application("CodeMirror", "write code", _codemirror, _page("codemirror")),
    Application("Quill", "write and format", _quill, _page("quill")),
    Application("ProseMirror", "write and format", _prosemirror, _page("prosemirror")),
    Application("TinyMCE", "write and format", _tinymce, _page("tinymce")),
    Application("flatpickr", "choose dates", _flatpickr, _page("flatpickr")),
    Application("Bootstrap", "menu, tabs, order in a dialog", _bootstrap, _page("bootstrap")),
    Application(
        "Django admin",
        "log in, add a group, choose a date",
        _django,
        django_admin,
    ),
    Application("JupyterLab", "run a notebook", _jupyterlab, jupyterlab),
    Application("Gradio", "fill in and send", _gradio, gradio),
    Application("Streamlit", "fill in and send", _streamlit, streamlit),
    Application("Node-RED", "place two nodes, deploy", _node_red, node_red),
)


@dataclass(frozen=True)
class Outcome:
    """What came of a task."""

    done: bool
    calls: int
    tokens: int
    """Of all that the tool said."""
    false_successes: tuple[str, ...]
    """What the tool called done and the application knows nothing of."""
    lost: str
    """What the reader did not find."""


async def attempt(application: Application, folder: Path) -> Outcome:
    """Serve an application and do its task in a browser of its own."""
    use, lost = Browsing(folder), ""
    reader = Reader(use)
    with application.serve() as url, closing(use.session):
        try:
            await reader("go_to_url", url=url)
            await application.work(reader)
        except Lost as error:
            lost = str(error)
    false = tuple(reader.false_successes)
    return Outcome(not lost and not false, reader.calls, reader.tokens, false, lost)
