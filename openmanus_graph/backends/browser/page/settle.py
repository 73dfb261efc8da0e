"""Waits until a page is idle after an action: requests, timers and changes are done."""

import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page, Request

UNAWAITED = {"image", "media", "font", "ping", "eventsource", "websocket", "manifest", "texttrack"}
"""Kinds of requests that change nothing a model reads, or never end."""
MAX_ROUNDS = 4
"""A page that requests the same address this often while we wait is polling."""
IDLE_S = 10.0
"""A request this long after an action was not caused by it."""
CAUSED_S = 0.15
"""A request this soon after an action is its effect, even to an address that is polled."""
FOLLOWS_S = 0.2
SLOW_S = 1.0
MAX_FOLLOWING = 2
"""An address that responds late and is requested again at once, this often, is a long poll."""
RENDER_S = 0.06
"""From the end of a response until the page has rendered it."""


class Network:
    """Tracks the open requests of a page that an action may have caused."""

    def __init__(self, page: "Page") -> None:
        self._page = page
        self._open: dict[Request, float] = {}
        self._polled: set[str] = set()
        self._rounds: Counter[str] = Counter()
        self._following: Counter[str] = Counter()
        self._late: dict[str, float] = {}
        """When an address last responded late."""
        self._marked = time.monotonic()
        self._ended = 0.0
        self.started = 0
        page.on("request", self._on_request)
        page.on("requestfinished", self._on_request_done)
        page.on("requestfailed", self._on_request_done)

    def close(self) -> None:
        """Stop listening to the page."""
        self._page.remove_listener("request", self._on_request)
        self._page.remove_listener("requestfinished", self._on_request_done)
        self._page.remove_listener("requestfailed", self._on_request_done)

    def mark(self) -> None:
        """Begin an action: requests that are still open were not caused by it."""
        self._marked = time.monotonic()
        self._rounds.clear()
        self._open = {
            request: started_at
            for request, started_at in self._open.items()
            if request.is_navigation_request()
        }

    def forget(self) -> None:
        """Stop waiting for the open requests: loading was stopped."""
        self._open.clear()

    def busy(self) -> bool:
        """Return whether a request is open, or has just ended and may not be rendered yet."""
        return bool(self._open) or time.monotonic() - self._ended < RENDER_S

    def waiting_for(self) -> str:
        """Return the names of the open requests, at most three."""
        paths = [_path(request) for request in self._open]
        return ", ".join(path.rsplit("/", 1)[-1][:60] or path for path in paths[:3])

    def _on_request(self, request: "Request") -> None:
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
        """Return whether an address has just responded late, as a long poll does."""
        is_late = any(
            _path(request) == path and now - started_at > SLOW_S
            for request, started_at in self._open.items()
        )
        return is_late or now - self._late.get(path, 0.0) < FOLLOWS_S

    def _on_request_done(self, request: "Request") -> None:
        started_at, now = self._open.pop(request, None), time.monotonic()
        if started_at is not None:
            self._ended = now
            if now - started_at > SLOW_S:
                self._late[_path(request)] = now


def _path(request: "Request") -> str:
    return request.url.partition("?")[0]
