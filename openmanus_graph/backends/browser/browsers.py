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
    Launch,
    first_line,
    launch_options,
    sandboxed,
    start_browser,
    user_agent,
)
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.event_loop_thread import EventLoopThread
from openmanus_graph.runtime.shutdown import register_closer

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright, StorageState

IDLE_S = 2.0
"""How long a browser without users is kept."""
RENDERED_AT_ONCE = 4
"""Pages of all threads together."""
CLOSE_S = 10.0
LOGINS_S = 5.0

log = logging.getLogger(__name__)
browser_loop = EventLoopThread("openmanus-browser")
"""The event loop of all Playwright objects of this process."""
os.register_at_fork(after_in_child=browser_loop.forget)


@dataclass(eq=False)
class SharedBrowser:
    """A browser and how many contexts use it."""

    browser: "Browser"
    launch: Launch
    users: int = 0
    idle: asyncio.TimerHandle | None = None


class Browsers:
    """Starts, shares and closes browsers and Playwright's driver process."""

    def __init__(self) -> None:
        self.rendering = asyncio.Semaphore(RENDERED_AT_ONCE)
        """Limits how many pages are rendered for other tools at once."""
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._open: dict[Launch, SharedBrowser] = {}
        self._profiles = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def open_context(
        self, launch: Launch, options: dict[str, Any], *, fresh: bool
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
                await self._discard(shared)
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
            loop = asyncio.get_running_loop()
            shared.idle = loop.call_later(IDLE_S, self._schedule_close, shared)

    async def open_profile(
        self, folder: Path, launch: Launch, options: dict[str, Any]
    ) -> "BrowserContext":
        """Start a separate browser on a profile folder; `release_profile` when it is closed."""
        from playwright.async_api import Error

        async with self._lock:
            playwright = await self._started_driver()
        self._profiles += 1
        start = await asyncio.to_thread(launch_options, launch)
        try:
            context: BrowserContext = await sandboxed(
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

    def _schedule_close(self, shared: SharedBrowser) -> None:
        task = asyncio.ensure_future(self._close_if_idle(shared))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _acquire(self, launch: Launch) -> SharedBrowser:
        async with self._lock:
            shared = self._open.get(launch)
            if shared is None or not shared.browser.is_connected():
                try:
                    shared = SharedBrowser(
                        await start_browser(await self._started_driver(), launch), launch
                    )
                except BaseException:
                    await self._stop_driver_if_idle()
                    raise
                self._open[launch] = shared
            shared.users += 1
            if shared.idle is not None:
                shared.idle.cancel()
            return shared

    async def _close_if_idle(self, shared: SharedBrowser) -> None:
        async with self._lock:
            if shared.users:
                return
            if self._open.get(shared.launch) is shared:
                del self._open[shared.launch]
            await _close_quietly(shared.browser)
            await self._stop_driver_if_idle()

    async def _discard(self, shared: SharedBrowser) -> None:
        async with self._lock:
            if self._open.get(shared.launch) is shared:
                del self._open[shared.launch]
            await _close_quietly(shared.browser)

    async def _started_driver(self) -> "Playwright":
        from playwright.async_api import async_playwright

        if self._playwright is not None and not await _is_responsive(self._playwright):
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
        options = {**options, "storage_state": await _logins(browser.contexts[0])}
    return await browser.new_context(**options)


async def _logins(context: "BrowserContext") -> "StorageState":
    """Return a person's cookies, and the local storage of the sites in open tabs."""
    try:
        async with asyncio.timeout(LOGINS_S):
            return await context.storage_state()
    except TimeoutError:  # a tab does not answer
        cookies = cast("Any", await context.cookies())  # same shape, different type names
        return {"cookies": cookies, "origins": []}


async def _is_responsive(playwright: "Playwright") -> bool:
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


def _forget() -> None:
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


os.register_at_fork(after_in_child=_forget)
atexit.register(_close_all)
register_closer(close_browsers)
