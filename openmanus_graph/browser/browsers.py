"""The browsers of this process: one for all threads with the same launch settings.

All of this runs on the engine's loop.
"""

import asyncio
import atexit
import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from openmanus_graph.browser.engine import engine
from openmanus_graph.browser.launch import (
    Launch,
    first_line,
    launch_options,
    sandboxed,
    start_browser,
    user_agent,
)
from openmanus_graph.errors import OwnWordsError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright, StorageState

IDLE_S = 2.0
"""How long a browser without users is kept."""
CLOSE_S = 10.0
LOGINS_S = 5.0

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Shared:
    """A browser and how many contexts use it."""

    browser: "Browser"
    launch: Launch
    users: int = 0
    idle: asyncio.TimerHandle | None = None


class Browsers:
    """Starts, shares and closes browsers, and the driver through which Playwright speaks."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._open: dict[Launch, Shared] = {}
        self._profiles = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def open_context(
        self, launch: Launch, options: dict[str, Any], *, fresh: bool
    ) -> tuple["BrowserContext", Shared]:
        """Open a context in the browser of that launch; `leave` it when it is closed.

        A browser that turns out to be dead is replaced once.

        Args:
            launch: Names the browser.
            options: Of the context.
            fresh: Without the logins that a browser elsewhere has already.

        Raises:
            ToolError: No browser can be started.
        """
        from playwright.async_api import Error

        for last_try in (False, True):
            shared = await self._enter(launch)
            try:
                return await _context_of(shared, options, fresh), shared
            except Error as error:
                self.leave(shared)
                await self._drop(shared)
                if last_try:
                    raise OwnWordsError(
                        f"The browser failed: {first_line(error)} Try again."
                    ) from error
            except BaseException:
                self.leave(shared)
                raise
        raise AssertionError  # the second try has returned or raised

    def leave(self, shared: Shared) -> None:
        """Give a browser back; without users it is closed after a while."""
        shared.users -= 1
        if shared.users == 0:
            loop = asyncio.get_running_loop()
            shared.idle = loop.call_later(IDLE_S, self._begin, shared)

    async def open_profile(
        self, folder: Path, launch: Launch, options: dict[str, Any]
    ) -> "BrowserContext":
        """Start a browser of its own on a profile folder; `leave_profile` when it is closed."""
        from playwright.async_api import Error

        async with self._lock:
            playwright = await self._driver()
        self._profiles += 1
        start = await asyncio.to_thread(launch_options, launch)
        try:
            context: BrowserContext = await sandboxed(
                playwright.chromium.launch_persistent_context,
                {**start, **options},
                user_data_dir=folder,
            )
        except BaseException as error:
            await self.leave_profile()
            if isinstance(error, Error):
                raise OwnWordsError(
                    f"The browser did not start on the profile {folder}: {first_line(error)} "
                    "A person has to close whatever uses that profile, or set another."
                ) from error
            raise
        return context

    async def leave_profile(self) -> None:
        """Say that a browser on a profile folder is closed."""
        self._profiles -= 1
        async with self._lock:
            await self._stop_driver_if_idle()

    async def close(self) -> None:
        """Close everything at once."""
        async with self._lock:
            shared, self._open = list(self._open.values()), {}
            for each in shared:
                await _close_quietly(each.browser)
            self._profiles = 0
            await self._stop_driver_if_idle()

    def _begin(self, shared: Shared) -> None:
        task = asyncio.ensure_future(self._end_idle(shared))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _enter(self, launch: Launch) -> Shared:
        async with self._lock:
            shared = self._open.get(launch)
            if shared is None or not shared.browser.is_connected():
                try:
                    shared = Shared(await start_browser(await self._driver(), launch), launch)
                except BaseException:
                    await self._stop_driver_if_idle()
                    raise
                self._open[launch] = shared
            shared.users += 1
            if shared.idle is not None:
                shared.idle.cancel()
            return shared

    async def _end_idle(self, shared: Shared) -> None:
        async with self._lock:
            if shared.users:
                return
            if self._open.get(shared.launch) is shared:
                del self._open[shared.launch]
            await _close_quietly(shared.browser)
            await self._stop_driver_if_idle()

    async def _drop(self, shared: Shared) -> None:
        async with self._lock:
            if self._open.get(shared.launch) is shared:
                del self._open[shared.launch]
            await _close_quietly(shared.browser)

    async def _driver(self) -> "Playwright":
        from playwright.async_api import async_playwright

        if self._playwright is not None and not await _answers(self._playwright):
            log.warning("the browser's driver had ended; it is started again")
            with contextlib.suppress(Exception):  # of a process that is gone
                await self._playwright.stop()
            self._playwright, self._open = None, {}
        if self._playwright is None:
            start = asyncio.ensure_future(async_playwright().start())
            try:
                await asyncio.shield(start)
            finally:
                self._playwright = await start  # when cancelled, too: half of one cannot be stopped
        return self._playwright

    async def _stop_driver_if_idle(self) -> None:
        if self._open or self._profiles or self._playwright is None:
            return
        playwright, self._playwright = self._playwright, None
        with contextlib.suppress(Exception):  # nothing is left that could be lost
            await playwright.stop()


async def _context_of(shared: Shared, options: dict[str, Any], fresh: bool) -> "BrowserContext":
    """Open a context of our own, also in a browser elsewhere: its own ones know no guard."""
    browser, launch = shared.browser, shared.launch
    if launch.headless and not launch.remote:
        options = {**options, "user_agent": user_agent(browser.version)}
    if launch.remote and browser.contexts and not fresh:
        options = {**options, "storage_state": await _logins(browser.contexts[0])}
    return await browser.new_context(**options)


async def _logins(context: "BrowserContext") -> "StorageState":
    """Return what a person's own window holds: cookies, and what sites of open tabs have stored."""
    try:
        async with asyncio.timeout(LOGINS_S):
            return await context.storage_state()
    except TimeoutError:  # a tab does not answer
        cookies = cast("Any", await context.cookies())  # alike but for their types' names
        return {"cookies": cookies, "origins": []}


async def _answers(playwright: "Playwright") -> bool:
    """Say whether the driver is alive, by a question that needs no browser."""
    from playwright.async_api import Error

    try:
        await (await playwright.request.new_context()).dispose()
    except Error:
        return False
    return True


async def _close_quietly(browser: "Browser") -> None:
    with contextlib.suppress(Exception):  # dead or dying: gone either way
        async with asyncio.timeout(CLOSE_S):
            await browser.close()


_browsers = Browsers()


def browsers() -> Browsers:
    """Return the browsers of this process."""
    return _browsers


def _forget() -> None:
    """Leave the parent's browsers to the parent: a forked child speaks with none of them."""
    global _browsers  # there is one per process, by its very purpose
    _browsers = Browsers()


def close_browsers() -> None:
    """Close all browsers, and what drives them. Blocks."""
    _close_all()
    engine.stop()


def _close_all() -> None:
    if engine.started:
        with contextlib.suppress(Exception):  # the process ends in any case
            engine.call(_browsers.close, CLOSE_S)


os.register_at_fork(after_in_child=_forget)
atexit.register(_close_all)
