"""Renders a snapshot, or the changes between two, as text within a token budget."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from openmanus_graph.backends.browser.page.snapshot import FIELDS, FOCUSED, Element, Line, Snapshot

SHOWN_OPTIONS = 8
MAX_URL_CHARS = 300
LEFT_OUT = "are left out: scroll"
MIN_PIECE_TOKENS = 50
PIECES_PER_PAGE = 8
"""A line that is longer than such a part of the budget is broken."""
NOTHING_CHANGED = "Nothing on the page changed."
MAX_REMOVED_NAMES = 6
MAX_REMOVED_TEXTS = 6
REMOVED_TEXT_CHARS = 80

T = TypeVar("T", int, str)


def tokens(text: str) -> int:
    """Estimate tokens: four characters of English each, one of other scripts."""
    plain = len(text.encode("ascii", "ignore"))
    return math.ceil(plain / 4 + (len(text) - plain) * 0.8)


def full_text(snapshot: Snapshot, budget_tokens: int) -> str:
    """Show the whole page, or as much of it as fits from the top of the window on."""
    lines = [line_text(line, snapshot) for line in snapshot.lines]
    head = page_head(snapshot)
    costs = [tokens(line) + 1 for line in lines]
    budget = budget_tokens - tokens(head) - 60
    if sum(costs) <= budget:
        return "\n".join([head, *(lines or ["(The page shows nothing.)"])])
    longest = max(MIN_PIECE_TOKENS, budget // PIECES_PER_PAGE)
    if max(costs) > longest:
        pieces = (piece for line in snapshot.lines for piece in _pieces(line, snapshot, longest))
        snapshot = replace(snapshot, lines=tuple(pieces))
        lines = [line_text(line, snapshot) for line in snapshot.lines]
        costs = [tokens(line) + 1 for line in lines]
    first, last = _lines_to_show(snapshot, costs, budget)
    shown = [head]
    if first:
        shown.append(f"(… {first} lines above {LEFT_OUT} up to see them)")
    shown += lines[first:last]
    if last < len(lines):
        rest = [part for line in snapshot.lines[last:] for part in _indices(line)]
        some = f" with {len(rest)} elements ([{rest[0]}] to [{rest[-1]}])" if rest else ""
        shown.append(
            f"(… {len(lines) - last} more lines{some} {LEFT_OUT} down or use scroll_to_text to "
            "see them; their indices can be used already)"
        )
    return "\n".join(shown)


def _pieces(line: Line, snapshot: Snapshot, longest: int) -> Iterator[Line]:
    """Split a line into parts of at most about so many tokens."""
    parts, spent = list[str | int](), 0
    words = re.compile(rf"(?s:.{{1,{longest}}}(?:\s|$)|.{{1,{longest}}})")
    cut = ([part] if isinstance(part, int) else words.findall(part) for part in line.parts)
    for part in chain.from_iterable(cut):
        cost = tokens(part if isinstance(part, str) else element_text(snapshot.elements[part]))
        if parts and spent + cost > longest:
            yield replace(line, parts=tuple(parts))
            parts, spent = [], 0
        parts.append(part)
        spent += cost
    yield replace(line, parts=tuple(parts))


def page_head(snapshot: Snapshot) -> str:
    """Name the page and where it is scrolled to."""
    url = snapshot.url if len(snapshot.url) <= MAX_URL_CHARS else snapshot.url[:MAX_URL_CHARS] + "…"
    scrolled = f"{snapshot.above_px} px above, {snapshot.below_px} px below the window"
    return "\n".join([f'Page "{snapshot.title}" {url}', scrolled, *page_notes(snapshot)])


def page_notes(snapshot: Snapshot) -> list[str]:
    """Return notes on a snapshot."""
    notes = [snapshot.note] if snapshot.note else []
    if snapshot.covered:
        notes.append(
            f"(A dialog is on top: {snapshot.covered} elements behind it cannot be reached and "
            "are left out.)"
        )
    if snapshot.left_out:
        notes.append(
            f"(The page is very large: about {snapshot.left_out} further nodes were not looked "
            "at. Use scroll_to_text or extract_content for them.)"
        )
    return notes


def line_text(line: Line, snapshot: Snapshot) -> str:
    """Write one line with its elements, one blank between them."""
    text = ""
    for part in line.parts:
        shown = part if isinstance(part, str) else element_text(snapshot.elements[part])
        gap = text and not text.endswith(" ") and not shown.startswith(" ")
        text += (" " if gap else "") + shown
    return "#" * line.heading + (" " if line.heading else "") + text


def element_text(element: Element) -> str:
    """Write an element: index, role, name, value and states."""
    words = [f"[{element.index}] {element.role}"]
    if element.name and not element.open:
        words.append(f'"{element.name}"')
    elif not element.name:
        words += _description(element)
    if element.role == "canvas" and element.name:
        words.append(_canvas_place(element))
    if element.value:
        words.append(f'value="{element.value}"')
    words += element.words
    if element.format:
        words.append(f"({element.format})")
    if element.option_count:
        words.append(_options_text(element))
    if element.more_px:
        words.append(f"({element.more_px} px more)")
    return " ".join(words) + (":" if element.open else "")


def _description(element: Element) -> list[str]:
    """Describe what has no name by its hint, its colour and its size."""
    words = [element.hint] if element.hint else []
    if element.colour:
        words.append(element.colour)
    if element.role == "canvas":
        words.append(_canvas_place(element))
    elif element.colour or (not words and element.role.startswith("clickable")):
        words.append(f"{element.box[2]}x{element.box[3]}")
    return words


def _canvas_place(element: Element) -> str:
    left, top, width, height = element.box
    return f"{width}x{height} at x={left} y={top}, click by coordinates"


def _options_text(element: Element) -> str:
    some = element.options[:SHOWN_OPTIONS]
    shown = (" | " if any("," in option for option in some) else ", ").join(some)
    more = element.option_count - min(len(element.options), SHOWN_OPTIONS)
    return f"options: {shown}" + (f" (+{more} more)" if more else "")


def _lines_to_show(snapshot: Snapshot, costs: list[int], budget: int) -> tuple[int, int]:
    """Choose the lines from the top of the window on; more above if the end is reached."""
    first = _first_in_view(snapshot)
    last, spent = first, 0
    while last < len(costs) and spent + costs[last] <= budget:
        spent += costs[last]
        last += 1
    while first and last == len(costs) and spent + costs[first - 1] <= budget:
        first -= 1
        spent += costs[first]
    return first, max(last, first + 1)


def _first_in_view(snapshot: Snapshot) -> int:
    """Find the first line that is not above the window."""
    if not snapshot.above_px:
        return 0
    above = 0
    for place, line in enumerate(snapshot.lines):
        boxes = [snapshot.elements[part].box for part in line.parts if isinstance(part, int)]
        if boxes and all(top + height <= 0 for _, top, _, height in boxes):
            above = place + 1
    return above if above < len(snapshot.lines) else 0


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
    parts = _page_changes(before, after)
    parts += _element_changes(before, after)
    parts += _line_changes(before, after)
    notes = "\n".join(parts or [NOTHING_CHANGED])
    return notes if tokens(notes) < tokens(whole) else whole


def _page_changes(before: Snapshot, after: Snapshot) -> list[str]:
    notes: list[str] = []
    if before.url != after.url:
        notes.append(f"Address: {after.url}")
    if before.title != after.title:
        notes.append(f'Title: "{after.title}"')
    if before.above_px != after.above_px:
        notes.append(f"Scrolled: {after.above_px} px above, {after.below_px} px below the window")
    notes += [note for note in page_notes(after) if note not in page_notes(before)]
    shown = " ".join(_text_of(line) for line in after.lines)
    # The texts of alerts and toasts that have disappeared again.
    closed = [text for text in after.messages if text not in shown and text not in before.messages]
    return notes + [f'Message (gone again): "{text}"' for text in closed]


def _element_changes(before: Snapshot, after: Snapshot) -> list[str]:
    """List elements whose value or state has changed, and the field that has the focus now."""
    both = [
        (before.elements[index], element)
        for index, element in after.elements.items()
        if index in before.elements
    ]
    changed = [_element_change(old, new) for old, new in both if old.state != new.state]
    focused = [
        f"Focused: {new.label}"
        for old, new in both
        if old.state == new.state
        and new.role in FIELDS
        and FOCUSED in new.words
        and FOCUSED not in old.words
    ]
    return changed + focused


def _element_change(old: Element, new: Element) -> str:
    """Describe a changed element with its previous state; its options only if they changed."""
    same = old.options == new.options
    text = "Changed: " + element_text(replace(new, option_count=0) if same else new)
    if old.value != new.value and old.value:
        return f'{text} (was "{old.value}")'
    removed = [word for word in old.words if word not in new.words and word != FOCUSED]
    return text + (f" (no longer {', '.join(removed)})" if removed else "")


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
