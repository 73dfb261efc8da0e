"""Tabs that a page has requested and that are not open yet."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page

WAIT_S = 3.0


class PendingTabs:
    """Counts tabs that were requested and that Playwright has not reported yet."""

    def __init__(self) -> None:
        self._expected = 0
        self._none = asyncio.Event()
        self._none.set()

    async def watch(self, page: "Page") -> None:
        """Subscribe to the tabs that a page requests."""
        session = await page.context.new_cdp_session(page)
        session.on("Page.windowOpen", self._expect)
        await session.send("Page.enable")

    def tab_opened(self) -> None:
        """Count one pending tab as opened."""
        self._expected = max(0, self._expected - 1)
        if not self._expected:
            self._none.set()

    async def wait(self) -> None:
        """Wait until all requested tabs are open, for a bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._none.wait()
        self._expected = 0
        self._none.set()

    def _expect(self, _: object) -> None:
        self._expected += 1
        self._none.clear()
