"""The browsers of this process: one for all threads with the same launch settings.

All of this runs on the browser's event loop.
"""

import asyncio
import atexit
import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from openmanus_graph.backends.browser.launch import (
    LaunchSettings,
    first_line,
    launch_options,
    start_browser,
    start_sandboxed,
    user_agent,
)
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.event_loop_thread import BackgroundTasks, EventLoopThread
from openmanus_graph.runtime.system_exit import register_closer

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright, StorageState

IDLE_S = 2.0
"""How long a browser without users is kept."""
PAGES_RENDERED_AT_ONCE = 4
"""Pages of all threads together."""
CLOSE_S = 10.0
STORAGE_S = 5.0

log = logging.getLogger(__name__)
browser_loop = EventLoopThread("openmanus-browser")
"""The event loop of all Playwright objects of this process."""
os.register_at_fork(after_in_child=browser_loop.forget)


@dataclass(eq=False)
class SharedBrowser:
    """A browser and how many contexts use it."""

    browser: "Browser"
    launch: LaunchSettings
    users: int = 0
    idle: asyncio.TimerHandle | None = None


class Browsers:
    """Starts, shares and closes browsers and Playwright's driver process."""

    def __init__(self) -> None:
        self.rendering = asyncio.Semaphore(PAGES_RENDERED_AT_ONCE)
        """Limits how many pages are rendered for other tools at once."""
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._open: dict[LaunchSettings, SharedBrowser] = {}
        self._profiles = 0
        self._background = BackgroundTasks()

    async def open_context(
        self, launch: LaunchSettings, options: dict[str, Any], *, fresh: bool
    ) -> tuple["BrowserContext", SharedBrowser]:
        """Open a context in the browser of that launch; call `release` when it is closed.

        A browser that turns out to be dead is replaced once.

        Args:
            launch: Names the browser.
            options: Of the context.
            fresh: Without the logins that a remote browser already has.

        Raises:
            ToolError: No browser can be started.
        """
        from playwright.async_api import Error

        for last_try in (False, True):
            shared = await self._acquire(launch)
            try:
                return await _new_context(shared, options, fresh), shared
            except Error as error:
                self.release(shared)
                await self._close_browser(shared, failed=True)
                if last_try:
                    raise TrustedToolError(
                        f"The browser failed: {first_line(error)} Try again."
                    ) from error
            except BaseException:
                self.release(shared)
                raise
        raise AssertionError  # the second try has returned or raised

    def release(self, shared: SharedBrowser) -> None:
        """Release a browser; once it has no users it is closed after `IDLE_S`."""
        shared.users -= 1
        if shared.users == 0:
            shared.idle = asyncio.get_running_loop().call_later(
                IDLE_S, lambda: self._background.spawn(self._close_browser(shared))
            )

    async def open_profile(
        self, folder: Path, launch: LaunchSettings, options: dict[str, Any]
    ) -> "BrowserContext":
        """Start a separate browser on a profile folder; `release_profile` when it is closed."""
        from playwright.async_api import Error

        async with self._lock:
            playwright = await self._running_driver()
        self._profiles += 1
        start = await asyncio.to_thread(launch_options, launch)
        try:
            context = await start_sandboxed(
                playwright.chromium.launch_persistent_context,
                {**start, **options},
                user_data_dir=folder,
            )
        except BaseException as error:
            await self.release_profile()
            if isinstance(error, Error):
                raise TrustedToolError(
                    f"The browser did not start on the profile {folder}: {first_line(error)} "
                    "A person has to close whatever uses that profile, or set another."
                ) from error
            raise
        return context

    async def release_profile(self) -> None:
        """Count a browser on a profile folder as closed."""
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

    async def _acquire(self, launch: LaunchSettings) -> SharedBrowser:
        async with self._lock:
            shared = self._open.get(launch)
            if shared is None or not shared.browser.is_connected():
                try:
                    shared = SharedBrowser(
                        await start_browser(await self._running_driver(), launch), launch
                    )
                except BaseException:
                    await self._stop_driver_if_idle()
                    raise
                self._open[launch] = shared
            shared.users += 1
            if shared.idle is not None:
                shared.idle.cancel()
            return shared

    async def _close_browser(self, shared: SharedBrowser, *, failed: bool = False) -> None:
        """Close a browser that has no users, or one that failed and is started again."""
        async with self._lock:
            if shared.users and not failed:
                return
            if self._open.get(shared.launch) is shared:
                del self._open[shared.launch]
            await _close_quietly(shared.browser)
            if not failed:
                await self._stop_driver_if_idle()

    async def _running_driver(self) -> "Playwright":
        from playwright.async_api import async_playwright

        if self._playwright is not None and not await _driver_responds(self._playwright):
            log.warning("the browser's driver had ended; it is started again")
            with contextlib.suppress(Exception):  # its process has ended
                await self._playwright.stop()
            self._playwright, self._open = None, {}
        if self._playwright is None:
            start = asyncio.ensure_future(async_playwright().start())
            try:
                await asyncio.shield(start)
            finally:
                self._playwright = (
                    await start
                )  # when cancelled, too: a driver that is still starting cannot be stopped
        return self._playwright

    async def _stop_driver_if_idle(self) -> None:
        if self._open or self._profiles or self._playwright is None:
            return
        playwright, self._playwright = self._playwright, None
        with contextlib.suppress(Exception):  # no browser uses it any more
            await playwright.stop()


async def _new_context(
    shared: SharedBrowser, options: dict[str, Any], fresh: bool
) -> "BrowserContext":
    """Open a new context, in a remote browser too: its existing contexts are not guarded."""
    browser, launch = shared.browser, shared.launch
    if launch.headless and not launch.remote:
        options = {**options, "user_agent": user_agent(browser.version)}
    if launch.remote and browser.contexts and not fresh:
        options = {**options, "storage_state": await _storage_of(browser.contexts[0])}
    return await browser.new_context(**options)


async def _storage_of(context: "BrowserContext") -> "StorageState":
    """Return a person's cookies, and the local storage of the sites in open tabs."""
    try:
        async with asyncio.timeout(STORAGE_S):
            return await context.storage_state()
    except TimeoutError:  # a tab does not answer
        cookies = cast("Any", await context.cookies())  # same shape, different type names
        return {"cookies": cookies, "origins": []}


async def _driver_responds(playwright: "Playwright") -> bool:
    """Check that the driver is alive, by a request that needs no browser."""
    from playwright.async_api import Error

    try:
        await (await playwright.request.new_context()).dispose()
    except Error:
        return False
    return True


async def _close_quietly(browser: "Browser") -> None:
    with contextlib.suppress(Exception):  # it may be dead already
        async with asyncio.timeout(CLOSE_S):
            await browser.close()


_browsers = Browsers()


def browsers() -> Browsers:
    """Return the browsers of this process."""
    return _browsers


def _reset_after_fork() -> None:
    """Start with no browsers in a forked child: those there are belong to the parent."""
    global _browsers  # there is one per process, by its very purpose
    _browsers = Browsers()


def close_browsers() -> None:
    """Close all browsers and the driver. Blocks."""
    _close_all()
    browser_loop.stop()


def _close_all() -> None:
    if browser_loop.started:
        with contextlib.suppress(Exception):  # the process ends in any case
            browser_loop.call(_browsers.close, CLOSE_S)


os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(_close_all)
register_closer(close_browsers)
