"""What the model reads of snapshots: the page within a token budget, or what changed on it."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from openmanus_graph.backends.browser.page.snapshot import (
    CUT,
    FIELDS,
    FOCUSED,
    STEADY,
    Element,
    Line,
    Snapshot,
)

SHOWN_OPTIONS = 8
MAX_URL_CHARS = 300
CUT_ADDRESS_NOTE = f"(hover shows an address whole that ends in {CUT})"
LINKS_NOTE = "(Addresses of links are left out: hover shows one.)"
CANVAS_NOTE = "What a canvas draws is not read: only a screenshot shows it."
CANVAS_ONLY_NOTE = f"(The page is all canvas. {CANVAS_NOTE} Act on it with click_at and send_keys.)"
CELLS = ("gridcell", "cell", "columnheader", "rowheader")
LONG_DESCRIPTION = 20  # shorter descriptions of elements without names are repeated
LEFT_OUT = "are left out: scroll"
LEFT_OUT_TOKENS = 60  # for the sentences on what is left out
MIN_PIECE_TOKENS = 50
PIECES_PER_PAGE = 8  # a line that is longer than such a part of the budget is broken
NOTHING_CHANGED = "Nothing on the page changed."
MAX_VALUE_CHARS = 200  # longer values of fields come cut (walk.js)
MAX_REMOVED = 6  # removed elements and texts that are named one by one
REMOVED_TEXT_CHARS = 80
SAME_PLACE_PX = 3
TYPED_ROLES = ("textbox", "searchbox", "spinbutton")
"""Roles of fields that show what was typed into them as it is, or not at all."""


def tokens(text: str) -> int:
    """Estimate tokens: four characters of English each, one of other scripts."""
    plain = len(text.encode("ascii", "ignore"))
    return math.ceil(plain / 4 + (len(text) - plain) * 0.8)


def full_text(snapshot: Snapshot, budget_tokens: int) -> str:
    """Show the whole page, or as much of it as fits from the top of the window on.

    Addresses of links are shown only where the whole page fits with them.
    """
    elements = {n: replace(element, address="") for n, element in snapshot.elements.items()}
    left_out = LINKS_NOTE if elements != snapshot.elements else ""
    note = " ".join(filter(None, (snapshot.note, left_out)))
    for shown in (snapshot, replace(snapshot, elements=elements, note=note)):
        head = "\n".join([page_place(shown), *page_notes(shown)])
        budget = budget_tokens - tokens(head) - LEFT_OUT_TOKENS
        lines = [line_text(line, shown) for line in shown.lines]
        if sum(map(_cost, lines)) <= budget:
            return "\n".join([head, *(lines or ["(The page shows nothing.)"])])
    return "\n".join([head, *_lines_in_view(shown, lines, budget)])


def _cost(line: str) -> int:
    return tokens(line) + 1


def _lines_in_view(snapshot: Snapshot, lines: list[str], budget: int) -> list[str]:
    """Return the lines of a long page that fit, and notes on those that are left out."""
    longest = max(MIN_PIECE_TOKENS, budget // PIECES_PER_PAGE)
    if max(map(_cost, lines)) > longest:
        pieces = (piece for line in snapshot.lines for piece in _pieces(line, snapshot, longest))
        snapshot = replace(snapshot, lines=tuple(pieces))
        lines = [line_text(line, snapshot) for line in snapshot.lines]
    first, last = _lines_to_show(snapshot, list(map(_cost, lines)), budget)
    shown: list[str] = []
    if first:
        above = sum(len(line.indices) for line in snapshot.lines[:first])
        some = f" with {above} elements" if above else ""
        shown.append(f"(… {first} lines above{some} {LEFT_OUT} up to see them)")
    shown += lines[first:last]
    if last < len(lines):
        rest = [index for line in snapshot.lines[last:] for index in line.indices]
        some = f" with {len(rest)} elements ([{rest[0]}] to [{rest[-1]}])" if rest else ""
        shown.append(
            f"(… {len(lines) - last} more lines{some} {LEFT_OUT} down or use scroll_to_text to "
            "see them; their indices can be used already)"
        )
    return shown


def _pieces(line: Line, snapshot: Snapshot, longest: int) -> Iterator[Line]:
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


def _lines_to_show(snapshot: Snapshot, costs: list[int], budget: int) -> tuple[int, int]:
    """Choose the lines from the top of the window on; more above if the end is reached."""
    above = 0
    for place, line in enumerate(snapshot.lines if snapshot.above_px else ()):
        boxes = [snapshot.elements[index].box for index in line.indices]
        if boxes and all(top + height <= 0 for _, top, _, height in boxes):
            above = place + 1
    first = above if above < len(snapshot.lines) else 0
    last, spent = first, 0
    while last < len(costs) and spent + costs[last] <= budget:
        spent += costs[last]
        last += 1
    while first and last == len(costs) and spent + costs[first - 1] <= budget:
        first -= 1
        spent += costs[first]
    return first, max(last, first + 1)


def page_place(snapshot: Snapshot) -> str:
    url = snapshot.url if len(snapshot.url) <= MAX_URL_CHARS else snapshot.url[:MAX_URL_CHARS] + "…"
    lines = [f'Page "{snapshot.title}" {url}']
    if snapshot.above_px or snapshot.below_px:
        lines.append(f"{snapshot.above_px} px above, {snapshot.below_px} px below the window")
    return "\n".join(lines)


def page_notes(snapshot: Snapshot) -> list[str]:
    notes = [snapshot.note] if snapshot.note else []
    behind = f"{snapshot.covered} element{'' if snapshot.covered == 1 else 's'} behind it"
    if not snapshot.lines and (snapshot.covered or snapshot.covered_text):
        notes.append(
            f"(Something that shows nothing itself covers the page: {behind} cannot be reached. It "
            "may go by itself: wait. Else try send_keys Escape, or click_at; extract_content reads "
            "what is behind.)"
        )
    elif snapshot.covered:
        notes.append(
            f"(A dialog or menu is on top: {behind} cannot be reached and left out until it is "
            "closed.)"
        )
    elements = snapshot.elements.values()
    texts = (part for line in snapshot.lines for part in line.parts if isinstance(part, str))
    is_canvas = {element.role for element in elements} == {"canvas"}
    if is_canvas and not any(text.strip() for text in texts):
        notes.append(CANVAS_ONLY_NOTE)
    if any(element.address.endswith(CUT) for element in elements):
        notes.append(CUT_ADDRESS_NOTE)
    if snapshot.left_out_above or snapshot.left_out_below:
        places = {"above": snapshot.left_out_above, "at its end": snapshot.left_out_below}
        left_out = " and ".join(f"{count} {where}" for where, count in places.items() if count)
        notes.append(
            f"(The page is very large: of its HTML elements {left_out} were not looked at. "
            "Scroll there with scroll_down, scroll_up or scroll_to_text, or use extract_content.)"
        )
    return notes


def line_text(line: Line, snapshot: Snapshot) -> str:
    """Write one line with its elements, one blank between them.

    Only the first of several cells says that it is one, and only the first of elements that are
    described alike is described.
    """
    text, mark = "", ""
    before: Element | None = None
    described: dict[str, int] = {}
    for part in line.parts:
        if isinstance(part, str):
            shown, mark = part, part.strip()
        else:
            element = snapshot.elements[part]
            neighbour = before if mark in ("", "|", "·") else None
            is_cell = element.role in CELLS or (element.role == "clickable" and mark == "|")
            shown = element_text(element)
            index, _, own = shown.partition(" ")
            long = not element.name and len(own) > LONG_DESCRIPTION
            first = described.setdefault(own, element.index) if long else element.index
            if first != element.index:
                shown = f"{index} as [{first}]"
            elif neighbour and neighbour.role == element.role and is_cell and not element.open:
                shown = f"{index} {own.removeprefix(f'{element.role} ')}"
            before, mark = element, ""
        gap = text and not text.endswith(" ") and not shown.startswith(" ")
        text += (" " if gap else "") + shown
    return "#" * line.heading + (" " if line.heading else "") + text


def element_text(element: Element) -> str:
    words = [f"[{element.index}] {element.role}"]
    if element.name and (not element.open or element.named):
        words.append(f'"{element.name}"')
    elif not element.name:
        words += _description(element)
    words += state_words(element)
    return " ".join(words) + (":" if element.open else "")


def state_words(element: Element) -> list[str]:
    """Write what may change while the element stays the same."""
    words = [element.address] if element.address else []
    if element.role == "canvas" and element.name:
        words.append(_canvas_place(element))
    if element.value:
        words.append(f'value="{element.value}"')
    if element.value_chars:
        words.append(f"({element.value_chars} characters, see extract_content)")
    words += element.words
    if element.format:
        words.append(f"({element.format})")
    if element.option_count:
        some = element.options[:SHOWN_OPTIONS]
        listed = (" | " if any("," in option for option in some) else ", ").join(some)
        more = element.option_count - len(some)
        words.append(f"options: {listed}" + (f" (+{more} more)" if more else ""))
    above, below, before, behind = element.scroll_px or (0, 0, 0, 0)
    if above or below:
        words.append(f"({above} px above, {below} px more)" if above else f"({below} px more)")
    if before or behind:
        words.append(f"({before} px before, {behind} px more across: scroll_down with x)")
    return words


def _description(element: Element) -> list[str]:
    words = [element.hint] if element.hint else []
    if not words and element.role in ("button", "link"):
        words.append("(no name)")
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


@dataclass(frozen=True)
class ActionReport:
    """A sentence on an action, and what it says as data, so that no change is reported twice."""

    text: str = ""
    elements: tuple[int, ...] = ()  # indices of the elements that it names
    value: str | None = None
    """What the first of them holds now; None if the sentence does not say that."""
    place: tuple[int, int] | None = None  # the pixels above and below the window that it names


NOTHING_SAID = ActionReport()


def change_text(
    before: Snapshot | None, after: Snapshot, budget_tokens: int, said: ActionReport = NOTHING_SAID
) -> str:
    """Describe what changed; the whole page if that is shorter, or if it is another page.

    After scrolling, a page that is too long is shown from the top of the window on. Empty if `said`
    says all that changed.
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
        moved = [
            old.index
            for old, new in _in_both(before, after)
            if any(abs(a - b) > SAME_PLACE_PX for a, b in zip(new.box, old.box, strict=True))
        ]
        if said.text and moved:  # as on a map
            return f"Nothing but places or sizes changed: of {_ranges(moved)}."
        return nothing
    return notes if tokens(notes) < tokens(whole) else whole


