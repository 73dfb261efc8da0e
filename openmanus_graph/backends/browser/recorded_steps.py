"""What a step of a recording acted on, and the same element on a page that is loaded again.

Indices do not last, so an element is found by role, name, surrounding text and place. A step that
acts on the wrong row is worse than one that is not done: an element that is not certain is refused.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from openmanus_graph.backends.browser.action_specs import ActionArguments
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.page.frames import DialogOpen, FrameDetached
from openmanus_graph.backends.browser.page.snapshot import Element, Snapshot
from openmanus_graph.backends.browser.page.view import PageView
from openmanus_graph.errors import ToolError

APPEARS_S = 5.0
"""How long an element may take to appear: the recorded run had the time of a model call."""
LOOK_AGAIN_S = 0.2
_MAX_ALIKE = 500
"""Among more elements with one name, the text around each is not read: that is slow."""
_NAMED = 8
_LETTERS = re.compile(r"[^\W\d_]")
_POINT, STATUS = "point", "status"

Redact = Callable[[str], str]


@dataclass(frozen=True)
class Around:
    text: str = ""
    """The words of the part of the page that belongs to it alone (`around` in act.js)."""
    in_row: bool = False
    """That part is one of many alike: a table row, for example, or an entry of a list."""


@dataclass(frozen=True)
class RecordedTarget:
    role: str
    name: str  # its name, or its hint if it has no name
    around: Around
    alike: int  # how many elements had its role and name
    place: int  # how many of those with the same text around them come before it in reading order
    same: int  # how many those are, with itself


TARGET = TypeAdapter(RecordedTarget)


def match_target(found: Sequence[Around], target: RecordedTarget) -> int | None:
    """Return which of the elements with a target's role and name it is; None if not certain.

    The only one then and now is it, unless it is in the row of something else. Of several, it is
    the one with the same text around it. Of several with the same text, as many as there were, it
    is the one at the same place among them.
    """
    then = target.around
    if len(found) == target.alike == 1:
        now = found[0]
        words, before = (
            {word for word in one.text.lower().split() if _LETTERS.search(word)}
            for one in (now, then)
        )
        in_rows = now.in_row and then.in_row
        return None if in_rows and words and before and not words & before else 0
    same = [place for place, one in enumerate(found) if one.text == then.text]
    return same[target.place] if len(same) == target.same else None


async def record_target(view: PageView, index: int, redact: Redact) -> RecordedTarget | None:
    """Return what finds an element again; None if the page has none, or too many like it."""
    element = view.snapshot.elements.get(index) if view.snapshot else None
    if view.snapshot is None or element is None:
        return None
    name = redact(element.name or element.hint)
    alike = _elements_like(view.snapshot, element.role, name, redact)
    if len(alike) > _MAX_ALIKE:
        return None
    around = await texts_around(view, alike, redact)
    own = alike.index(element)
    same = [place for place, one in enumerate(around) if one.text == around[own].text]
    return RecordedTarget(element.role, name, around[own], len(alike), same.index(own), len(same))


async def find_target(view: PageView, target: RecordedTarget, redact: Redact) -> int:
    """Return the index of a recorded element now. ToolError if none fits, or it is not certain."""
    await view.settle()
    until = time.monotonic() + APPEARS_S
    while True:
        snapshot = await view.look()
        alike = _elements_like(snapshot, target.role, target.name, redact)[:_MAX_ALIKE]
        around = await texts_around(view, alike, redact)
        place = match_target(around, target)
        if place is not None:
            return alike[place].index
        if time.monotonic() > until:
            raise ToolError(_misfit(snapshot, target, around))
        await asyncio.sleep(LOOK_AGAIN_S)


def _elements_like(snapshot: Snapshot, role: str, name: str, redact: Redact) -> list[Element]:
    of_role = (one for one in snapshot.elements.values() if one.role == role)
    return [one for one in of_role if redact(one.name or one.hint) == name]


async def texts_around(
    view: PageView, elements: Sequence[Element], redact: Redact = str
) -> list[Around]:
    """Return the text around each; none for those of a frame that has just gone."""
    found = await view.ask_each(elements, "around")
    answers = (found.get(one.index, {"text": "", "row": False}) for one in elements)
    return [Around(redact(answer["text"]), answer["row"]) for answer in answers]


def _misfit(snapshot: Snapshot, target: RecordedTarget, found: Sequence[Around]) -> str:
    around = f' with "{target.around.text}" around it' if target.around.text else ""
    expected = f'The recorded step does not fit. Expected: {target.role} "{target.name}"{around}.'
    if found:
        texts = _listed([one.text for one in found])
        there = f"of these it is not certain which one is meant, by what is around them: {texts}"
        if len(found) == 1:
            there = f"one with {texts} around it"
        return f"{expected} The page {snapshot.url} shows {there}."
    others = [one for one in snapshot.elements.values() if one.role == target.role]
    names = _listed([one.name or one.hint for one in others])
    there = f"It has, of that kind: {names}." if others else "It has none of that kind."
    return f'{expected} The page {snapshot.url} ("{snapshot.title}") does not show it. {there}'


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(f'"{text}"' for text in texts[:_NAMED]) + more


async def record_point(view: PageView, x: float, y: float, redact: Redact) -> str:
    worlds = await view.frames.worlds()
    return redact(await view.frames.call(worlds[0], "nameAt", x, y)) if worlds else ""


async def record_step(browser: BrowserSession, args: ActionArguments) -> dict[str, Any]:
    """Return what an action that is about to be done acts on: elements, or a point."""
    recorded: dict[str, Any] = {}
    if not browser.tabs:
        return recorded
    view, redact = browser.view, browser.secrets.redacted
    with suppress(FrameDetached, DialogOpen):
        for name, index in args.indices.items():
            target = await record_target(view, index, redact)
            if target is not None:
                recorded[name] = asdict(target)
        if args.x is not None and args.y is not None:
            recorded[_POINT] = await record_point(view, args.x, args.y, redact)
    return recorded


async def fit_step(
    browser: BrowserSession, args: ActionArguments, recorded: Mapping[str, Any]
) -> ActionArguments:
    """Return a recorded action's arguments with the indices that its elements have now."""
    redact = browser.secrets.redacted
    for name in [*args.indices, *["index"] * bool(args.label and args.index is None)]:
        if name not in recorded:
            raise ToolError("It was not recorded which element that was, among very many alike.")
        target = TARGET.validate_python(recorded[name])
        found: Any = await find_target(browser.view, target, redact)
        args = replace(args, **{name: found})
    if args.x is not None and args.y is not None:
        view = browser.view
        await view.settle()
        then, now = recorded.get(_POINT), await record_point(view, args.x, args.y, redact)
        if now != then:
            at = f"x={args.x:g} y={args.y:g}"
            raise ToolError(f"The recorded step does not fit. At {at} was {then}; now it is {now}.")
    return args


def check_result(browser: BrowserSession, recorded: Mapping[str, Any]) -> None:
    """Raise ToolError if an action that was done again led to a server's error, as not then."""
    status = browser.current.status if browser.tabs else 0
    if status >= 400 and status != recorded.get(STATUS):
        address = browser.current.current_url
        raise ToolError(
            f"The recorded step was done, and {address} answered HTTP {status}, as it did not then."
        )
