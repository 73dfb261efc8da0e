"""The diff of two snapshots of a page, as short text."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from openmanus_graph.backends.browser.page.snapshot import FIELDS, FOCUSED, Element, Line, Snapshot
from openmanus_graph.backends.browser.page.text import (
    LEFT_OUT,
    element_text,
    full_text,
    line_text,
    page_notes,
    tokens,
)

T = TypeVar("T", int, str)

NOTHING = "Nothing on the page changed."
MAX_REMOVED_NAMES = 6
MAX_REMOVED_TEXTS = 6
REMOVED_TEXT_CHARS = 80


def change_text(before: Snapshot | None, after: Snapshot, budget_tokens: int) -> str:
    """Describe the diff of two snapshots; the whole page if that is shorter or it is another page.

    After scrolling, a page that is too long is shown from the top of the window on.

    Args:
        before: The last snapshot that the model saw, or None.
        after: The new one.
        budget_tokens: At most about this many tokens.
    """
    if before is None or before.document != after.document:
        return full_text(after, budget_tokens)
    whole = full_text(after, budget_tokens)
    if before.above_px != after.above_px and LEFT_OUT in whole:
        return whole
    notes = _difference(before, after)
    return notes if tokens(notes) < tokens(whole) else whole


def _difference(before: Snapshot, after: Snapshot) -> str:
    parts = _page_changes(before, after) + _message_changes(before, after)
    parts += _element_changes(before, after)
    parts += _line_changes(before, after)
    return "\n".join(parts or [NOTHING])


def _page_changes(before: Snapshot, after: Snapshot) -> list[str]:
    notes: list[str] = []
    if before.url != after.url:
        notes.append(f"Address: {after.url}")
    if before.title != after.title:
        notes.append(f'Title: "{after.title}"')
    if before.above_px != after.above_px:
        notes.append(f"Scrolled: {after.above_px} px above, {after.below_px} px below the window")
    return notes + [note for note in page_notes(after) if note not in page_notes(before)]


def _message_changes(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the texts of alerts and toasts that have disappeared again."""
    shown = " ".join(_text_of(line) for line in after.lines)
    closed = [text for text in after.messages if text not in shown and text not in before.messages]
    return [f'Message (gone again): "{text}"' for text in closed]


def _element_changes(before: Snapshot, after: Snapshot) -> list[str]:
    """List elements whose value or state has changed."""
    changed = [
        element
        for index, element in after.elements.items()
        if index in before.elements and before.elements[index].state != element.state
    ]
    notes = [_changed(before.elements[one.index], one) for one in changed]
    listed = {one.index for one in changed}
    focus = [one for one in after.elements.values() if FOCUSED in one.words and one.role in FIELDS]
    return notes + [f"Focused: {one.label}" for one in focus if _new_focus(before, one, listed)]


def _changed(old: Element, new: Element) -> str:
    """Describe a changed element with its previous state; its options only if they changed."""
    same = old.options == new.options
    text = element_text(replace(new, option_count=0) if same else new)
    return f"Changed: {text}{_previous_state(old, new)}"


def _new_focus(before: Snapshot, element: Element, listed: Container[int]) -> bool:
    old = before.elements.get(element.index)
    return element.index not in listed and old is not None and FOCUSED not in old.words


def _previous_state(old: Element, new: Element) -> str:
    if old.value != new.value and old.value:
        return f' (was "{old.value}")'
    removed = [word for word in old.words if word not in new.words and word != FOCUSED]
    return f" (no longer {', '.join(removed)})" if removed else ""


def _line_changes(before: Snapshot, after: Snapshot) -> list[str]:
    old = Counter(_line_key(line) for line in before.lines)
    new = Counter(_line_key(line) for line in after.lines)
    added = [line for line in after.lines if old[_line_key(line)] < new[_line_key(line)]]
    removed = [line for line in before.lines if new[_line_key(line)] < old[_line_key(line)]]
    notes = _added_lines(before, after, added) + _removed_lines(before, after, removed)
    return notes + (_reordered(before, after, old & new) or _moved_lines(before, after, old, new))


def _added_lines(before: Snapshot, after: Snapshot, added: Sequence[Line]) -> list[str]:
    """Show the lines that are new or have new content."""
    return ["New or changed:", *(line_text(line, after) for line in added)] if added else []


def _removed_lines(before: Snapshot, after: Snapshot, removed: Sequence[Line]) -> list[str]:
    """List the elements and texts that were removed."""
    elements = [index for index in before.elements if index not in after.elements]
    shown = " ".join(_text_of(line) for line in after.lines)
    text_lines = [
        line
        for line in removed
        if not _indices(line) or set(_indices(line)) & after.elements.keys()
    ]
    texts = [_text_of(line).strip() for line in text_lines]
    texts = [text for text in texts if text and text not in shown]
    notes: list[str] = []
    if elements:
        notes.append(f"Gone: {_labels(elements, before)}")
    if texts:
        some = [f'"{text[:REMOVED_TEXT_CHARS]}"' for text in texts[:MAX_REMOVED_TEXTS]]
        more = f" and {len(texts) - len(some)} more texts" if len(texts) > len(some) else ""
        notes.append(f"Gone text: {', '.join(some)}{more}")
    return notes


def _labels(indices: Sequence[int], snapshot: Snapshot) -> str:
    if len(indices) <= MAX_REMOVED_NAMES:
        return ", ".join(snapshot.elements[index].label for index in indices)
    return f"{len(indices)} elements: {_ranges(indices)}"


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
    moved = _moved(kept, [index for index in before.elements if index in after.elements])
    firsts = [line for line in after.lines if set(_indices(line)) & moved]
    order = [str(_indices(line)[0]) for line in firsts]
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
    moved = _moved(marks, [_line_key(line) for line in was])
    return ["New order:", *(line_text(line, after) for line in now if _line_key(line) in moved)]


def _moved(now: Sequence[T], was: Sequence[T]) -> set[T]:
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


def _indices(line: Line) -> list[int]:
    return [part for part in line.parts if isinstance(part, int)]


def _text_of(line: Line) -> str:
    """Return a line's own text, without its elements."""
    return " ".join(part.strip() for part in line.parts if isinstance(part, str))


def _line_key(line: Line) -> str:
    """Return the key that identifies a line: its text and its elements' indices."""
    return " ".join(
        str(part).strip() if isinstance(part, str) else f"[{part}]" for part in line.parts
    )
