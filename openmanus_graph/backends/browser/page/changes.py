"""Describes what changed between two snapshots of a page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from openmanus_graph.backends.browser.page.snapshot import (
    FIELDS,
    FOCUSED,
    STEADY,
    Element,
    Line,
    Snapshot,
)
from openmanus_graph.backends.browser.page.text import (
    CANVAS_NOTE,
    LEFT_OUT,
    element_text,
    full_text,
    indices_of,
    line_text,
    page_notes,
    state_words,
    tokens,
)
from openmanus_graph.backends.browser.page.view import ActionReport

NOTHING_CHANGED = "Nothing on the page changed."
MAX_VALUE_CHARS = 200
"""Longer values of fields come cut (walk.js)."""
MAX_REMOVED_NAMES = 6
MAX_REMOVED_TEXTS = 6
REMOVED_TEXT_CHARS = 80
SAME_PLACE_PX = 3
TYPED_ROLES = ("textbox", "searchbox", "spinbutton")
"""Roles of fields that show what was typed into them as it is, or not at all."""

NOTHING_SAID = ActionReport()

T = TypeVar("T", int, str)


def change_text(
    before: Snapshot | None, after: Snapshot, budget_tokens: int, said: ActionReport = NOTHING_SAID
) -> str:
    """Describe the diff of two snapshots; the whole page if that is shorter or it is another page.

    After scrolling, a page that is too long is shown from the top of the window on.

    Args:
        before: The last snapshot that the model saw, or None.
        after: The new one.
        budget_tokens: At most about this many tokens.
        said: What the action's own sentence says of the page, which is not said again.

    Returns:
        Empty if `said` says all that changed.
    """
    if before is None or before.document != after.document:
        return full_text(after, budget_tokens)
    whole = "\n".join([*_passing_messages(before, after), full_text(after, budget_tokens)])
    if before.above_px != after.above_px and LEFT_OUT in whole:
        return whole
    notes = "\n".join(_changes(before, after, said))
    if not notes and not (said.text and _changes(before, after, NOTHING_SAID)):
        drawn = any(element.role == "canvas" for element in after.elements.values())
        nothing = f"{NOTHING_CHANGED} {CANVAS_NOTE}" if said.text and drawn else NOTHING_CHANGED
        return (said.text and _moved_elements(before, after)) or nothing
    return notes if tokens(notes) < tokens(whole) else whole


def _moved_elements(before: Snapshot, after: Snapshot) -> str:
    """Name the elements that only have other places or sizes, as on a map; empty if none has."""
    moved = [
        index
        for index, element in after.elements.items()
        if index in before.elements
        and any(
            abs(new - old) > SAME_PLACE_PX
            for new, old in zip(element.box, before.elements[index].box, strict=True)
        )
    ]
    return f"Nothing but places or sizes changed: of {_ranges(moved)}." if moved else ""


def _changes(before: Snapshot, after: Snapshot, said: ActionReport) -> list[str]:
    return [
        *_page_changes(before, after, said),
        *_element_changes(before, after, said),
        *_line_changes(before, after),
    ]


def _page_changes(before: Snapshot, after: Snapshot, said: ActionReport) -> list[str]:
    notes: list[str] = []
    if before.url != after.url:
        notes.append(f"Address: {after.url}")
    if before.title != after.title:
        notes.append(f'Title: "{after.title}"')
    if before.above_px != after.above_px and said.place != (after.above_px, after.below_px):
        notes.append(f"Scrolled: {after.above_px} px above, {after.below_px} px below the window")
    notes += [note for note in page_notes(after) if note not in page_notes(before)]
    return notes + _passing_messages(before, after)


def _passing_messages(before: Snapshot, after: Snapshot) -> list[str]:
    """Repeat what alerts and toasts have said that disappeared again."""
    shown = " ".join(_text_of(line) for line in after.lines)
    gone = [text for text in after.messages if text not in shown and text not in before.messages]
    return [f'Message (gone again): "{text}"' for text in gone]


def _element_changes(before: Snapshot, after: Snapshot, said: ActionReport) -> list[str]:
    """List elements whose value or state has changed, and the field that has the focus now."""
    both = [
        (before.elements[index], element)
        for index, element in after.elements.items()
        if index in before.elements
    ]
    changed = [_element_change(old, new, said) for old, new in both if old.state != new.state]
    changed += [
        f'{new.label} holds "{new.value or ""}" again.'
        for old, new in both
        if old.state == new.state
        and new.role in TYPED_ROLES
        and new.index in said.elements
        and said.value is not None
        and not _holds(new, said.value)
    ]
    focused = [
        f"Focused: {new.label}"
        for old, new in both
        if old.state == new.state
        and new.role in FIELDS
        and FOCUSED in new.words
        and FOCUSED not in old.words
        and new.index not in said.elements
    ]
    return [text for text in changed if text] + focused


def _element_change(old: Element, new: Element, said: ActionReport) -> str:
    """Describe a changed element with its previous state; its options only if they changed.

    Of an element that was acted on only what the action did not say; empty if it said all.
    """
    shown = replace(new, option_count=0) if old.options == new.options else new
    text = f"Changed: {element_text(shown)}"
    if new.index in said.elements and new.label == old.label:
        shown = replace(shown, address="", words=tuple(w for w in shown.words if w not in STEADY))
        if _holds(new, said.value) and replace(old, value=new.value).state == new.state:
            return ""
        text = " ".join([f"Changed: [{new.index}]", *state_words(shown)])
    if old.value != new.value and old.value:
        return f'{text} (was "{old.value}")'
    removed = [word for word in old.words if word not in (*new.words, *STEADY)]
    return text + (f" (no longer {', '.join(removed)})" if removed else "")


def _holds(element: Element, value: str | None) -> bool:
    """Return whether an element shows this value, of which a long one comes cut."""
    if value is None:
        return False
    wanted, shown = " ".join(value.split()), " ".join((element.value or "").split())
    if len(shown) >= MAX_VALUE_CHARS:
        return wanted.startswith(shown.removesuffix("…"))
    return shown == wanted


def _line_changes(before: Snapshot, after: Snapshot) -> list[str]:
    old = Counter(_line_key(line) for line in before.lines)
    new = Counter(_line_key(line) for line in after.lines)
    added = [line for line in after.lines if old[_line_key(line)] < new[_line_key(line)]]
    removed = [line for line in before.lines if new[_line_key(line)] < old[_line_key(line)]]
    notes = ["New or changed:", *(line_text(line, after) for line in added)] if added else []
    notes += _removed_lines(before, after, removed)
    return notes + (_reordered(before, after, old & new) or _moved_lines(before, after, old, new))


def _removed_lines(before: Snapshot, after: Snapshot, removed: Sequence[Line]) -> list[str]:
    """List the elements and texts that were removed."""
    elements = [index for index in before.elements if index not in after.elements]
    names = [element.name for element in after.elements.values()]
    shown = " ".join([*map(_text_of, after.lines), *names])
    text_lines = [
        line
        for line in removed
        if not indices_of(line) or set(indices_of(line)) & after.elements.keys()
    ]
    texts = [
        " ".join(text for text in _texts_of(line) if f" {text} " not in f" {shown} ")
        for line in text_lines
    ]
    texts = list(filter(None, texts))
    notes: list[str] = []
    if elements:
        labels = ", ".join(before.elements[index].label for index in elements)
        if len(elements) > MAX_REMOVED_NAMES:
            labels = f"{len(elements)} elements: {_ranges(elements)}"
        notes.append(f"Gone: {labels}")
    if texts:
        some = [f'"{text[:REMOVED_TEXT_CHARS]}"' for text in texts[:MAX_REMOVED_TEXTS]]
        more = f" and {len(texts) - len(some)} more texts" if len(texts) > len(some) else ""
        notes.append(f"Gone text: {', '.join(some)}{more}")
    return notes


def _ranges(indices: Iterable[int]) -> str:
    """Write numbers as ranges: [3]-[9], [12]."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(f"[{a}]" if a == b else f"[{a}]-[{b}]" for a, b in runs)


