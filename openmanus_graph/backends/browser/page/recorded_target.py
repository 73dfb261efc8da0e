"""Finds the element of a recorded step again on a page loaded anew, where indices do not last."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from openmanus_graph.backends.browser.page.snapshot import Element, Snapshot
from openmanus_graph.backends.browser.page.view import PageView
from openmanus_graph.errors import ToolError

NEAR_PX = 40
"""Alike elements are told apart by their places only if one is that close to the recorded place."""


@dataclass(frozen=True)
class RecordedTarget:
    """What is kept of an element that was acted on."""

    role: str
    name: str
    """What it is called, or its hint if it has no name."""
    text: str
    """The rest of its line: the text and the names of the elements beside it."""
    position: tuple[int, int]
    """Its middle in pixels, from the left and the top of the page."""


def record_target(snapshot: Snapshot, index: int) -> RecordedTarget:
    """Return what finds an element of a snapshot again."""
    element = snapshot.elements[index]
    return RecordedTarget(
        element.role, _called(element), _text_beside(snapshot, index), _middle(snapshot, element)
    )


def match_target(snapshot: Snapshot, target: RecordedTarget) -> list[int]:
    """Return the indices of the elements that fit a recorded one; it is found if there is one.

    Role and name must be the same. Of several alike, those with the same text beside them fit, of
    these the one that is at the recorded place.
    """
    alike = [
        index
        for index, element in snapshot.elements.items()
        if (element.role, _called(element)) == (target.role, target.name)
    ]
    same_text = [index for index in alike if _text_beside(snapshot, index) == target.text]
    fitting = same_text or alike
    if len(fitting) < 2:
        return fitting
    nearest = _nearest(snapshot, fitting, target.position)
    return [nearest] if nearest is not None else fitting


async def find_target(view: PageView, target: RecordedTarget) -> int:
    """Return the index of a recorded element on the page as it is now.

    Raises:
        ToolError: None fits, or several do.
    """
    await view.settle()
    found = match_target(await view.look(), target)
    if len(found) == 1:
        return found[0]
    what = f'{target.role} "{target.name}"' + (f' beside "{target.text}"' if target.text else "")
    if not found:
        raise ToolError(f"The recorded step does not fit: the page shows no {what}.")
    listed = ", ".join(f"[{index}]" for index in found)
    raise ToolError(f"The recorded step does not fit: {listed} are alike, each a {what}.")


def _called(element: Element) -> str:
    return element.name or element.hint


def _text_beside(snapshot: Snapshot, index: int) -> str:
    line = next((line for line in snapshot.lines if index in line.parts), None)
    words = (
        part if isinstance(part, str) else _called(snapshot.elements[part])
        for part in (line.parts if line else ())
        if part != index
    )
    return " ".join(" ".join(words).split())


def _middle(snapshot: Snapshot, element: Element) -> tuple[int, int]:
    left, top, width, height = element.box
    return left + width // 2, top + height // 2 + snapshot.above_px


def _nearest(snapshot: Snapshot, indices: Sequence[int], position: tuple[int, int]) -> int | None:
    """Return the element at a place; None if none is close, or two are."""
    far = {
        index: math.dist(_middle(snapshot, snapshot.elements[index]), position) for index in indices
    }
    first, second, *_ = sorted(far, key=lambda index: far[index])
    return first if far[first] <= NEAR_PX and far[first] * 2 < far[second] else None
