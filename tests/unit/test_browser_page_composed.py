"""Widgets that libraries make of other elements: copies, wrappers, shades, roots and edges."""

import re
from pathlib import Path

import pytest

from openmanus_graph.backends.browser.page.dropdown import select_dropdown_option
from openmanus_graph.backends.browser.page.fields import input_text, upload_file
from openmanus_graph.backends.browser.page.pointer import click, drag_to_text
from openmanus_graph.errors import ToolError
from tests.support.tabs import Tab, Text

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("field", "option", "said"),
    [
        ('combobox "Fruit"', "Pear", "fruit Pear"),  # not its hidden copy
        ('combobox .*value="a"', "c", "chips c"),  # not what is chosen already
        ('combobox "State"', "Ohio", "state Ohio"),  # not what it names as its own text
        ('combobox "Theme"', "Dark", "theme Dark"),  # its label stands around it
        ('combobox "Town"', "Oslo", "town Oslo"),  # a key opens it
        ('clickable "Animal"', "Dog", "animal Dog"),  # its options are hidden in it
        ('combobox "Place"', "Moon", "place Moon"),  # only its words are clicked
        ('combobox "Kind"', "Dog", "kind Dog"),  # its label shows what is chosen, too
        ('clickable "Any size', "Large", "size Large"),  # the pointer passes through its words
        ('combobox "Row"', "Row 31", "row Row 31"),  # the pointer passes while it is scrolled
        ('clickable "Any hue', "Hue 41", "hue Hue 41"),  # a field to filter by appears in it
    ],
)
async def test_a_composed_dropdown_is_chosen_from_as_a_person_does(
    tab: Tab, field: str, option: str, said: str
) -> None:
    await tab.open("composed.html")
    done = await tab.do(select_dropdown_option, field, Text(option))
    assert f'Chose "{option}"' in done
    assert said in done


async def test_a_list_beside_a_closed_dropdown_is_not_its_own(tab: Tab) -> None:
    await tab.open("composed.html")
    await tab.page.focus("#mood")
    done = await tab.do(select_dropdown_option, 'combobox "Mood"', Text("Wild"))
    assert 'Chose "Wild"' in done


async def test_a_composed_dropdown_is_listed_once_with_what_it_shows(tab: Tab) -> None:
    text = await tab.open("composed.html")
    assert 'combobox "Fruit" collapsed' in text
    assert len(re.findall("Fruit", text)) == 1
    assert "textbox" not in next(line for line in text.splitlines() if '"State"' in line)
    await tab.do(select_dropdown_option, 'combobox "Fruit"', Text("Pear"))
    assert tab.has('combobox "Fruit" value="Pear" collapsed')


async def test_what_is_selected_of_several_is_taken_back(tab: Tab) -> None:
    await tab.open("composed.html")
    done = await tab.do(select_dropdown_option, "Tops", Text("Egg"))
    assert 'Chose "Egg" in' in done
    assert "Selected now: Ham, Egg." in done
    done = await tab.do(select_dropdown_option, "Tops", Text("Ham"))
    assert 'Took back "Ham" in' in done
    assert "Selected now: Egg." in done
    assert tab.has('listbox "Tops" value="Egg"')
    assert "Selected now: nothing." in await tab.do(select_dropdown_option, "Tops", Text("Egg"))


async def test_a_number_that_may_be_a_place_or_a_label_is_not_guessed(tab: Tab) -> None:
    await tab.open("composed.html")
    with pytest.raises(ToolError, match=r'label "Step 1" and the place of "Step 2"'):
        await tab.do(select_dropdown_option, 'combobox "Step"', Text("1"))
    assert "nothing yet" in await tab.see()
    assert 'Chose "Step 3"' in await tab.do(select_dropdown_option, '"Step"', Text("3"))


async def test_a_loader_without_any_size_is_not_waited_for(tab: Tab) -> None:
    await tab.open("composed.html")
    done = await tab.do(click, 'button "Later"')
    assert "at once" in done
    assert "much later" not in done


async def test_only_what_shows_something_on_hover_is_said_to_open(tab: Tab) -> None:
    text = await tab.open("composed.html")
    assert not tab.has('button "Save" opens on hover')
    assert re.search("More.* opens on hover", text)


async def test_a_label_is_listed_beside_its_control_only_if_it_does_something_of_its_own(
    tab: Tab,
) -> None:
    text = await tab.open("composed.html")
    assert 'clickable "Agree"' not in text
    assert 'clickable "News"' in text


async def test_a_button_that_waits_for_a_long_press_gets_one(tab: Tab) -> None:
    await tab.open("composed.html")
    assert "held" not in await tab.do(click, "Hold")
    done = await tab.do(click, "Hold", Text("long"))
    assert "Long-pressed [" in done
    assert "\nheld" in done


async def test_who_listens_for_everything_is_a_root_and_no_control(tab: Tab) -> None:
    text = await tab.open("composed.html")
    assert "\nIn a root" in text


async def test_what_only_keeps_the_focus_within_a_part_is_no_control(tab: Tab) -> None:
    assert "focusable" not in await tab.open("composed.html")


