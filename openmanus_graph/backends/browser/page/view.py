"""One tab's page: wait until it is quiet, look at it, find an element again."""

import asyncio
import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from playwright.async_api import Page, Request, Response, WebSocket

from openmanus_graph.backends.browser.page import snapshot as snapshots
from openmanus_graph.backends.browser.page.frames import (
    DialogOpen,
    FrameDetached,
    Frames,
    FrameWorld,
    JsonObject,
    listen,
)
from openmanus_graph.backends.browser.page.snapshot import Element, Facts, Snapshot
from openmanus_graph.backends.browser.page.text import full_text
from openmanus_graph.errors import ToolError, TrustedToolError

T = TypeVar("T")

WALK_LIMITS = {"elements": 4000, "characters": 250_000, "milliseconds": 3000}
DIALOG_NOTE = "A dialog of the page is open and blocks it: answer it with handle_dialog."
ERROR_PAGE_TOKENS = 3000  # how much of the page an error shows when an element was not found
QUIET_MS = 1000
SHOWN_S = 4.0  # after this, a page that is loading and shows something is not waited for any longer
_IGNORED = (
    "image", "media", "font", "ping", "eventsource", "websocket", "manifest", "texttrack",
)  # fmt: skip
"""Kinds of requests that change nothing a model reads, or never end."""
MAX_REPEATS = 4  # a page that requests the same address this often while we wait is polling
IDLE_S = 10.0  # a request this long after an action was not caused by it
EFFECT_S = 0.15
"""A request this soon after an action is its effect, even to an address that is polled."""
NEXT_POLL_S = 0.2
SLOW_S = 1.0
MAX_LATE_POLLS = 2
"""An address that responds late and is requested again at once, this often, is a long poll."""
RENDER_S = 0.06  # from the end of a response until the page has rendered it
BODY_S = 1.0
"""A response that has begun and does not end: the page does not read it, or it is a stream."""
STREAMS = ("text/event-stream", "application/x-ndjson")
ANSWER_S = 1.0  # how long the answer to a message over a web socket is awaited
NEXT_MESSAGE_S = 0.15
SOCKET_S = 2.5
"""Messages this long after an action, or after their socket was opened, were not caused by it."""


