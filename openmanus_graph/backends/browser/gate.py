"""The guard of a remote browser, which cannot reach our proxy: its requests are intercepted.

Every address is checked and resolved, redirects and WebSockets too. DNS on the browser's own
machine, and traffic that is no request (WebRTC), cannot be checked here.
"""

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from openmanus_graph.backends.browser.background import BackgroundTasks
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.proxy import Refusal
from openmanus_graph.errors import ToolError

if TYPE_CHECKING:
    from playwright.async_api import (
        BrowserContext,
        CDPSession,
        Frame,
        Page,
        Request,
        Route,
        WebSocketRoute,
    )

_CHECKED = ("http:", "https:", "ws:", "wss:")
MAX_REFUSALS = 100


class Gate:
    """Allows or blocks the requests of one browser context."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._refusals: deque[Refusal] = deque(maxlen=MAX_REFUSALS)
        self._background = BackgroundTasks()

    async def attach(self, context: "BrowserContext") -> None:
        """Intercept the requests of a context that has no pages yet."""
        # Holds also for the first request of a window that a page opens, but for no redirect.
        await context.route("**/*", self._route)
        await context.route_web_socket("**/*", self._socket)
        context.on("page", lambda page: self._background.spawn(self.watch(page)))

    async def watch(self, page: "Page") -> None:
        """Intercept a page's requests, redirects too."""
        page.on(
            "framenavigated", lambda frame: self._background.spawn(self._intercept(page, frame))
        )
        await self._intercept(page, page)

    def take_refusals(self) -> list[Refusal]:
        """Return and clear the refusals since the last call, oldest first."""
        refusals = list(self._refusals)
        self._refusals.clear()
        return refusals

    async def close(self) -> None:
        """Cancel the tasks that are running."""
        self._background.cancel()

    async def _intercept(self, page: "Page", target: "Page | Frame") -> None:
        from playwright.async_api import Error

        with contextlib.suppress(Error):  # it is closed, or is rendered in its parent's process
            session = await page.context.new_cdp_session(target)

            def paused(event: dict[str, Any]) -> None:
                self._background.spawn(self._on_paused(session, event))

            session.on("Fetch.requestPaused", paused)
            await session.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})

    async def _on_paused(self, session: "CDPSession", event: dict[str, Any]) -> None:
        from playwright.async_api import Error

        request_id = {"requestId": event["requestId"]}
        with contextlib.suppress(Error):  # the page was closed meanwhile
            if await self._allows(event["request"]["url"]):
                await session.send("Fetch.continueRequest", request_id)
            else:
                await session.send(
                    "Fetch.failRequest", {**request_id, "errorReason": "BlockedByClient"}
                )

    async def _route(self, route: "Route", request: "Request") -> None:
        if await self._allows(request.url):
            await route.continue_()
        else:
            await route.abort("blockedbyclient")

    async def _socket(self, socket: "WebSocketRoute") -> None:
        if await self._allows(socket.url):
            socket.connect_to_server()
        else:
            await socket.close()

    async def _allows(self, url: str) -> bool:
        if not url.startswith(_CHECKED):
            return True
        try:
            address = self._guard.check(url)
            await self._guard.resolve(address.host, address.port)
        except ToolError as error:
            self._refusals.append(Refusal(url, str(error), by_guard=True))
            return False
        return True
