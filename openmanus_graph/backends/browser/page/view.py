"""One tab's page: wait for it, look at it, find an element again, take a screenshot."""

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from playwright.async_api import Page

from openmanus_graph.backends.browser.page.frames import (
    DialogOpen,
    FrameDetached,
    Frames,
    FrameWorld,
    JsonObject,
)
from openmanus_graph.backends.browser.page.network import Network
from openmanus_graph.backends.browser.page.snapshot import (
    Element,
    Facts,
    Indices,
    Snapshot,
    build_snapshot,
)
from openmanus_graph.backends.browser.page.text import full_text
from openmanus_graph.errors import ToolError, TrustedToolError

T = TypeVar("T")

WALK_LIMITS = {"elements": 4000, "characters": 250_000, "milliseconds": 3000}
DIALOG_NOTE = "A dialog of the page is open and blocks it: answer it with handle_dialog."
ERROR_PAGE_TOKENS = 3000
"""How much of the page an error shows when an element was not found."""
QUIET_MS = 1000
SHOWN_S = 4.0
"""After this, a page that is loading and shows something is not waited for any longer."""


@dataclass(frozen=True)
class Target:
    """An element that was found again, ready to be acted on."""

    view: "PageView"
    world: FrameWorld
    element: Element

    @property
    def label(self) -> str:
        return self.element.label

    def require_enabled(self, disabled: bool) -> None:
        if disabled:
            raise ToolError(f"{self.label} is disabled. Fill in or choose what it waits for first.")

    async def call(self, function: str, *args: object) -> JsonObject:
        """Call a function of our script with the element's number; FrameDetached if it is gone."""
        answer: JsonObject = await self.view.frames.call(
            self.world, function, self.element.number, *args
        )
        if answer.get("gone"):
            raise FrameDetached(self.label)
        return answer


class PageView:
    """The model's view of one tab: takes snapshots, and finds elements by their indices."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.snapshot: Snapshot | None = None
        self.frames = Frames(page)
        self.network = Network(page)
        self._indices = Indices()
        self._acted_world: FrameWorld | None = None
        self._is_settled = False
        self._moving: list[str] = []

    def close(self) -> None:
        self.frames.close()
        self.network.close()

    async def settle(self, limit_s: float = 8.0) -> str:
        """Wait until the page is quiet; return a note on what is still going on."""
        shown_by = time.monotonic() + SHOWN_S
        try:
            async with asyncio.timeout(limit_s):
                while not await self._quiet():
                    if self.frames.dialog_open:
                        return DIALOG_NOTE
                    if time.monotonic() > shown_by and await self._shows_something():
                        break
        except TimeoutError:
            pass
        except DialogOpen:
            return DIALOG_NOTE
        else:
            if self._is_settled:
                return self._still_running()
        waiting = self.network.waiting_for()
        return "The page is still loading" + (f" ({waiting})." if waiting else ".")

    def _still_running(self) -> str:
        """Return a note on what is still moving or coming in on a page that is quiet."""
        notes = [f"Still moving: {', '.join(self._moving)}."] if self._moving else []
        if unread := self.network.unread():
            notes.append(f"A response is still coming in ({unread}).")
        return " ".join(notes)

    async def _quiet(self) -> bool:
        """Wait a little; return True if the page is quiet now."""
        if self.network.busy():
            await asyncio.sleep(0.015)
            return False
        started, self._is_settled = self.network.started, False
        try:
            worlds = await self.frames.worlds()
            watched = worlds[:1]
            if self._acted_world and self._acted_world in worlds[1:]:
                watched.append(self._acted_world)
            quiet = [self.frames.call(world, "quiet", QUIET_MS) for world in watched]
            answers = [json.loads(answer) for answer in await asyncio.gather(*quiet)]
        except FrameDetached:
            await asyncio.sleep(0.02)
            return False
        settled = bool(answers) and all(answer["settled"] for answer in answers)
        self._moving = [text for answer in answers for text in answer.get("moving", ())]
        self._is_settled = settled and started == self.network.started and not self.network.busy()
        return self._is_settled

    async def _shows_something(self) -> bool:
        """Return True if a page that is loading shows content already."""
        with contextlib.suppress(FrameDetached):
            worlds = await self.frames.worlds()
            return bool(worlds) and bool(await self.frames.call(worlds[0], "showing"))
        return False

    async def look(self) -> Snapshot:
        """Take and store a snapshot of the page; the previous one while a dialog is open."""
        for _ in range(5):
            try:
                self.snapshot = await self._look()
                return self.snapshot
            except FrameDetached:
                await asyncio.sleep(0.05)
            except DialogOpen:
                empty = Snapshot(self.page.url, "", "", 0, 0, (0, 0), ())
                return replace(self.snapshot or empty, note=DIALOG_NOTE)
        raise TrustedToolError(
            "The page could not be read: it keeps loading other pages. Wait, then retry."
        )

    async def _look(self) -> Snapshot:
        worlds = await self.frames.worlds()
        if not worlds:
            raise FrameDetached("no document")
        found = await asyncio.gather(*map(self._walk, worlds))
        walks = {
            world.key: walk for world, walk in zip(worlds, found, strict=True) if walk is not None
        }
        if worlds[0].key not in walks:
            raise FrameDetached("the page's own document")
        children = {world.owner: world.key for world in worlds if world.owner}
        return build_snapshot(worlds[0].key, walks, children, self._indices)

    async def _walk(self, world: FrameWorld) -> Facts | None:
        """Return what walk.js finds in a frame; None if its document has just gone."""
        frames = self.frames
        try:
            unknown, found = await asyncio.gather(
                frames.report_listeners(world), frames.call(world, "collect", WALK_LIMITS)
            )
            if unknown:
                await frames.adopt_roots(world)
                await frames.report_listeners(world)
                found = await frames.call(world, "collect", WALK_LIMITS)
        except FrameDetached:
            return None
        walk: Facts = json.loads(found)
        return walk

    async def local_storage(self, max_chars: int) -> tuple[str, dict[str, str]] | None:
        """Return the page's origin and local storage; None if there is none, or more than that."""
        try:
            worlds = await self.frames.worlds()
            if not worlds:
                return None
            found: JsonObject = await self.frames.call(worlds[0], "storedValues", max_chars)
        except (FrameDetached, DialogOpen):
            return None
        return (found["origin"], found["stored"]) if found else None

    async def element(self, index: int) -> Target:
        """Find an element by its index; ToolError with the current list if it was removed."""
        target, _ = await self.ask(index, "connected")
        return target

    async def ask(
        self, index: int, function: str, *, begin: bool = False
    ) -> tuple[Target, JsonObject]:
        """Find an element, optionally begin an action on it, and call a function of our script."""

        async def prepare(target: Target) -> tuple[Target, JsonObject]:
            if begin:
                await self.begin(target)
            return target, await target.call(function)

        return await self.with_element(index, prepare)

    async def with_element(self, index: int, prepare: Callable[[Target], Awaitable[T]]) -> T:
        """Prepare an action on an element, or on its successor if the page has redrawn it.

        `prepare` may run three times, so it must have no effects. If the element is not there, a
        ToolError shows the page.
        """
        try:
            for attempt in range(3):
                target = self._known_target(index)
                if attempt and target is None:
                    break
                with contextlib.suppress(FrameDetached):
                    if target and attempt == 2:  # the page redraws it all the time
                        await self.frames.call(target.world, "follow", target.element.number)
                    if target:
                        return await prepare(target)
                if attempt < 2:
                    await self.look()
        except DialogOpen as error:
            raise TrustedToolError(DIALOG_NOTE) from error
        now = full_text(self.snapshot, ERROR_PAGE_TOKENS) if self.snapshot else ""
        why = f"There is no element [{index}] on the page any more. Choose from what is there now:"
        if self.snapshot and index in self.snapshot.elements:
            why = f"[{index}] is redrawn all the time and disappears before it can be used. Wait:"
        raise ToolError(f"{why}\n{now}")

    def _known_target(self, index: int) -> Target | None:
        """Return an element of the last snapshot if its document is still loaded."""
        if self.frames.dialog_open:
            raise DialogOpen
        element = self.snapshot.elements.get(index) if self.snapshot else None
        world = self.frames.known(element.frame) if element else None
        return Target(self, world, element) if element and world else None

    async def begin(self, target: Target | None = None) -> None:
        """Begin an action: what the page does from now on is its effect."""
        self.network.begin_action()
        worlds = await self.frames.worlds()
        self._acted_world = target.world if target else None
        touched = worlds[:1] + ([target.world] if target and target.world != worlds[0] else [])
        await asyncio.gather(*(self.frames.call(world, "mark") for world in touched))

    async def act(self, work: Awaitable[T]) -> T | None:
        """Do something with the pointer or the keys; None if a dialog it opened blocks the rest."""
        try:
            return await self.frames.unless_dialog(work)
        except DialogOpen:
            return None