def _reordered(before: Snapshot, after: Snapshot, common: Counter[str]) -> list[str]:
    """Show the new order of elements that were there before, if it changed."""
    kept = [index for index in after.elements if index in before.elements]
    if kept == [index for index in before.elements if index in after.elements] or not common:
        return []
    moved = _out_of_order(kept, [index for index in before.elements if index in after.elements])
    firsts = [line for line in after.lines if set(indices_of(line)) & moved]
    order = [str(indices_of(line)[0]) for line in firsts]
    return [f"New order, by the first element of each line: {' '.join(order)}"]


def _moved_lines(
    before: Snapshot, after: Snapshot, old: Counter[str], new: Counter[str]
) -> list[str]:
    """Show unchanged lines in a new order, such as a sorted table without elements."""
    was = [line for line in before.lines if old[_line_key(line)] == new[_line_key(line)]]
    now = [line for line in after.lines if old[_line_key(line)] == new[_line_key(line)]]
    marks = [_line_key(line) for line in now]
    if marks == [_line_key(line) for line in was]:
        return []
    moved = _out_of_order(marks, [_line_key(line) for line in was])
    return ["New order:", *(line_text(line, after) for line in now if _line_key(line) in moved)]


def _out_of_order(now: Sequence[T], was: Sequence[T]) -> set[T]:
    """Return what differs between two orders, without their common start and end."""
    start = next(
        place for place, pair in enumerate(zip(now, was, strict=True)) if pair[0] != pair[1]
    )
    end = next(
        place
        for place, pair in enumerate(zip(reversed(now), reversed(was), strict=True))
        if pair[0] != pair[1]
    )
    return set(now[start : len(now) - end])


def _text_of(line: Line) -> str:
    """Return a line's own text, without its elements."""
    return " ".join(_texts_of(line))


def _texts_of(line: Line) -> list[str]:
    """Return the texts between a line's elements, without the marks that part them."""
    texts = (part.strip(" ·|") for part in line.parts if isinstance(part, str))
    return list(filter(None, texts))


def _line_key(line: Line) -> str:
    """Return the key that identifies a line: its text and its elements' indices."""
    return " ".join(
        str(part).strip() if isinstance(part, str) else f"[{part}]" for part in line.parts
    )