@pytest.mark.parametrize(
    ("button", "choice", "said"), [("Menu", "Copy", "copied"), ("Listed", "Paste", "pasted")]
)
async def test_what_an_open_menu_makes_unusable_is_said_to_be_behind_it(
    tab: Tab, button: str, choice: str, said: str
) -> None:
    await tab.open("composed.html")
    done = await tab.do(click, f'button "{button}"')
    assert re.search(r"menu is on top: \d\d elements behind it cannot be reached", done)
    assert 'button "Hold"' not in await tab.see()
    assert said in await tab.do(click, choice)
    assert tab.has('button "Hold"')


async def test_scroll_areas_and_pictures_behind_a_dialog_are_left_out(tab: Tab) -> None:
    text = await tab.open("composed.html")
    assert "scroll area" in text
    assert "(image: A picture)" in text
    await tab.do(click, 'button "Ask"')
    text = await tab.see()
    assert "scroll area" not in text
    assert "picture" not in text


async def test_a_cell_that_is_named_otherwise_shows_what_stands_in_it(tab: Tab) -> None:
    text = await tab.open("composed.html")
    assert re.search(r'gridcell "May 2" \| \[\d+\] "May 3" \| \[\d+\] icon check', text), text
    assert "the meeting" in await tab.do(click, 'clickable "Meeting"')


async def test_an_entry_with_a_control_in_it_keeps_its_words(tab: Tab) -> None:
    text = await tab.open("composed.html")
    assert re.search(r"option: .*solo", text), text


async def test_elements_without_names_are_described_once_in_a_line(tab: Tab) -> None:
    text = await tab.open("composed.html")
    assert re.search(r"Sizes \[(\d+)\] clickable \.grip .* \[\d+\] as \[\1\] .*as \[\1\]", text)
    assert "button icon window maximize" in text


async def test_an_editor_that_looks_late_at_the_selection_holds_what_was_typed(tab: Tab) -> None:
    await tab.open("composed.html")
    assert tab.has('textbox .*value="old words"')
    done = await tab.do(input_text, "old words", Text("one\ntwo"))
    assert "Typed" in done
    assert await tab.page.inner_text("#note p") == "one\ntwo"
    assert "Cleared" in await tab.do(input_text, 'textbox .*value="one two"', Text(""))
    assert tab.has('textbox "Write here"')
    assert not tab.has("Write here.*value=")


async def test_what_a_thing_was_dragged_onto_is_named_as_it_is_shown(tab: Tab) -> None:
    await tab.open("composed.html")
    done = await tab.do(drag_to_text, "Drag me", Text("basket"))
    assert 'onto "The basket for all".' in done
    assert "Gone text" not in done.replace('Gone text: "nothing yet"', "")


async def test_a_slider_that_draws_late_what_a_key_has_changed_is_moved_to_a_number(
    tab: Tab,
) -> None:
    await tab.open("composed.html")
    assert "Set [" in await tab.do(input_text, 'slider "Loud"', Text("23"))
    assert await tab.page.get_attribute("#loud", "aria-valuenow") == "23"


async def test_a_slider_says_the_nearest_place_that_it_has(tab: Tab) -> None:
    await tab.open("composed.html")
    assert 'now holds "20"' in await tab.do(input_text, 'slider "Loud"', Text("20.4"))


async def test_a_field_for_folders_takes_no_file(tab: Tab, tmp_path: Path) -> None:
    await tab.open("composed.html")
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    with pytest.raises(ToolError, match="takes whole folders, not files: nothing was given"):
        await tab.do(upload_file, "Folder", [tmp_path / "a.txt"])


async def test_letters_of_an_icon_font_are_no_part_of_a_name(tab: Tab) -> None:
    await tab.open("composed.html")
    assert tab.has("button icon chevron left$")
    assert tab.has('button "Send"$')


async def test_the_right_click_of_what_is_all_alike_is_said_once(tab: Tab) -> None:
    await tab.open("composed.html")
    assert tab.has('"Left" right-click too')
    assert tab.has('"Right"$')


async def test_what_is_said_once_of_all_alike_is_no_change_where_it_moves(tab: Tab) -> None:
    await tab.open("composed.html")
    done = await tab.do(click, 'button "Left"')
    assert "right-click" not in done


async def test_the_only_field_in_a_shadow_root_has_the_labels_of_its_host(tab: Tab) -> None:
    await tab.open("composed.html")
    assert tab.has('checkbox "Terms"')
    assert tab.has('checkbox "Mailing"')


async def test_a_slider_whose_keys_go_the_other_way_is_moved_all_the_same(tab: Tab) -> None:
    await tab.open("composed.html")
    assert "Set [" in await tab.do(input_text, 'slider "Gain"', Text("7"))


async def test_a_list_says_how_much_more_of_it_there_is(tab: Tab) -> None:
    await tab.open("composed.html")
    assert tab.has(r'listbox "Mails" \(\d+ px more\)')


async def test_text_is_not_typed_where_a_click_on_something_else_puts_the_focus(tab: Tab) -> None:
    await tab.open("composed.html")
    with pytest.raises(ToolError, match="cannot be typed into"):
        await tab.do(input_text, 'clickable "A cell"', Text("lost"))
    assert await tab.page.input_value("#town") == ""