def _in_both(before: Snapshot, after: Snapshot) -> list[tuple[Element, Element]]:
    known = before.elements
    return [(known[index], new) for index, new in after.elements.items() if index in known]


def _changes(before: Snapshot, after: Snapshot, said: ActionReport) -> list[str]:
    notes: list[str] = []
    if before.url != after.url:
        notes.append(f"Address: {after.url}")
    if before.title != after.title:
        notes.append(f'Title: "{after.title}"')
    if before.above_px != after.above_px and said.place != (after.above_px, after.below_px):
        notes.append(f"Scrolled: {after.above_px} px above, {after.below_px} px below the window")
    notes += [note for note in page_notes(after) if note not in page_notes(before)]
    notes += _passing_messages(before, after)
    return [*notes, *_element_changes(before, after, said), *_line_changes(before, after)]


def _passing_messages(before: Snapshot, after: Snapshot) -> list[str]:
    """Repeat what alerts and toasts have said that disappeared again."""
    shown = " ".join(line.text for line in after.lines)
    gone = [text for text in after.messages if text not in shown and text not in before.messages]
    return [f'Message (gone again): "{text}"' for text in gone]


def _element_changes(before: Snapshot, after: Snapshot, said: ActionReport) -> list[str]:
    """List elements whose value or state has changed, and the field that has the focus now."""
    both = _in_both(before, after)
    changed = [_element_change(old, new, said) for old, new in both if old.state != new.state]
    same = [(old, new) for old, new in both if old.state == new.state]
    focused: list[str] = []
    for old, new in same:
        acted_on = new.index in said.elements
        typed = acted_on and said.value is not None and new.role in TYPED_ROLES
        if typed and not _holds(new, said.value):
            changed.append(f'{new.label} holds "{new.value or ""}" again.')
        if new.role in FIELDS and FOCUSED in new.words and FOCUSED not in old.words:
            focused += [] if acted_on else [f"Focused: {new.label}"]
    return [*filter(None, changed), *focused]