QUALITY = 60
MAX_BOXES = 150
COLOURS = ("#c2185b", "#1565c0", "#2e7d32", "#e65100", "#6a1b9a", "#00838f")


async def marked_screenshot(view: PageView, snapshot: Snapshot, max_side: int = 1280) -> bytes:
    """Take a screenshot of the window with a numbered box around each element in it (JPEG).

    The snapshot's indices are drawn, so take it right before. `max_side` limits the longer side of
    the picture, in pixels.
    """
    plain = await view.frames.unless_dialog(
        view.page.screenshot(type="jpeg", quality=85, scale="css", caret="initial")
    )
    return await asyncio.to_thread(_marked, plain, snapshot, max_side)


def _marked(plain: bytes, snapshot: Snapshot, max_side: int) -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    with Image.open(io.BytesIO(plain)) as picture:
        image = picture.convert("RGB")
    scale = min(1.0, max_side / max(image.size))
    if scale < 1:
        image = image.resize((round(image.width * scale), round(image.height * scale)))
    drawing, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    elements = [element for element in snapshot.elements.values() if _in_window(element, snapshot)]
    for element in elements[:MAX_BOXES]:
        left, top, width, height = (side * scale for side in element.box)
        right, bottom = min(left + width, image.width - 1), min(top + height, image.height - 1)
        left, top = max(left, 0.0), max(top, 0.0)
        if right - left < 1 or bottom - top < 1:
            continue
        colour, text = COLOURS[element.index % len(COLOURS)], str(element.index)
        drawing.rectangle((left, top, right, bottom), outline=colour)
        wide = drawing.textlength(text, font=font) + 4
        y = top - 14 if top >= 14 else top  # above the box if there is room, else inside it
        drawing.rectangle((left, y, left + wide, y + 14), fill=colour)
        drawing.text((left + 2, y), text, fill="white", font=font)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY, optimize=True)
    return out.getvalue()


def _in_window(element: Element, snapshot: Snapshot) -> bool:
    left, top, width, height = element.box
    right, bottom = snapshot.view
    return left + width > 0 and top + height > 0 and left < right and top < bottom
