"""The requests of a page that an action may have caused."""

import math
import time
from collections import Counter
from collections.abc import Iterable

from playwright.async_api import Page, Request, Response, WebSocket

from openmanus_graph.backends.browser.page.frames import listen

_IGNORED = (
    "image", "media", "font", "ping", "eventsource", "websocket", "manifest", "texttrack",
)  # fmt: skip
"""Kinds of requests that change nothing a model reads, or never end."""
MAX_REPEATS = 4
"""A page that requests the same address this often while we wait is polling."""
IDLE_S = 10.0
"""A request this long after an action was not caused by it."""
EFFECT_S = 0.15
"""A request this soon after an action is its effect, even to an address that is polled."""
NEXT_POLL_S = 0.2
SLOW_S = 1.0
MAX_LATE_POLLS = 2
"""An address that responds late and is requested again at once, this often, is a long poll."""
RENDER_S = 0.06
"""From the end of a response until the page has rendered it."""
BODY_S = 1.0
"""A response that has begun and does not end: the page does not read it, or it is a stream."""
STREAMS = ("text/event-stream", "application/x-ndjson")
ANSWER_S = 1.0
"""How long the answer to a message over a web socket is awaited."""
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
        self._late_responses: dict[str, float] = {}
        """When an address last responded late."""
        self._action_began = time.monotonic()
        self._ended = 0.0
        self._answered: dict[Request, float] = {}
        """When the responses began that have not ended."""
        self._quiet_after = 0.0
        """Until when an answer over a web socket may come."""
        self.started = 0
        self.close = listen(
            page,
            {
                "request": self._on_request,
                "response": self._on_response,
                "websocket": self._on_socket,
                "requestfinished": self._on_request_done,
                "requestfailed": self._on_request_done,
            },
        )

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
        """Return the names of the open requests, at most three."""
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
        if self._has_just_responded_late(path, now):
            self._late_polls[path] += 1
        repeats = self._repeats[path] > MAX_REPEATS and request.resource_type in ("fetch", "xhr")
        if repeats or self._late_polls[path] >= MAX_LATE_POLLS:
            self._polled.add(path)
        if path not in self._polled or now - self._action_began < EFFECT_S:
            self._open[request] = now
            self.started += 1

    def _has_just_responded_late(self, path: str, now: float) -> bool:
        """Return True if an address has just responded late, or is about to: a long poll does."""
        slow = (request for request, began in self._open.items() if now - began > SLOW_S)
        return (
            any(_path(request) == path for request in slow)
            or now - self._late_responses.get(path, 0.0) < NEXT_POLL_S
        )

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
