"""Tabs that a page has asked for and that are not there yet."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page

WAIT_S = 3.0


class Arrivals:
    """Counts tabs between the moment they are asked for and the one Playwright tells of them."""

    def __init__(self) -> None:
        self._expected = 0
        self._none = asyncio.Event()
        self._none.set()

    async def watch(self, page: "Page") -> None:
        """Hear of the tabs that a page asks for."""
        session = await page.context.new_cdp_session(page)
        session.on("Page.windowOpen", self._expect)
        await session.send("Page.enable")

    def arrived(self) -> None:
        """Take notice of a tab that has come."""
        self._expected = max(0, self._expected - 1)
        if not self._expected:
            self._none.set()

    async def wait(self) -> None:
        """Wait for those that were asked for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._none.wait()
        self._expected = 0
        self._none.set()

    def _expect(self, _: object) -> None:
        self._expected += 1
        self._none.clear()
