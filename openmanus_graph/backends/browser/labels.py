"""Finds the element that a call names by a visible label instead of its index."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from openmanus_graph.backends.browser.action_specs import ActionArguments
from openmanus_graph.backends.browser.page.snapshot import FIELDS, Element, Snapshot
from openmanus_graph.backends.browser.page.view import PageView
from openmanus_graph.backends.browser.recorded_steps import texts_around
from openmanus_graph.errors import ToolError

MAX_CANDIDATES = 10
_SHOWN_CHARS = 80
_BESIDE_CHARS = 60  # a longer text next to a field is no label of it
_FIELDS = (*FIELDS, "listbox", "file input")
_FITTING: Mapping[str, tuple[str, ...]] = {
    "input_text": _FIELDS[:-1],
    "select_dropdown_option": ("combobox", "listbox"),
    "get_dropdown_options": ("combobox", "listbox"),
    "upload_file": ("file input", "drop area"),
}
"""The roles that an action is for: where several elements have a label, these are meant."""


async def with_labelled_index(
    view: PageView, action: str, args: ActionArguments
) -> ActionArguments:
    """Return the arguments with the index of the only element that has their label.

    ToolError with candidates if no element has it, several have it, or another index is given.
    """
    await view.settle()
    snapshot, label = await view.look(), args.label or ""
    exact, similar = await _labelled(view, snapshot, label, action)
    shown, number = label[:_SHOWN_CHARS], args.index
    # A part of its label is enough for a field, as nothing is clicked.
    fields = [one for one in similar if one.role in _FIELDS and _fits(action, one)]
    if number is not None:
        if number in {one.index for one in (*exact, *similar)}:
            return args
        said = f'not called "{shown}"' if number in snapshot.elements else "no longer on the page"
        raise ToolError(f"Nothing was done: [{number}] is {said}. Give index or label, not both.")
    for found in (exact, fields):
        if len(found) == 1 and (_fits(action, found[0]) or not fields):
            return replace(args, index=found[0].index)
    fitting = [one for one in snapshot.elements.values() if _fits(action, one)]
    candidates = await _listed(view, exact or similar or fitting)
    said = f'{len(exact) or "no"} elements are called "{shown}"'
    raise ToolError(f"Nothing was done: {said}. {candidates}")


def _fits(action: str, element: Element) -> bool:
    if action == "click_element":
        return element.role not in _FIELDS
    return element.role in _FITTING.get(action, (element.role,))


async def _labelled(
    view: PageView, snapshot: Snapshot, label: str, action: str
) -> tuple[list[Element], list[Element]]:
    """Return the elements with exactly a label, and those whose label has its words.

    Names as listed come first, then the other names of elements, then texts next to fields. The
    first of these by which an element is found that the action is for decides.
    """
    wanted, elements = _plain(label), snapshot.elements
    # As pages show it: the name, also with role and index. Then all texts by which people call it.
    listed = {n: [one.name, one.label, one.label.partition(" ")[2]] for n, one in elements.items()}
    names = await view.ask_each([*elements.values()], "namesOf")
    words = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")
    exact, similar = list[Element](), dict[int, Element]()
    for known in (listed, names, _beside(snapshot)):
        plain = {n: [_plain(text) for text in texts if text] for n, texts in known.items()}
        found = [elements[n] for n, texts in plain.items() if wanted in texts]
        if fitting := [one for one in found if _fits(action, one)]:
            return fitting, []
        exact = exact or found
        similar |= {n: elements[n] for n, texts in plain.items() if any(map(words.search, texts))}
    return exact, list(similar.values())


def _plain(text: str) -> str:
    """Return a text without what differs between a label and how it is quoted."""
    whole = " ".join(text.casefold().split())
    return whole.strip(" :*|·…") or whole


def _beside(snapshot: Snapshot) -> dict[int, list[str]]:
    """Return the text before each field: in its line, or a line above a field that begins one."""
    found: dict[int, list[str]] = {}
    for above, line in pairwise(((), *(line.parts for line in snapshot.lines))):
        for before, part in pairwise((*(above if len(above) == 1 else ()), *line)):
            if isinstance(part, int) and isinstance(before, str) and len(before) <= _BESIDE_CHARS:
                found |= {part: [before]} if snapshot.elements[part].role in _FIELDS else {}
    return found


async def _listed(view: PageView, candidates: Sequence[Element]) -> str:
    """List candidates, each with the text by which those of one name differ."""
    if not candidates:
        return "The page shows nothing to act on. Look at it with get_state."
    shown = candidates[:MAX_CANDIDATES]
    around = await texts_around(view, shown)
    rows = [
        one.label[:_SHOWN_CHARS] + (f" in: {near.text[:_SHOWN_CHARS]}" if near.text else "")
        for one, near in zip(shown, around, strict=True)
    ]
    rows += [f"({len(candidates) - len(shown)} more)"] if len(candidates) > len(shown) else []
    return "\n".join(["Choose by index:", *rows])
