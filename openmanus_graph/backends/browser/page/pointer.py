"""Click, hover, drag and scroll, on elements that nothing covers."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from openmanus_graph.backends.browser.page.frames import DialogOpen, FrameDetached, JsonObject
from openmanus_graph.backends.browser.page.snapshot import Element
from openmanus_graph.backends.browser.page.text import ActionReport
from openmanus_graph.backends.browser.page.view import PageView, Target
from openmanus_graph.errors import ToolError, TrustedToolError

DRAG_STEPS = 12
NO_BOX = (0, 0, 0, 0)
_SHOWN_CHARS = 100
_CHOSEN_ROLES = (
    "checkbox", "radio", "switch", "tab", "option", "menuitemcheckbox", "menuitemradio",
    "treeitem", "columnheader", "canvas", "audio", "video",
)  # fmt: skip
"""Roles of what a click changes or chooses: nothing else opens by it."""
_HOVERS = 3  # an element may move when a menu closes that the pointer was over before
_PRESSES = 5  # how often a moving element is pressed again where it has moved to
_CLICKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "": ("Clicked", {}),
    "double": ("Double-clicked", {"click_count": 2}),
    "menu": ("Right-clicked", {"button": "right"}),
    "long": ("Long-pressed", {"delay": 1500}),
}  # by the click event that an element listens for: words, and options of Playwright's click
_WAYS: Mapping[str, str] = {"double": "double", "right": "menu", "long": "long"}
"""What a model may ask for instead of the click that an element listens for."""


@dataclass(frozen=True)
class ElementPoint:
    target: Target
    x: float
    y: float
    facts: JsonObject
    """What our script reports of it: `x` and `y` in its frame, its tag and type, and more."""


async def click(view: PageView, index: int, way: str = "") -> ActionReport:
    """Click an element, "double", "right" or "long" if one of these is given as the way."""
    return await click_point(view, await view.with_element(index, locate), _WAYS.get(way, ""))


async def click_point(view: PageView, point: ElementPoint, kind: str = "") -> ActionReport:
    """Click an element that was located, with the click that it listens for if no kind is given."""
    facts, label = point.facts, point.target.label
    point.target.require_enabled(facts["disabled"])
    if facts["tag"] == "select":
        listed = ", ".join(point.target.element.options)
        raise ToolError(
            f"{label} is a drop-down: choose with select_dropdown_option. Options: {listed}"
        )
    if facts["type"] == "file":
        raise ToolError(f"{label} takes files: use upload_file with their paths.")
    point = await _move_pointer(view, point)
    text, options = _CLICKS[kind or point.facts["click"]]
    note = await _press(view, point, partial(view.page.mouse.click, **options))
    return ActionReport(f"{text} {label}.{note}", (point.target.element.index,))


async def click_to_open(target: Target, what: str, never: Callable[[str, bool], bool]) -> None:
    """Click an element so that something opens; ToolError if it is of another kind.

    `never` decides by its role, and by whether it seems to open a list.
    """
    facts, role, why = await target.call("clickFacts"), target.element.role, ""
    if facts["leads"]:
        why = f"leads to {facts['leads'][:_SHOWN_CHARS]}"
    elif facts["sends"]:
        why = "sends or resets its form"
    elif role in _CHOSEN_ROLES or never(role, facts["opens"]):
        why = "is of another kind"
    if why:
        raise ToolError(
            f"Nothing was done: {target.label} {why}. Choose {what}. If it opens one all the same, "
            "click it with click_element first."
        )
    await click(target.view, target.element.index)


async def click_at(view: PageView, x: float, y: float) -> ActionReport:
    await _check_point(view, x, y)
    await view.begin()
    await view.act(view.page.mouse.click(x, y))
    return ActionReport(f"Clicked at x={x:g} y={y:g}.")


async def hover(view: PageView, index: int) -> ActionReport:
    point = await _move_pointer(view, await view.with_element(index, locate))
    leads = f", which leads to {point.facts['href']}" if point.facts["href"] else ""
    return ActionReport(f"The pointer is over {point.target.label}{leads}.", (index,))


async def _move_pointer(view: PageView, point: ElementPoint) -> ElementPoint:
    for _ in range(_HOVERS):
        await view.act(view.page.mouse.move(point.x, point.y))
        try:
            response = await point.target.call("under", point.facts["x"], point.facts["y"])
        except (FrameDetached, DialogOpen):
            break  # the pointer has set something off
        if response["under"]:
            break
        with contextlib.suppress(ToolError):  # what opened over it opened for the pointer
            point = await view.with_element(point.target.element.index, locate)
    return point


async def _press(
    view: PageView,
    point: ElementPoint,
    pointer: Callable[[float, float], Awaitable[object]],
    *,
    releases: bool = True,
) -> str:
    """Press the pointer on an element, and again where it has moved to if that missed.

    Return a note, after a blank; empty if the first press landed. ToolError if none landed.
    `releases`: the release must be on the element, too.
    """
    hits: list[str] = []
    ahead, moves = (0.0, 0.0), False
    for attempt in range(_PRESSES):
        try:
            point, covered = await _aim(view, point, first=not hits)
        except DialogOpen:  # the pointer has set something off
            return ""
        except ToolError as error:
            raise ToolError(f"{_missed(point.target, hits, moves=moves)}{error}") from error
        # An element that jumps is found where it is, one that keeps moving ahead of that.
        x, y = (point.x + ahead[0], point.y + ahead[1]) if attempt > 1 else (point.x, point.y)
        await view.act(pointer(x, y))
        landed = await _landing(point, (x, y))
        slipped = releases and landed.get("slipped", False)
        if landed["met"] and not (slipped and landed["moves"]):
            return _landed_note(point.target, landed, hits, slipped=slipped)
        hits.append(landed["hit"])
        if covered:
            return f" What opened over it for the pointer was hit: {hits[-1]}."
        if landed["replaced"] and not landed["met"]:
            return f" It was redrawn just then, and {hits[-1]} was hit."
        ahead, moves = landed["shift"], moves or landed["moves"]
    missed = _missed(point.target, hits, moves=moves)
    advice = "Wait until it rests, or use the keys: send_keys with Tab and Enter."
    raise ToolError(f"{missed}{advice}")


def _landed_note(target: Target, landed: JsonObject, hits: Sequence[str], *, slipped: bool) -> str:
    if slipped:
        return " It moved away before the release, so that it may not count as a click."
    if hits:
        return f" It moves: before, {hits[-1]} was hit instead."
    inner = _name_of(target, landed["inner"]) if landed.get("inner") else ""
    same = not inner or inner.endswith(f' "{target.element.name}"')
    return "" if same else f" All of it is {inner}, which took the press."


async def _aim(view: PageView, point: ElementPoint, *, first: bool) -> tuple[ElementPoint, bool]:
    """Find where an element is now and watch the next press; return also if it is covered."""
    index = point.target.element.index
    for _ in range(2):
        with contextlib.suppress(FrameDetached):
            now = await point.target.call("aim", point.facts["x"], point.facts["y"])
            if "x" in now:
                facts = {**point.facts, "x": now["x"], "y": now["y"]}
                x, y, _ = await _in_window(point.target, now)
                return replace(point, x=x, y=y, facts=facts), False
            if first and now["covered"]:
                return point, True
        point = await (view.with_element(index, locate) if index else locate(point.target))
    return point, False


async def _landing(point: ElementPoint, place: tuple[float, float]) -> JsonObject:
    """Return where the press landed, as `landing` in press.js does, with what was `hit` instead."""
    target, frames = point.target, point.target.view.frames
    try:
        landed: JsonObject = await frames.call(target.world, "landing")
        if not landed["seen"]:  # another frame had it, or the page kept the event to itself
            under = await target.call("under", point.facts["x"], point.facts["y"])
            _, _, cover = await _in_window(target, point.facts)
            landed |= {"met": under["under"] and not cover}
        if not landed["met"] or landed["slipped"]:
            top = (await frames.worlds())[0]
            what = landed.get("what")
            named = _name_of(target, what) if what else ""
            landed["hit"] = named or await frames.call(top, "nameAt", *place)
    except (FrameDetached, DialogOpen):
        return {"met": True}
    return landed


def _missed(target: Target, hits: Sequence[str], *, moves: bool) -> str:
    if not hits:
        return ""
    many = len(hits) > 1
    presses = f"None of {len(hits)} presses landed" if many else "The press did not land"
    what = f"{target.label}, which moves" if moves else target.label
    return f"{presses} on {what}: {hits[-1]} was hit instead. "


async def locate(target: Target) -> ElementPoint:
    """Scroll an element into view and find a point of it that nothing covers.

    FrameDetached if the element is gone, ToolError if it is hidden or covered.
    """
    _, facts = await asyncio.gather(target.view.begin(target), target.call("point"))
    if facts.get("hidden"):
        raise ToolError(
            f"{target.label} is on the page but cannot be seen now. Open what it is part of "
            "(hover, expand, close what is in front), then retry."
        )
    x, y, cover = await _in_window(target, facts)
    if cover:  # its frame may be out of view, which it cannot know itself
        x, y, cover = await _in_window(target, facts, "showFramePlace")
    _require_uncovered(target, facts.get("cover") or cover)
    return ElementPoint(target, x, y, facts)


async def _in_window(
    target: Target, place: JsonObject, function: str = "framePlace"
) -> tuple[float, float, JsonObject | None]:
    """Turn `x` and `y` in a frame into those of the window; return also what covers the frame."""
    frames, world = target.view.frames, target.world
    x, y = place["x"], place["y"]
    cover: JsonObject | None = None
    while world.owner:
        parent = frames.known(world.owner[0])
        if parent is None:
            raise FrameDetached(target.label)
        place = await frames.call(parent, function, world.owner[1], x, y)
        if place.get("gone"):
            raise FrameDetached(target.label)
        x, y = place["x"], place["y"]
        if place["cover"] and not cover:
            cover = {**place["cover"], "frame": parent.key}
        world = parent
    return x, y, cover


def _require_uncovered(target: Target, cover: JsonObject | None) -> None:
    if cover:
        raise ToolError(
            f"{target.label} is covered by {_name_of(target, cover)}. Scrolling did not free it. "
            "Close or use what is in front first, then retry."
        )


def _name_of(target: Target, hit: JsonObject) -> str:
    """Name what is at a point: the listed element that it is part of, or what it is itself."""
    elements = target.view.snapshot.elements.values() if target.view.snapshot else ()
    frame = hit.get("frame", target.world.key)  # the target's own, if none is named
    known = {one.number: one for one in elements if one.frame == frame}
    listed = next((known[number] for number in hit["listed"] if number in known), None)
    return listed.label if listed else hit["what"] + (f' "{hit["text"]}"' if hit["text"] else "")


async def _check_point(view: PageView, x: float, y: float) -> None:
    snapshot = view.snapshot or await view.look()
    width, height = snapshot.view
    if not (0 <= x < width and 0 <= y < height):
        raise TrustedToolError(
            f"x={x:g} y={y:g} is outside the window, which is {width}x{height} pixels. "
            "Scroll first, then give coordinates of the window."
        )


async def drag_and_drop(view: PageView, source: int, target: int) -> ActionReport:
    start = await view.with_element(source, locate)
    end = await view.with_element(target, partial(_locate_drop, start.target))
    return await _drag(start, end, f"onto {end.target.label}", target)


async def drag_to_text(view: PageView, source: int, text: str) -> ActionReport:
    """Drag an element onto a text: drop targets are not always listed as elements."""
    start = await view.with_element(source, locate)
    for world in await view.frames.worlds():
        found: JsonObject = {}
        with contextlib.suppress(FrameDetached):
            found = await view.frames.call(world, "numberOfText", text)
        if "n" in found:
            shown = Element(0, world.key, found["n"], "text", found["text"], NO_BOX)
            end = await _locate_drop(start.target, Target(view, world, shown))
            return await _drag(start, end, f'onto "{shown.name}"')
    raise TrustedToolError(f'The page does not show "{text}", so that nothing was dragged there.')


async def drag_to_point(view: PageView, source: int, x: float, y: float) -> ActionReport:
    await _check_point(view, x, y)
    start = await view.with_element(source, locate)
    return await _drag(start, ElementPoint(start.target, x, y, {}), f"to x={x:g} y={y:g}")


async def _locate_drop(source: Target, target: Target) -> ElementPoint:
    facts = await target.call("pointNow")
    if not facts["visible"] and target.world == source.world:
        await target.view.frames.call(
            target.world, "bringTogether", source.element.number, target.element.number
        )
        facts = await target.call("pointNow")
    if not facts["visible"]:
        raise ToolError(
            f"{source.label} and {target.label} are too far apart to be in the window "
            "together. Drag in two steps over something between them."
        )
    x, y, cover = await _in_window(target, facts)
    _require_uncovered(target, cover)
    return ElementPoint(target, x, y, facts)


async def _drag(start: ElementPoint, end: ElementPoint, where: str, *onto: int) -> ActionReport:
    source, view = start.target, start.target.view
    now = await source.call("pointNow")
    x, y, _ = await _in_window(source, now)
    mouse = view.page.mouse

    async def pull(x: float, y: float) -> None:
        await mouse.move(x, y)
        await mouse.down()
        await mouse.move(x + 3, y + 3, steps=2)  # past the distance where drags begin
        await mouse.move(end.x, end.y, steps=DRAG_STEPS)
        await mouse.move(end.x, end.y)
        await mouse.up()

    start = ElementPoint(source, x, y, {**start.facts, "x": now["x"], "y": now["y"]})
    note = await _press(view, start, pull, releases=False)
    said = f"Dragged {source.label} {where}.{note}"
    return ActionReport(said, (source.element.index, *onto))


async def scroll(
    view: PageView,
    pixels: int | None = None,
    index: int | None = None,
    across: float | None = None,
) -> ActionReport:
    """Scroll the page, or the part of it that an element belongs to.

    Pixels are up if negative, or left with `across`; None means one screen down, or the element
    into view.
    """
    if index is None:
        await view.begin()
        worlds = await view.frames.worlds()
        answer = await view.frames.call(worlds[0], "scrollPage", None, pixels, across)
        reported = answer["moved"] and not answer.get("across")
        place = (answer["above"], answer["below"]) if reported else None
        return ActionReport(_describe_scroll(answer, "the page"), place=place)

    async def move(target: Target) -> ActionReport:
        await view.begin(target)
        answer = await target.call("scrollPage", pixels, across)
        return ActionReport(_describe_scroll(answer, target.label), (index,))

    return await view.with_element(index, move)


def _describe_scroll(answer: JsonObject, what: str) -> str:
    if answer.get("into"):
        return f"Scrolled {what} into view."
    moved, above, below = answer["moved"], answer["above"], answer["below"]
    if answer.get("across"):
        way = f"Scrolled {what} {'right' if moved > 0 else 'left'} by {abs(moved)} px"
        shown = way if moved else f"Nothing moved: {what}"
        return f"{shown}: {above} px before, {below} px more across."
    if not moved:
        end = "end" if above else "only screen" if not below else "top"
        return f"Nothing moved: {what} is at its {end} ({below} px below)."
    way = f"{'down' if moved > 0 else 'up'} by {abs(moved)} px"
    return f"Scrolled {what} {way}: {above} px above, {below} px below."


async def scroll_to_text(view: PageView, text: str) -> ActionReport:
    """Scroll to the first place that shows a text; to the next one when called again."""
    await view.begin()
    for world in await view.frames.worlds():
        try:
            found = await view.frames.call(world, "scrollToText", text)
        except FrameDetached:
            continue
        if found["places"]:
            many = f" (place {found['place']} of {found['places']})" if found["places"] > 1 else ""
            return ActionReport(f'Scrolled to "{found["text"]}"{many}.')
    raise TrustedToolError(
        f'The page does not show "{text}". Look for fewer or other words; more may appear after '
        "scrolling down or opening a part of the page."
    )
