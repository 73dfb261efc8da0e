"""Renders a snapshot as text within a token budget."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from urllib.parse import urlsplit

from openmanus_graph.backends.browser.page.snapshot import Element, Line, Snapshot
from openmanus_graph.backends.web.page_text import ROUTES

MAX_ADDRESS_CHARS = 60
CUT = "…"
"""Ends an address that is not shown whole; `hover` shows it."""
_ADDRESS_SCHEMES = ("http", "https", "mailto", "tel")


def shown_address(href: str, page_url: str) -> str:
    """Return what is shown of a link's address: on the page's own site, without the site.

    Args:
        href: The whole address.
        page_url: The page that the link stands on.

    Returns:
        The address, cut before its query if it is long; empty if it leads nowhere else.
    """
    try:
        link, page = urlsplit(href), urlsplit(page_url)
    except ValueError:
        return ""
    if link.scheme not in _ADDRESS_SCHEMES:
        return ""
    address = href
    if link.netloc and (link.scheme, link.netloc) == (page.scheme, page.netloc):
        if href.partition("#")[0] == page_url.partition("#")[0] and not link.fragment.startswith(
            ROUTES
        ):
            return ""
        address = href[len(f"{link.scheme}://{link.netloc}") :]
    if len(address) <= MAX_ADDRESS_CHARS:
        return address
    return address.partition("?")[0][: MAX_ADDRESS_CHARS - 1] + CUT


SHOWN_OPTIONS = 8
MAX_URL_CHARS = 300
CUT_ADDRESS_NOTE = f"(hover shows an address whole that ends in {CUT})"
LINKS_NOTE = "(Addresses of links are left out: hover shows one.)"
CANVAS_NOTE = "What a canvas draws is not read: only a screenshot shows it."
CANVAS_ONLY_NOTE = f"(The page is all canvas. {CANVAS_NOTE} Act on it with click_at and send_keys.)"
CELLS = ("gridcell", "cell", "columnheader", "rowheader")
CELL_MARKS = ("", "|", "·")
LONG_DESCRIPTION = 20
"""Shorter descriptions of elements without names are repeated."""
LEFT_OUT = "are left out: scroll"
LEFT_OUT_TOKENS = 60
"""For the sentences on what is left out."""
MIN_PIECE_TOKENS = 50
PIECES_PER_PAGE = 8
"""A line that is longer than such a part of the budget is broken."""


def tokens(text: str) -> int:
    """Estimate tokens: four characters of English each, one of other scripts."""
    plain = len(text.encode("ascii", "ignore"))
    return math.ceil(plain / 4 + (len(text) - plain) * 0.8)


def full_text(snapshot: Snapshot, budget_tokens: int) -> str:
    """Show the whole page, or as much of it as fits from the top of the window on.

    Addresses of links are shown only where the whole page fits with them.
    """
    for shown in (snapshot, _without_addresses(snapshot)):
        head = page_head(shown)
        budget = budget_tokens - tokens(head) - LEFT_OUT_TOKENS
        lines = [line_text(line, shown) for line in shown.lines]
        if sum(map(_cost, lines)) <= budget:
            return "\n".join([head, *(lines or ["(The page shows nothing.)"])])
    return "\n".join([head, *_lines_in_view(shown, lines, budget)])


def _without_addresses(snapshot: Snapshot) -> Snapshot:
    elements = {n: replace(element, address="") for n, element in snapshot.elements.items()}
    left_out = elements != snapshot.elements
    note = " ".join(filter(None, (snapshot.note, LINKS_NOTE if left_out else "")))
    return replace(snapshot, elements=elements, note=note)


def _cost(line: str) -> int:
    """Return the tokens of a line with its end."""
    return tokens(line) + 1


def _lines_in_view(snapshot: Snapshot, lines: list[str], budget: int) -> list[str]:
    """Return as many lines of a page as fit, from the top of the window on, and what is left out.

    Args:
        snapshot: Of a page that is too long.
        lines: Its lines as they are shown.
        budget: At most about this many tokens.
    """
    longest = max(MIN_PIECE_TOKENS, budget // PIECES_PER_PAGE)
    if max(map(_cost, lines)) > longest:
        pieces = (piece for line in snapshot.lines for piece in _pieces(line, snapshot, longest))
        snapshot = replace(snapshot, lines=tuple(pieces))
        lines = [line_text(line, snapshot) for line in snapshot.lines]
    first, last = _lines_to_show(snapshot, list(map(_cost, lines)), budget)
    shown: list[str] = []
    if first:
        above = sum(len(indices_of(line)) for line in snapshot.lines[:first])
        some = f" with {above} elements" if above else ""
        shown.append(f"(… {first} lines above{some} {LEFT_OUT} up to see them)")
    shown += lines[first:last]
    if last < len(lines):
        rest = [part for line in snapshot.lines[last:] for part in indices_of(line)]
        some = f" with {len(rest)} elements ([{rest[0]}] to [{rest[-1]}])" if rest else ""
        shown.append(
            f"(… {len(lines) - last} more lines{some} {LEFT_OUT} down or use scroll_to_text to "
            "see them; their indices can be used already)"
        )
    return shown


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
    """Name the page and where it is scrolled to, with the notes on it."""
    return "\n".join([page_place(snapshot), *page_notes(snapshot)])


def page_place(snapshot: Snapshot) -> str:
    """Name the page and where it is scrolled to."""
    url = snapshot.url if len(snapshot.url) <= MAX_URL_CHARS else snapshot.url[:MAX_URL_CHARS] + "…"
    lines = [f'Page "{snapshot.title}" {url}']
    if snapshot.above_px or snapshot.below_px:
        lines.append(f"{snapshot.above_px} px above, {snapshot.below_px} px below the window")
    return "\n".join(lines)


def page_notes(snapshot: Snapshot) -> list[str]:
    """Return notes on a snapshot."""
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
    if _is_canvas_only(snapshot):
        notes.append(CANVAS_ONLY_NOTE)
    if any(element.address.endswith(CUT) for element in snapshot.elements.values()):
        notes.append(CUT_ADDRESS_NOTE)
    if snapshot.left_out_above or snapshot.left_out_below:
        places = {"above": snapshot.left_out_above, "at its end": snapshot.left_out_below}
        left_out = " and ".join(f"{count} {where}" for where, count in places.items() if count)
        notes.append(
            f"(The page is very large: of its HTML elements {left_out} were not looked at. "
            "Scroll there with scroll_down, scroll_up or scroll_to_text, or use extract_content.)"
        )
    return notes


def _is_canvas_only(snapshot: Snapshot) -> bool:
    """Return whether a page shows nothing but what a script draws, which has no text."""
    roles = {element.role for element in snapshot.elements.values()}
    texts = (part for line in snapshot.lines for part in line.parts if isinstance(part, str))
    return roles == {"canvas"} and not any(text.strip() for text in texts)


def line_text(line: Line, snapshot: Snapshot) -> str:
    """Write one line with its elements, one blank between them.

    Of cells that follow each other only the first says that it is one, and of elements without a
    name that are described alike only the first is described.
    """
    text, mark = "", ""
    before: Element | None = None
    alike: dict[str, int] = {}
    for part in line.parts:
        if isinstance(part, str):
            shown, mark = part, part.strip()
        else:
            element = snapshot.elements[part]
            shown = _text_in_line(element, before if mark in CELL_MARKS else None, mark, alike)
            before, mark = element, ""
        gap = text and not text.endswith(" ") and not shown.startswith(" ")
        text += (" " if gap else "") + shown
    return "#" * line.heading + (" " if line.heading else "") + text


def _text_in_line(
    element: Element, before: Element | None, mark: str, alike: dict[str, int]
) -> str:
    """Write an element, without what the line has said already.

    Args:
        element: The element.
        before: The one before it, if there is nothing but the mark between them.
        mark: What parts them.
        alike: Descriptions of the line's elements without names, with the first that has each.
    """
    index, _, own = element_text(element).partition(" ")
    if not element.name and len(own) > LONG_DESCRIPTION:
        first = alike.setdefault(own, element.index)
        if first != element.index:
            return f"{index} as [{first}]"
    is_cell = element.role in CELLS or (element.role == "clickable" and mark == "|")
    if before and before.role == element.role and is_cell and not element.open:
        own = own.removeprefix(f"{element.role} ")
    return f"{index} {own}"


def element_text(element: Element) -> str:
    """Write an element: index, role, name, value and states."""
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
        words.append(_options_text(element))
    if element.scroll_px:
        words += _out_of_view(*element.scroll_px)
    return words


def _out_of_view(above: int, below: int, before: int, behind: int) -> list[str]:
    """Say how much of a scroll area is out of view."""
    words: list[str] = []
    if above or below:
        words.append(f"({above} px above, {below} px more)" if above else f"({below} px more)")
    if before or behind:
        words.append(f"({before} px before, {behind} px more across: scroll_down with x)")
    return words


def _description(element: Element) -> list[str]:
    """Describe what has no name by its hint, its colour and its size."""
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


def indices_of(line: Line) -> list[int]:
    """Return the indices of a line's elements."""
    return [part for part in line.parts if isinstance(part, int)]
