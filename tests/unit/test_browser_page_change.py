"""The text of pages and of their differences, from made-up looks."""

from dataclasses import replace

import pytest

from openmanus_graph.backends.browser.page.snapshot import Element, Line, Snapshot
from openmanus_graph.backends.browser.page.text import ActionReport, change_text, full_text, tokens

VIEW = (1000, 700)


def element(index: int, role: str = "button", name: str = "", **more: object) -> Element:
    plain = Element(index, "frame", index, role, name, (0, index * 20, 50, 18))
    return replace(plain, **more)  # type: ignore[arg-type]  # the fields of an element


def page(*lines: tuple[str | Element, ...], **more: object) -> Snapshot:
    elements = {part.index: part for line in lines for part in line if isinstance(part, Element)}
    parts = [
        Line(tuple(part.index if isinstance(part, Element) else part for part in line))
        for line in lines
    ]
    plain = Snapshot("http://a.test/", "A", "d1", 0, 0, VIEW, tuple(parts), elements)
    return replace(plain, **more)  # type: ignore[arg-type]  # the fields of a snapshot


FILLER = tuple((f"Paragraph {number} of the page.",) for number in range(40))


def test_what_appeared_vanished_and_changed_is_reported() -> None:
    old, new = element(1, "textbox", "Name", value=""), element(1, "textbox", "Name", value="Ada")
    before = page((old,), (element(2, name="Save"),), ("Old words",), *FILLER)
    after = page((new,), (element(3, name="Edit"),), ("New words",), *FILLER)
    assert change_text(before, after, 1000) == (
        'Changed: [1] textbox "Name" value="Ada"\n'
        'New or changed:\n[3] button "Edit"\nNew words\n'
        'Gone: [2] button "Save"\nGone text: "Old words"'
    )


def test_states_that_went_away_are_reported() -> None:
    before = page((element(1, name="A", words=("disabled",)),), *FILLER)
    after = page((element(1, name="A"),), *FILLER)
    assert change_text(before, after, 1000) == 'Changed: [1] button "A" (no longer disabled)'


def test_another_document_is_shown_whole() -> None:
    before, after = page(("One",)), page(("Two",), document="d2", url="http://b.test/")
    assert change_text(before, after, 500) == full_text(after, 500)
    assert change_text(None, after, 500) == full_text(after, 500)


def test_a_new_address_in_the_same_document_is_reported() -> None:
    after = page(*FILLER, url="http://a.test/#two", title="B")
    assert change_text(page(*FILLER), after, 500) == ('Address: http://a.test/#two\nTitle: "B"')


def test_a_difference_longer_than_the_page_is_not_reported() -> None:
    before, after = page(*FILLER), page(("Short",))
    assert change_text(before, after, 1000) == full_text(after, 1000)


def test_many_gone_elements_are_reported_as_ranges() -> None:
    gone = [(element(index, name=f"B{index}"),) for index in (*range(2, 12), 20)]
    before = page(*gone, *FILLER)
    assert "Gone: 11 elements: [2]-[11], [20]" in change_text(before, page(*FILLER), 1000)


def test_a_new_order_is_reported_by_indices() -> None:
    one, two, three = ((f"row {n}", element(n, name="Go")) for n in (1, 2, 3))
    before, after = page(one, two, three, *FILLER), page(one, three, two, *FILLER)
    assert change_text(before, after, 1000) == ("New order, by the first element of each line: 3 2")


def test_a_new_order_of_lines_without_elements_is_reported() -> None:
    rows = [(f"Lamp {n} | {n}0 €",) for n in (1, 2, 3, 4)]
    before = page((element(1, name="Price"),), *rows, *FILLER)
    after = page((element(1, name="Price"),), *rows[:1], *reversed(rows[1:]), *FILLER)
    assert change_text(before, after, 1000) == (
        "New order:\nLamp 4 | 40 €\nLamp 3 | 30 €\nLamp 2 | 20 €"
    )