def _element_change(old: Element, new: Element, said: ActionReport) -> str:
    """Describe a changed element with its previous state; its options only if they changed.

    Empty if the action's own report said all of it.
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
    """Return True if an element shows this value, of which a long one comes cut."""
    if value is None:
        return False
    wanted, shown = " ".join(value.split()), " ".join((element.value or "").split())
    if len(shown) >= MAX_VALUE_CHARS:
        return wanted.startswith(shown.removesuffix("…"))
    return shown == wanted


def _line_changes(before: Snapshot, after: Snapshot) -> list[str]:
    old, new = (Counter(line.key for line in shot.lines) for shot in (before, after))
    added = [line for line in after.lines if old[line.key] < new[line.key]]
    removed = [line for line in before.lines if new[line.key] < old[line.key]]
    notes = ["New or changed:", *(line_text(line, after) for line in added)] if added else []
    notes += _removed_lines(before, after, removed)
    was = [line.key for line in before.lines if old[line.key] == new[line.key]]
    same = [line for line in after.lines if old[line.key] == new[line.key]]
    differing = [place for place, (a, b) in enumerate(zip(was, same, strict=True)) if a != b.key]
    if not differing:
        return notes
    moved = same[differing[0] : differing[-1] + 1]
    if all(line.indices for line in moved):
        order = " ".join(str(line.indices[0]) for line in moved)
        return [*notes, f"New order, by the first element of each line: {order}"]
    return [*notes, "New order:", *(line_text(line, after) for line in moved)]


def _removed_lines(before: Snapshot, after: Snapshot, removed: Sequence[Line]) -> list[str]:
    elements = [index for index in before.elements if index not in after.elements]
    names = [element.name for element in after.elements.values()]
    shown = f" {' '.join([*(line.text for line in after.lines), *names])} "
    texts: list[str] = []
    for line in removed:
        if not line.indices or set(line.indices) & after.elements.keys():
            gone = [text for text in line.texts if f" {text} " not in shown]
            texts += [" ".join(gone)] if gone else []
    notes: list[str] = []
    if elements:
        labels = ", ".join(before.elements[index].label for index in elements)
        if len(elements) > MAX_REMOVED:
            labels = f"{len(elements)} elements: {_ranges(elements)}"
        notes.append(f"Gone: {labels}")
    if texts:
        some = [f'"{text[:REMOVED_TEXT_CHARS]}"' for text in texts[:MAX_REMOVED]]
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
