"""What a browser session waits for: sentences to say, and tabs that are about to open."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page

MAX_NOTICES = 30
TAB_OPENS_S = 3.0
"""How long to wait for a tab that a page has requested."""


class PendingNotices:
    """Sentences to add to the next observation, each once."""

    def __init__(self) -> None:
        self._notices: list[str] = []
        self._added = asyncio.Event()

    def add(self, text: str) -> None:
        """Add a notice; dropped when there are too many."""
        if len(self._notices) < MAX_NOTICES:
            self._notices.append(text)
        self._added.set()

    def take(self) -> list[str]:
        """Return the notices in order and clear them."""
        notices, self._notices = list(dict.fromkeys(self._notices)), []
        self._added.clear()
        return notices

    async def wait(self, limit_s: float) -> list[str]:
        """Wait for a notice, at most that long, and return all there are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._added.wait()
        return self.take()


class PendingTabs:
    """Counts tabs that were requested and that Playwright has not reported yet."""

    def __init__(self) -> None:
        self._expected = 0
        self._none = asyncio.Event()
        self._none.set()

    async def watch(self, page: "Page") -> None:
        """Subscribe to the tabs that a page requests."""
        session = await page.context.new_cdp_session(page)
        session.on("Page.windowOpen", self._on_requested)
        await session.send("Page.enable")

    def tab_opened(self) -> None:
        """Count one pending tab as opened."""
        self._expected = max(0, self._expected - 1)
        if not self._expected:
            self._none.set()

    async def wait(self) -> None:
        """Wait until all requested tabs are open, for a bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAB_OPENS_S):
                await self._none.wait()
        self._expected = 0
        self._none.set()

    def _on_requested(self, _: object) -> None:
        self._expected += 1
        self._none.clear()