class Network:
    """Tracks the open requests of a page that an action may have caused."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._open: dict[Request, float] = {}
        self._polled: set[str] = set()
        self._repeats: Counter[str] = Counter()
        self._late_polls: Counter[str] = Counter()
        self._late_responses: dict[str, float] = {}  # when an address last responded late
        self._action_began = time.monotonic()
        self._ended = 0.0
        self._answered: dict[Request, float] = {}  # when the responses began that have not ended
        self._quiet_after = 0.0  # until when an answer over a web socket may come
        self.started = 0
        ended = dict.fromkeys(("requestfinished", "requestfailed"), self._on_request_done)
        on: dict[str, Callable[[Any], None]] = {"request": self._on_request, **ended}
        on |= {"response": self._on_response, "websocket": self._on_socket}
        self.close = listen(page, on)

    def begin_action(self) -> None:
        """Begin an action: requests that are still open were not caused by it."""
        self._action_began, self._quiet_after = time.monotonic(), 0.0
        self._repeats.clear()
        navigations = filter(lambda request: request.is_navigation_request(), self._open)
        self._open = {request: self._open[request] for request in navigations}

    def clear(self) -> None:
        """Stop waiting for the open requests: loading was stopped."""
        self._open.clear()

    def busy(self) -> bool:
        """Return True if a request is open, or has just ended and may not be rendered yet."""
        now = time.monotonic()
        pending = any(not self._is_unread(request) for request in self._open)
        return pending or now - self._ended < RENDER_S or now < self._quiet_after

    def waiting_for(self) -> str:
        return _names(self._open)

    def unread(self) -> str:
        """Return the names of the requests whose responses do not end, at most three."""
        return _names(filter(self._is_unread, self._open))

    def _is_unread(self, request: Request) -> bool:
        return time.monotonic() > self._answered.get(request, math.inf) + BODY_S

    def _on_request(self, request: Request) -> None:
        if request.resource_type in _IGNORED or request.url.startswith(("data:", "blob:")):
            return
        path, now = _path(request), time.monotonic()
        if request.is_navigation_request() and request.frame == self._page.main_frame:
            self._open.clear()
            self._action_began = now
        elif now - self._action_began > IDLE_S:
            self._polled.add(path)
        self._repeats[path] += 1
        slow = (_path(other) for other, began in self._open.items() if now - began > SLOW_S)
        if path in slow or now - self._late_responses.get(path, 0.0) < NEXT_POLL_S:
            self._late_polls[path] += 1  # it has just responded late, or is about to
        repeats = self._repeats[path] > MAX_REPEATS and request.resource_type in ("fetch", "xhr")
        if repeats or self._late_polls[path] >= MAX_LATE_POLLS:
            self._polled.add(path)
        if path not in self._polled or now - self._action_began < EFFECT_S:
            self._open[request] = now
            self.started += 1

    def _on_response(self, response: Response) -> None:
        request = response.request
        if request not in self._open or request.resource_type not in ("fetch", "xhr"):
            return
        self._answered[request] = time.monotonic()
        if response.headers.get("content-type", "").startswith(STREAMS):
            self._open.pop(request)

    def _on_socket(self, socket: WebSocket) -> None:
        opened = time.monotonic()

        def await_message(within_s: float) -> None:
            """Wait for what an action, or opening the socket, sets off over it; bounded in time."""
            now = time.monotonic()
            if now - max(self._action_began, opened) < SOCKET_S:
                self._quiet_after = now + within_s

        socket.on("framesent", lambda _: await_message(ANSWER_S))
        socket.on("framereceived", lambda _: await_message(NEXT_MESSAGE_S))
        await_message(ANSWER_S)

    def _on_request_done(self, request: Request) -> None:
        self._answered.pop(request, None)
        began, now = self._open.pop(request, None), time.monotonic()
        if began is not None:
            self._ended = now
            if now - began > SLOW_S:
                self._late_responses[_path(request)] = now


def _names(requests: "Iterable[Request]") -> str:
    paths = [_path(request) for request in requests]
    return ", ".join(path.rsplit("/", 1)[-1][:60] or path for path in paths[:3])


def _path(request: Request) -> str:
    return request.url.partition("?")[0]


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
        call = self.view.frames.call
        answer: JsonObject = await call(self.world, function, self.element.number, *args)
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
        self._indices = snapshots.Indices()
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
                moving, unread = ", ".join(self._moving), self.network.unread()
                notes = [f"Still moving: {moving}."] * bool(moving)
                notes += [f"A response is still coming in ({unread})."] * bool(unread)
                return " ".join(notes)
        waiting = self.network.waiting_for()
        return "The page is still loading" + (f" ({waiting})." if waiting else ".")

    async def _quiet(self) -> bool:
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
        pairs = zip(worlds, found, strict=True)
        walks = {world.key: walk for world, walk in pairs if walk is not None}
        if worlds[0].key not in walks:
            raise FrameDetached("the page's own document")
        children = {world.owner: world.key for world in worlds if world.owner}
        return snapshots.build_snapshot(worlds[0].key, walks, children, self._indices)

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

    async def ask_each(self, elements: Sequence[Element], function: str) -> dict[int, Any]:
        """Call a function of our script for elements; none answers for a frame that has gone."""
        found: dict[int, Any] = {}
        for key in {one.frame for one in elements}:
            here = [one for one in elements if one.frame == key]
            if world := self.frames.known(key):
                answers = await self.frames.call(world, function, [one.number for one in here])
                found |= {one.index: answer for one, answer in zip(here, answers, strict=True)}
        return found

    async def ask(
        self, index: int, function: str, *, begin: bool = False
    ) -> tuple[Target, JsonObject]:
        """Find an element, optionally begin an action on it, and call a function of our script.

        ToolError with the current list if it was removed.
        """

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
