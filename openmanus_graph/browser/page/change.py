"""Say what changed on a page, in as few words as it takes."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from openmanus_graph.browser.page.snapshot import FIELDS, FOCUSED, Element, Line, Snapshot
from openmanus_graph.browser.page.text import (
    LEFT_OUT,
    element_text,
    full_text,
    line_text,
    page_notes,
    tokens,
)

T = TypeVar("T", int, str)

NOTHING = "Nothing on the page changed."
MAX_GONE_NAMES = 6
MAX_GONE_TEXTS = 6
GONE_TEXT_CHARS = 80


def change_text(before: Snapshot | None, after: Snapshot, budget_tokens: int) -> str:
    """Describe the difference of two looks; the whole page when that is shorter or it is another.

    After scrolling, a page that is too long is shown from the top of the window on.

    Args:
        before: The last look the model was told of, or None.
        after: The new one.
        budget_tokens: At most about this many tokens.
    """
    if before is None or before.document != after.document:
        return full_text(after, budget_tokens)
    whole = full_text(after, budget_tokens)
    if before.above_px != after.above_px and LEFT_OUT in whole:
        return whole
    said = _difference(before, after)
    return said if tokens(said) < tokens(whole) else whole


def _difference(before: Snapshot, after: Snapshot) -> str:
    parts = _page_changes(before, after) + _message_changes(before, after)
    parts += _element_changes(before, after)
    parts += _line_changes(before, after)
    return "\n".join(parts or [NOTHING])


def _page_changes(before: Snapshot, after: Snapshot) -> list[str]:
    said: list[str] = []
    if before.url != after.url:
        said.append(f"Address: {after.url}")
    if before.title != after.title:
        said.append(f'Title: "{after.title}"')
    if before.above_px != after.above_px:
        said.append(f"Scrolled: {after.above_px} px above, {after.below_px} px below the window")
    return said + [note for note in page_notes(after) if note not in page_notes(before)]


def _message_changes(before: Snapshot, after: Snapshot) -> list[str]:
    """Repeat what alerts and toasts said that are already gone."""
    shown = " ".join(_plain(line) for line in after.lines)
    passed = [text for text in after.messages if text not in shown and text not in before.messages]
    return [f'Message (gone again): "{text}"' for text in passed]


def _element_changes(before: Snapshot, after: Snapshot) -> list[str]:
    """List elements that stayed but have another value or state."""
    changed = [
        element
        for index, element in after.elements.items()
        if index in before.elements and before.elements[index].state != element.state
    ]
    said = [_changed(before.elements[one.index], one) for one in changed]
    told = {one.index for one in changed}
    focus = [one for one in after.elements.values() if FOCUSED in one.words and one.role in FIELDS]
    return said + [f"Focused: {one.label}" for one in focus if _new_focus(before, one, told)]


def _changed(old: Element, new: Element) -> str:
    """Say what an element is now and was before; its options only if they are others."""
    same = old.options == new.options
    return f"Changed: {element_text(replace(new, option_count=0) if same else new)}{_was(old, new)}"


def _new_focus(before: Snapshot, element: Element, told: Container[int]) -> bool:
    old = before.elements.get(element.index)
    return element.index not in told and old is not None and FOCUSED not in old.words


def _was(old: Element, new: Element) -> str:
    if old.value != new.value and old.value:
        return f' (was "{old.value}")'
    lost = [word for word in old.words if word not in new.words and word != FOCUSED]
    return f" (no longer {', '.join(lost)})" if lost else ""


def _line_changes(before: Snapshot, after: Snapshot) -> list[str]:
    old = Counter(_mark(line) for line in before.lines)
    new = Counter(_mark(line) for line in after.lines)
    added = [line for line in after.lines if old[_mark(line)] < new[_mark(line)]]
    lost = [line for line in before.lines if new[_mark(line)] < old[_mark(line)]]
    said = _appeared(before, after, added) + _vanished(before, after, lost)
    return said + (_reordered(before, after, old & new) or _moved_lines(before, after, old, new))


def _appeared(before: Snapshot, after: Snapshot, added: Sequence[Line]) -> list[str]:
    """Show the lines that are new or hold something new."""
    return ["New or changed:", *(line_text(line, after) for line in added)] if added else []


def _vanished(before: Snapshot, after: Snapshot, lost: Sequence[Line]) -> list[str]:
    """Name what is no longer there."""
    elements = [index for index in before.elements if index not in after.elements]
    shown = " ".join(_plain(line) for line in after.lines)
    alone = [
        line for line in lost if not _indices(line) or set(_indices(line)) & after.elements.keys()
    ]
    texts = [_plain(line).strip() for line in alone]
    texts = [text for text in texts if text and text not in shown]
    said: list[str] = []
    if elements:
        said.append(f"Gone: {_named(elements, before)}")
    if texts:
        some = [f'"{text[:GONE_TEXT_CHARS]}"' for text in texts[:MAX_GONE_TEXTS]]
        more = f" and {len(texts) - len(some)} more texts" if len(texts) > len(some) else ""
        said.append(f"Gone text: {', '.join(some)}{more}")
    return said


def _named(indices: Sequence[int], snapshot: Snapshot) -> str:
    if len(indices) <= MAX_GONE_NAMES:
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
    """Give the new order of elements that were there before, if it is another."""
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
    """Show lines that stayed but stand in another order: a table sorted, without elements."""
    was = [line for line in before.lines if old[_mark(line)] == new[_mark(line)]]
    now = [line for line in after.lines if old[_mark(line)] == new[_mark(line)]]
    marks = [_mark(line) for line in now]
    if marks == [_mark(line) for line in was]:
        return []
    moved = _moved(marks, [_mark(line) for line in was])
    return ["New order:", *(line_text(line, after) for line in now if _mark(line) in moved)]


def _moved(now: Sequence[T], was: Sequence[T]) -> set[T]:
    """Leave out the same beginning and end of two orders."""
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


def _plain(line: Line) -> str:
    """Return a line's own text, without its elements."""
    return " ".join(part.strip() for part in line.parts if isinstance(part, str))


def _mark(line: Line) -> str:
    """What makes a line the same: its text and which elements it holds."""
    return " ".join(
        str(part).strip() if isinstance(part, str) else f"[{part}]" for part in line.parts
    )
