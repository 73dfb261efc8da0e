"""Finds the element of a recorded step again on a page loaded anew, where indices do not last.

What could be another one is not taken for it: a step that acts on the wrong row is worse than one
that is not done.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openmanus_graph.backends.browser.page.snapshot import Element, Snapshot
from openmanus_graph.backends.browser.page.view import PageView
from openmanus_graph.errors import ToolError

APPEARS_S = 5.0
"""How long an element may take to appear: the recorded run had the time of a model call."""
LOOK_AGAIN_S = 0.2
_MAX_ALIKE = 500
"""Of more elements with one name it is not looked what stands around each: that is slow."""
_NAMED = 8
"""Elements named in an error."""
_LETTERS = re.compile(r"[^\W\d_]")

Redact = Callable[[str], str]
"""Takes secrets out of a text."""


@dataclass(frozen=True)
class Around:
    """What stands around an element."""

    text: str = ""
    """The words of the part of the page that is its own (`around` in act.js)."""
    in_row: bool = False
    """That part is one of many alike: a table row, say, or an entry of a list."""


@dataclass(frozen=True)
class RecordedTarget:
    """What is kept of an element that was acted on."""

    role: str
    name: str
    """What it is called, or its hint if it has no name."""
    around: Around
    alike: int
    """How many elements had its role and name."""
    place: int
    """How many of those with the same text around them come before it in reading order."""
    same: int
    """How many those are, with itself."""

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> "RecordedTarget":
        """Read one that `as_json` wrote."""
        read: dict[str, Any] = {**recorded, "around": Around(**recorded["around"])}
        return cls(**read)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @property
    def label(self) -> str:
        """Name it in a sentence."""
        beside = f' with "{self.around.text}" around it' if self.around.text else ""
        return f'{self.role} "{self.name}"{beside}'


def match_target(found: Sequence[Around], target: RecordedTarget) -> int | None:
    """Say which of the elements with a target's role and name it is; None if that is not certain.

    The only one then and now is it, unless it is in the row of something else. Of several, it is
    the one with the same text around it; of several with the same text, as many as there were, the
    one at the same place among them.

    Args:
        found: What stands around each, in reading order.
        target: What is looked for.
    """
    if len(found) == target.alike == 1:
        return None if _are_other_rows(found[0], target.around) else 0
    same = [place for place, one in enumerate(found) if one.text == target.around.text]
    return same[target.place] if len(same) == target.same else None


async def record_target(view: PageView, index: int, redact: Redact) -> RecordedTarget | None:
    """Return what finds an element again; None if the page has none, or too many like it."""
    element = view.snapshot.elements.get(index) if view.snapshot else None
    if view.snapshot is None or element is None:
        return None
    alike = _elements_like(view.snapshot, element.role, _called(element, redact), redact)
    if len(alike) > _MAX_ALIKE:
        return None
    around = await _around(view, alike, redact)
    own = alike.index(element)
    same = [place for place, one in enumerate(around) if one.text == around[own].text]
    return RecordedTarget(
        role=element.role,
        name=_called(element, redact),
        around=around[own],
        alike=len(alike),
        place=same.index(own),
        same=len(same),
    )


async def find_target(view: PageView, target: RecordedTarget, redact: Redact) -> int:
    """Return the index of a recorded element on the page as it is now.

    Raises:
        ToolError: None fits, or it is not certain which one.
    """
    await view.settle()
    until = time.monotonic() + APPEARS_S
    while True:
        snapshot = await view.look()
        alike = _elements_like(snapshot, target.role, target.name, redact)[:_MAX_ALIKE]
        around = await _around(view, alike, redact)
        place = match_target(around, target)
        if place is not None:
            return alike[place].index
        if time.monotonic() > until:
            raise ToolError(_misfit(snapshot, target, around))
        await asyncio.sleep(LOOK_AGAIN_S)


async def record_point(view: PageView, x: float, y: float, redact: Redact) -> str:
    """Say what lies at a point of the window."""
    worlds = await view.frames.worlds()
    return redact(await view.frames.call(worlds[0], "nameAt", x, y)) if worlds else ""


def _are_other_rows(now: Around, then: Around) -> bool:
    """Say whether two rows have no word in common."""
    words, before = _words(now.text), _words(then.text)
    return now.in_row and then.in_row and bool(words and before) and not words & before


def _words(text: str) -> set[str]:
    return {word for word in text.lower().split() if _LETTERS.search(word)}


def _called(element: Element, redact: Redact) -> str:
    return redact(element.name or element.hint)


def _elements_like(snapshot: Snapshot, role: str, name: str, redact: Redact) -> list[Element]:
    return [
        one
        for one in snapshot.elements.values()
        if (one.role, _called(one, redact)) == (role, name)
    ]


async def _around(view: PageView, elements: Sequence[Element], redact: Redact) -> list[Around]:
    """Return what stands around each; nothing for those of a frame that has just gone."""
    found: dict[int, Around] = {}
    for key in {one.frame for one in elements}:
        world = view.frames.known(key)
        here = [one for one in elements if one.frame == key]
        numbers = [one.number for one in here]
        answers: list[Any] = await view.frames.call(world, "around", numbers) if world else []
        for one, answer in zip(here, answers, strict=False):
            found[one.index] = Around(redact(answer["text"]), answer["row"])
    return [found.get(one.index, Around()) for one in elements]


def _misfit(snapshot: Snapshot, target: RecordedTarget, found: Sequence[Around]) -> str:
    """Say what was expected and what is there instead."""
    expected = f"The recorded step does not fit. Expected: {target.label}."
    if found:
        texts = ", ".join(f'"{one.text}"' for one in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        there = f"of these it is not certain which one is meant, by what is around them: {texts}"
        if len(found) == 1:
            there = f"one with {texts} around it"
        return f"{expected} The page {snapshot.url} shows {there}{more}."
    others = [one for one in snapshot.elements.values() if one.role == target.role]
    names = ", ".join(f'"{one.name or one.hint}"' for one in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    there = f"It has, of that kind: {names}{more}." if others else "It has none of that kind."
    return f'{expected} The page {snapshot.url} ("{snapshot.title}") does not show it. {there}'
