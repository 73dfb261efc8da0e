"""Wait until a page has done what an action set off: requests, timers, changes, then quiet."""

import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page, Request

UNAWAITED = {"image", "media", "font", "ping", "eventsource", "websocket", "manifest", "texttrack"}
"""Kinds of requests that change nothing a model reads, or never end."""
MAX_ROUNDS = 4
"""A page that asks for the same address this often while we wait is polling."""
IDLE_S = 10.0
"""What is asked for this long after an action is the page's own doing."""
CAUSED_S = 0.15
"""A request this soon after an action is its effect, even to an address that is polled."""
FOLLOWS_S = 0.2
SLOW_S = 1.0
MAX_FOLLOWING = 2
"""An address that answers late and is asked again at once, so often, is a long poll."""
RENDER_S = 0.06
"""From the end of a response to what the page draws of it."""


class Network:
    """Knows which requests of a page are under way that an action may have set off."""

    def __init__(self, page: "Page") -> None:
        self._page = page
        self._open: dict[Request, float] = {}
        self._polled: set[str] = set()
        self._rounds: Counter[str] = Counter()
        self._following: Counter[str] = Counter()
        self._late: dict[str, float] = {}
        """When an address last answered late."""
        self._marked = time.monotonic()
        self._ended = 0.0
        self.started = 0
        page.on("request", self._begin)
        page.on("requestfinished", self._end)
        page.on("requestfailed", self._end)

    def close(self) -> None:
        """Stop listening to the page."""
        self._page.remove_listener("request", self._begin)
        self._page.remove_listener("requestfinished", self._end)
        self._page.remove_listener("requestfailed", self._end)

    def mark(self) -> None:
        """An action begins: requests that are still open from before are not its own."""
        self._marked = time.monotonic()
        self._rounds.clear()
        self._open = {
            request: begun
            for request, begun in self._open.items()
            if request.is_navigation_request()
        }

    def forget(self) -> None:
        """Nothing is awaited any longer: loading was given up."""
        self._open.clear()

    def busy(self) -> bool:
        """Tell whether a request is under way, or one has just ended and may yet be drawn."""
        return bool(self._open) or time.monotonic() - self._ended < RENDER_S

    def waiting_for(self) -> str:
        """Name what is under way."""
        paths = [_path(request) for request in self._open]
        return ", ".join(path.rsplit("/", 1)[-1][:60] or path for path in paths[:3])

    def _begin(self, request: "Request") -> None:
        if request.resource_type in UNAWAITED or request.url.startswith(("data:", "blob:")):
            return
        path = _path(request)
        if request.is_navigation_request() and request.frame == self._page.main_frame:
            self._open.clear()
            self._marked = time.monotonic()
        elif time.monotonic() - self._marked > IDLE_S:
            self._polled.add(path)
        self._rounds[path] += 1
        if self._follows(path, time.monotonic()):
            self._following[path] += 1
            if self._following[path] >= MAX_FOLLOWING:
                self._polled.add(path)
        if self._rounds[path] > MAX_ROUNDS and request.resource_type in ("fetch", "xhr"):
            self._polled.add(path)
        if path not in self._polled or time.monotonic() - self._marked < CAUSED_S:
            self._open[request] = time.monotonic()
            self.started += 1

    def _follows(self, path: str, now: float) -> bool:
        """Tell whether an address has just answered late; its answer may end a little later."""
        answering = any(
            _path(request) == path and now - begun > SLOW_S for request, begun in self._open.items()
        )
        return answering or now - self._late.get(path, 0.0) < FOLLOWS_S

    def _end(self, request: "Request") -> None:
        begun, now = self._open.pop(request, None), time.monotonic()
        if begun is not None:
            self._ended = now
            if now - begun > SLOW_S:
                self._late[_path(request)] = now


def _path(request: "Request") -> str:
    return request.url.partition("?")[0]
