"""Typing, setting and checking fields; files."""

from pathlib import Path

import pytest

from openmanus_graph.backends.browser.page.fields import input_text, upload_file
from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("field", "text", "shown"),
    [
        ('"E-mail"', "new@site.test", 'value="new@site.test"'),
        ("Phone", "5551234567", 'value="(555) 123-4567"'),
        ('"Born"', "2001-02-03", 'value="2001-02-03"'),
        ('"Meeting"', "14:30", 'value="14:30"'),
        ('"Colour"', "#00ff00", 'value="#00ff00"'),
        ('"Volume"', "7", 'value="7"'),
        ('"Amount"', "12.5", 'value="12.5"'),
        ('"About you"', "one\ntwo", 'value="one\ntwo"'),
        ('"Letter"', "Dear all", 'value="Dear all"'),
        ('"About you"', "long " * 100 + "end", "long long"),
        ('"Picky"', "zoo", 'value="zoo"'),
        ('"Short"', "żółw", 'value="żółw"'),
    ],
)
async def test_a_field_holds_what_was_typed_into_it(
    tab: Tab, field: str, text: str, shown: str
) -> None:
    await tab.open("forms.html")
    assert shown in await tab.do(input_text, field, Text(text))


async def test_typing_replaces_and_an_empty_text_clears(tab: Tab) -> None:
    await tab.open("forms.html")
    assert "Cleared" in await tab.do(input_text, '"E-mail"', Text(""))
    assert tab.shot
    assert tab.shot.elements[tab.index('"E-mail"')].value == ""


async def test_a_mask_and_a_limit_are_reported(tab: Tab) -> None:
    await tab.open("forms.html")
    assert 'It shows "(555) 123-4567"' in await tab.do(input_text, "Phone", Text("5551234567"))
    assert 'It shows "abcde"' in await tab.do(input_text, '"Short"', Text("abcdefgh"))


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        ('"Born"', "3 February", "yyyy-mm-dd.*holds what it held before"),
        ('"Amount"', "many", 'did not take "many"'),
        ('"Customer number"', "x", "read-only"),
        ('"Voucher"', "x", "disabled"),
        ("accept the terms", "yes", "click it"),
        ('"Papers"', "a.pdf", "upload_file"),
        ('"Send"', "x", "sends or resets its form"),
    ],
)
async def test_what_a_field_refuses_is_reported(tab: Tab, field: str, text: str, why: str) -> None:
    await tab.open("forms.html")
    with pytest.raises(ToolError, match=why):
        await input_text(tab.view, tab.index(field), text)
    assert "Sent:" not in await tab.see()


async def test_passwords_and_secrets_are_never_shown(tab: Tab) -> None:
    await tab.open("forms.html")
    said = await tab.do(input_text, '"Password"', Text("hunter2"))
    said += await tab.do(input_text, '"Short"', Text("geh4m"), secret=True)
    said += await tab.see()
    assert "hunter2" not in said
    assert "geh4m" not in said
    assert 'textbox "Password" value="(hidden)"' in said
    assert await tab.page.evaluate("[pw.value, f.short.value]") == ["hunter2", "geh4m"]


async def test_typing_survives_a_page_that_draws_itself_anew(tab: Tab) -> None:
    await tab.open("rerender.html")
    assert 'value="Sleep well"' in await tab.do(input_text, "New task", Text("Sleep well"))
    await tab.do(click, '"Add"')
    assert "Sleep well [" in await tab.see()


async def test_a_hidden_checkbox_is_ticked_by_its_label(tab: Tab) -> None:
    await tab.open("forms.html")
    assert 'checkbox "I accept the terms" checked' in await tab.do(click, "accept the terms")
    assert 'radio "Small" checked' in await tab.do(click, '"Small"')


async def test_fields_in_frames_and_shadow_roots_take_text(tab: Tab) -> None:
    text = await tab.open("frames.html")
    cross = int(text[text.index("I am cross") :].split("[")[1].split("]")[0])
    assert 'value="over there"' in await tab.do(input_text, cross, Text("over there"))
    await tab.open("shadow.html")
    assert 'value="deep"' in await tab.do(input_text, "Shadow field", Text("deep"))


async def test_files_go_into_inputs_and_choosers(tab: Tab, tmp_path: Path) -> None:
    one, two = tmp_path / "one.pdf", tmp_path / "two.txt"
    one.write_text("1")
    two.write_text("2")
    await tab.open("forms.html")
    assert 'value="one.pdf, two.txt"' in await tab.do(upload_file, '"Papers"', [one, two])
    assert "Picture: one.pdf" in await tab.do(upload_file, "Choose a picture", [one])
    with pytest.raises(ToolError, match="one file only"):
        await upload_file(tab.view, tab.index("Choose a picture"), [one, two])


async def test_a_form_is_filled_and_sent(tab: Tab) -> None:
    await tab.open("forms.html")
    await tab.do(input_text, '"E-mail"', Text("me@site.test"))
    await tab.do(click, "accept the terms")
    said = await tab.do(click, '"Send"')
    assert "email=me%40site.test" in said
    assert "terms=on" in said