def test_a_page_too_long_is_shown_from_the_window_on() -> None:
    lines = [(f"row {n}", element(n, "link", f"L{n}")) for n in range(1, 400)]
    text = full_text(page(*lines), 500)
    assert tokens(text) <= 500
    assert "[399]" in text.splitlines()[-1]
    scrolled = page(*lines, above_px=2000)
    moved = replace(
        scrolled,
        elements={
            index: replace(one, box=(0, index * 20 - 2000, 50, 18))
            for index, one in scrolled.elements.items()
        },
    )
    text = change_text(page(*lines), moved, 500)
    assert "elements are left out: scroll up" in text
    assert '[101] link "L101"' in text
    assert '"L5"' not in text


def test_a_line_too_long_is_broken_to_keep_to_the_budget() -> None:
    links = [element(n, "link", f"L{n}") for n in range(1, 400)]
    text = full_text(page(("word " * 5000, *links)), 500)
    assert tokens(text) <= 500
    assert "[399]" in text.splitlines()[-1]


def test_tokens_are_estimated_for_every_script() -> None:
    assert tokens("a" * 400) == 100
    assert tokens("汉" * 100) >= 80


def test_messages_are_repeated_only_when_they_are_not_shown() -> None:
    before = page(*FILLER)
    gone = page(*FILLER, messages=("Saved",))
    assert change_text(before, gone, 500) == 'Message (gone again): "Saved"'
    shown = page(*FILLER, ("Saved",), messages=("Saved",))
    assert change_text(before, shown, 500) == "New or changed:\nSaved"


NAME, BOX = element(1, "textbox", "Name", value=""), element(2, "checkbox", "Agreed")


@pytest.mark.parametrize(
    ("said", "now", "reported"),
    [
        (ActionReport("Typed.", (1,), "Ada"), replace(NAME, value="Ada"), None),
        (ActionReport("Typed.", (1,), "Ada"), replace(NAME, value="ADA"), '[1] value="ADA"'),
        (ActionReport("Typed.", (1,)), replace(NAME, value="Ada"), '[1] value="Ada"'),
        (
            ActionReport('[1] textbox "Name" "Ada"'),
            replace(NAME, value="Ada"),
            '[1] textbox "Name" value="Ada"',
        ),
        (ActionReport("Clicked.", (2,)), replace(BOX, words=("checked",)), "[2] checked"),
        (ActionReport("Clicked.", (2,)), replace(BOX, name="Refused"), '[2] checkbox "Refused"'),
        (
            ActionReport('Typed "[2] checkbox "Agreed"".', (1,), ""),
            replace(BOX, words=("checked",)),
            '[2] checkbox "Agreed" checked',
        ),
    ],
)
def test_only_what_the_report_names_is_not_reported_again(
    said: ActionReport, now: Element, reported: str | None
) -> None:
    before = page((NAME,), (BOX,), *FILLER)
    after = page(*((now,) if one.index == now.index else (one,) for one in (NAME, BOX)), *FILLER)
    assert change_text(before, after, 1000, said) == (f"Changed: {reported}" if reported else "")


def test_a_long_value_that_comes_cut_is_known_again() -> None:
    text = "word " * 100
    after = page((replace(NAME, value=text[:199] + "…"),), *FILLER)
    said = ActionReport("Typed.", (1,), text)
    assert change_text(page((NAME,), *FILLER), after, 1000, said) == ""


@pytest.mark.parametrize(
    ("place", "reported"), [((300, 500), ""), ((300, 400), "Scrolled: 300 px above")]
)
def test_the_scroll_position_is_reported_once(place: tuple[int, int], reported: str) -> None:
    after = page(("Short",), above_px=300, below_px=500)
    seen = change_text(page(("Short",)), after, 1000, ActionReport("Scrolled.", place=place))
    assert seen.startswith(reported)
    assert bool(seen) == bool(reported)


def test_a_field_that_is_as_it_was_before_the_text_was_typed_is_reported() -> None:
    before = page((NAME,), (BOX,), *FILLER)
    said = ActionReport('Typed "Ada" into [1].', (1,), "Ada")
    reported = f'[1] textbox "Name" holds "{NAME.value or ""}" again.'
    assert change_text(before, before, 1000, said) == reported
