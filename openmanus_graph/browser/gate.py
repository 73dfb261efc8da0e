"""The guard of a browser elsewhere, which cannot reach our proxy: its requests stop here first.

Every address is checked and looked up, redirects and WebSockets too. What the browser's own
machine makes of a name, and traffic that is no request (WebRTC), is out of reach.
"""

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from openmanus_graph.browser.background import Background
from openmanus_graph.errors import ToolError
from openmanus_graph.web.guard import Guard
from openmanus_graph.web.proxy import Refusal

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
_KEPT = 100


class Gate:
    """Lets requests of one context through, or not."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._refusals: deque[Refusal] = deque(maxlen=_KEPT)
        self._work = Background()

    async def stand(self, context: "BrowserContext") -> None:
        """Begin with a context that has no pages yet."""
        # Holds also for the first request of a window that a page opens, but for no redirect.
        await context.route("**/*", self._route)
        await context.route_web_socket("**/*", self._socket)
        context.on("page", lambda page: self._work.keep(self.watch(page)))

    async def watch(self, page: "Page") -> None:
        """Stop a page's requests, redirects too."""
        page.on("framenavigated", lambda frame: self._work.keep(self._stop(page, frame)))
        await self._stop(page, page)

    def take_refusals(self) -> list[Refusal]:
        """Return what was not let through since the last time, oldest first."""
        taken = list(self._refusals)
        self._refusals.clear()
        return taken

    async def close(self) -> None:
        """Let go of what is under way."""
        self._work.stop()

    async def _stop(self, page: "Page", place: "Page | Frame") -> None:
        from playwright.async_api import Error

        with contextlib.suppress(Error):  # it is gone, or is drawn in its parent's process
            session = await page.context.new_cdp_session(place)

            def paused(event: dict[str, Any]) -> None:
                self._work.keep(self._paused(session, event))

            session.on("Fetch.requestPaused", paused)
            await session.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})

    async def _paused(self, session: "CDPSession", event: dict[str, Any]) -> None:
        from playwright.async_api import Error

        given = {"requestId": event["requestId"]}
        with contextlib.suppress(Error):  # the page has gone meanwhile
            if await self._allows(event["request"]["url"]):
                await session.send("Fetch.continueRequest", given)
            else:
                await session.send("Fetch.failRequest", {**given, "errorReason": "BlockedByClient"})

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
