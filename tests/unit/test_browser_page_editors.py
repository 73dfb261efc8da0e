"""Editors hold what was typed into them, line by line, and can be read whole."""

import pytest

from openmanus_graph.backends.browser.page.fields import input_text
from openmanus_graph.backends.browser.reading import serialize
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

CODE = "if x:\n    y = 1\nelse:\n    y = 2"
HELD = {
    '"Plain"': "plain.innerText",
    '"Chat"': "chat.innerText",
    '"Cell"': "cell.innerText",
    '"Late"': "late.innerText",
    '"Letter"': "frame.contentDocument.body.innerText",
    '"Code"': "text",
}
"""The fields, and how to ask the page for what each holds."""


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.replace("\xa0", " ").split("\n") if line.strip()]


@pytest.mark.parametrize("field", HELD)
@pytest.mark.parametrize("text", [CODE, "one line", f"{CODE}\nz = 3\nlast"])
async def test_an_editor_holds_the_lines_that_were_typed(tab: Tab, field: str, text: str) -> None:
    await tab.open("editors.html")
    said = await tab.do(input_text, field, Text(text))
    assert lines(await tab.page.evaluate(HELD[field])) == lines(text)
    assert said.startswith("Typed")
    assert "It shows" not in said
    assert "Did:" not in said, "nothing was sent or run"


@pytest.mark.parametrize("field", HELD)
async def test_an_editor_is_cleared(tab: Tab, field: str) -> None:
    await tab.open("editors.html")
    assert "Cleared" in await tab.do(input_text, field, Text(""))
    assert not (await tab.page.evaluate(HELD[field])).strip()


async def test_an_editor_that_draws_its_text_itself_is_one_field(tab: Tab) -> None:
    text = await tab.open("editors.html")
    assert 'textbox "Code" value="line 1\nline 2\nline 3\nline 4" (the lines in view)' in text


async def test_an_editor_that_holds_something_else_is_reported(tab: Tab) -> None:
    await tab.open("editors.html")
    await tab.page.evaluate("() => { cell.onpaste = (event) => event.preventDefault(); }")
    with pytest.raises(ToolError, match='(?s)did not take "if x:.*it holds "old"'):
        await input_text(tab.view, tab.index('"Cell"'), CODE)


async def test_long_texts_say_so_and_are_read_whole(tab: Tab) -> None:
    text = await tab.open("editors.html")
    assert "(513 characters, see extract_content)" in text
    html = "\n".join([part["html"] for part in await serialize(tab.page)])
    assert "the last word" in html
    assert "Lyon" in html
    assert "(An editor: only its lines in view follow.)" in html
    assert "hunter2" not in html
    await tab.do(input_text, '"City"', Text("s3cret"), secret=True)
    assert "s3cret" not in "\n".join([part["html"] for part in await serialize(tab.page)])


DESIGN = {
    "Letter": "letter",
    "Rich text area": "framed",
    "Your comment": "named",  # the document's own name comes first
    "Notes": "late",  # it was a document before it was an editor
    "Empty one": "empty",
    "Your answer": "strict",  # nothing of it has a height
}


@pytest.mark.parametrize("name", DESIGN)
async def test_a_frame_in_design_mode_is_an_editor(tab: Tab, name: str) -> None:
    text = await tab.open("design.html")
    assert "Printed words" in text
    assert "focused" not in text
    for given in (CODE, "one line", ""):
        done = await tab.do(input_text, f'textbox "{name}"', Text(given))
        assert done.startswith("Typed" if given else "Cleared")
        held = await tab.page.evaluate(f"{DESIGN[name]}.contentDocument.body.innerText")
        assert lines(held) == lines(given)
    assert [one for one in DESIGN if tab.has(f'textbox "{one}".* focused')] == [name]
    assert tab.has(f'textbox "{name}" focused$')
