"""The browsers of this process: found, started or connected to, shared between threads, closed.

Threads with the same launch settings share one. All of this runs on the browser's event loop.
"""

import asyncio
import atexit
import contextlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from playwright.async_api import Browser, BrowserContext, Error, Playwright, async_playwright

from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.process import BackgroundTasks, EventLoopThread, register_closer
from openmanus_graph.state.settings import BrowserSettings

VIEWPORT = {"width": 1280, "height": 900}
IDLE_S = 2.0
PAGES_RENDERED_AT_ONCE = 4  # pages of all threads together
START_S = 60.0
CLOSE_S = 10.0
STORAGE_S = 5.0
_COMMANDS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge",
    "microsoft-edge-stable", "brave-browser",
)  # fmt: skip
_MAC_APPS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
_PLAYWRIGHT_BROWSERS = (
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium_headless_shell-*/chrome-*/*headless*shell",
)
_CHROMIUM_ARGS = (
    # All traffic goes through our proxy, which resolves names; nothing may leak around it.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
)
_INSECURE_ARGS = (
    "--disable-web-security",
    "--disable-site-isolation-trials",
    "--ignore-certificate-errors",
    "--allow-running-insecure-content",
)
_PASSED_ENVIRONMENT = (
    "HOME", "PATH", "LANG", "LANGUAGE", "LC_ALL", "TZ", "TMPDIR", "USER", "DISPLAY",
    "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
    "XDG_DATA_DIRS", "DBUS_SESSION_BUS_ADDRESS", "FONTCONFIG_PATH", "FONTCONFIG_FILE",
    "LD_LIBRARY_PATH", "CHROME_DEVEL_SANDBOX",
)  # fmt: skip

log = logging.getLogger(__name__)
T = TypeVar("T")
browser_loop = EventLoopThread("openmanus-browser")
"""The event loop of all Playwright objects of this process."""
os.register_at_fork(after_in_child=browser_loop.forget)


ERROR_CODE = re.compile(r"net::(ERR_[A-Z0-9_]+)")
ERROR_REASONS = {
    "ERR_NAME_NOT_RESOLVED": "there is no such host. Check the spelling, or search for the page",
    "ERR_TOO_MANY_REDIRECTS": "it redirects in a circle, or without end. Find another source",
    "ERR_INVALID_AUTH_CREDENTIALS": "the server asks for a user name and a password (HTTP 401). "
    "A person can set them as the secret http_auth=USER:PASSWORD@HOST",
    "ERR_CONNECTION_REFUSED": "the server refuses connections. Try again later, or another source",
    "ERR_CONNECTION_RESET": "the connection was broken off. Try again, or another source",
    "ERR_CONNECTION_CLOSED": "the server broke the connection off. Try again, or another source",
    "ERR_EMPTY_RESPONSE": "the server sent no answer. Try again, or another source",
    "ERR_TIMED_OUT": "the server does not answer. Try again later, or another source",
    "ERR_UNSAFE_REDIRECT": "it leads on to an address that no page may open, such as a file of "
    "this machine. Use another source",
    "ERR_UNSAFE_PORT": "browsers do not open this port. Use fetch_page, or another source",
    "ERR_TUNNEL_CONNECTION_FAILED": "the server cannot be reached. Check the address",
    "ERR_ABORTED": "the page was left again before it loaded. Look with get_state",
    "ERR_INVALID_RESPONSE": "the server's answer is broken. Try another source",
    "ERR_SSL_PROTOCOL_ERROR": "the server speaks no valid TLS. Try the address with http://",
}
_PROTOCOL_ERROR = re.compile(r"Protocol error \((.*?)\)|^(Runtime\.\w+)")
_PROTOCOL_REASONS = {
    r"has been closed|Target closed|crashed": "the page or the browser was closed",
    r"ontext|navigat|detached": "the page loaded another document meanwhile",
    r"(?i)node|element|object": "the page has removed or changed the element",
    r"Timeout": "it took too long",
}


def first_line(error: Exception) -> str:
    """Return what a Playwright error says, in words and without its call log."""
    text = str(error).strip().partition("\n")[0]
    for prefix in ("Page.", "Locator.", "BrowserType.", "Browser.", "BrowserContext.", "Frame."):
        if text.startswith(prefix):
            text = text.partition(": ")[2] or text
    if code := ERROR_CODE.search(text):
        text = ERROR_REASONS.get(code[1], f"the browser reports {code[1]}")
    elif method := _PROTOCOL_ERROR.search(text):
        words = (said for sign, said in _PROTOCOL_REASONS.items() if re.search(sign, text))
        text = next(words, f"the browser did not do it ({method[1] or method[2]})")
    return text if text.endswith((".", "!", "?")) else f"{text}."


def find_browser(configured: str | None) -> Path:
    """Return the configured program, Playwright's own, or the system's. Blocks."""
    if configured:
        path = Path(configured).expanduser()
        if path.is_file() and os.access(path, os.X_OK):
            return path
        raise TrustedToolError(
            f"There is no browser at {configured}. A person has to correct "
            "[browser] chrome_instance_path in the configuration."
        )
    found = next(_installed_browsers(), None)
    if found is None:
        raise TrustedToolError(
            "No browser is installed. A person has to run `openmanus doctor --fix`, or install "
            "Chromium or Chrome. Do what is left of the task without browser_use."
        )
    return found


def _installed_browsers() -> Iterator[Path]:
    """Find Playwright's browsers, the latest first, then the system's."""
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if named and named != "0":
        folder = Path(named)
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "ms-playwright"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(cache) / "ms-playwright"
    for pattern in _PLAYWRIGHT_BROWSERS:
        yield from sorted(folder.glob(pattern), reverse=True)
    yield from (Path(path) for name in _COMMANDS if (path := shutil.which(name)))
    if sys.platform == "darwin":
        for apps in (Path("/Applications"), Path.home() / "Applications"):
            paths = (apps / f"{app}.app" / "Contents" / "MacOS" / app for app in _MAC_APPS)
            yield from filter(Path.is_file, paths)


@dataclass(frozen=True)
class LaunchSettings:
    """The launch settings of a browser process; threads with the same ones share it."""

    path: str | None
    headless: bool
    disable_security: bool
    extra_args: tuple[str, ...]
    cdp_url: str | None
    wss_url: str | None

    @classmethod
    def of(cls, settings: BrowserSettings) -> "LaunchSettings":
        displays = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        return cls(
            settings.chrome_instance_path,
            settings.headless or (sys.platform == "linux" and not displays),
            settings.disable_security,
            settings.extra_chromium_args,
            settings.cdp_url,
            settings.wss_url,
        )

    @property
    def remote(self) -> bool:
        """Whether the browser was started by others, and perhaps cannot reach our proxy."""
        return bool(self.cdp_url or self.wss_url)

    def options(self) -> dict[str, Any]:
        """Return the options for Playwright's `launch`. Blocks. ToolError if there is none."""
        insecure = _INSECURE_ARGS if self.disable_security else ()
        return {
            "executable_path": find_browser(self.path),
            "headless": self.headless,
            "args": [*_CHROMIUM_ARGS, *insecure, *self.extra_args],
            "env": {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ},
            # Root cannot use Chromium's own sandbox.
            "chromium_sandbox": os.geteuid() != 0,
            # The first Ctrl-C only drains the run: it must not end the browser.
            "handle_sigint": False,
            "handle_sigterm": False,
            "handle_sighup": False,
            "timeout": START_S * 1000,
        }


async def start_browser(playwright: Playwright, launch: LaunchSettings) -> Browser:
    try:
        if launch.cdp_url:
            return await playwright.chromium.connect_over_cdp(launch.cdp_url, timeout=START_S * 500)
        if launch.wss_url:
            return await playwright.chromium.connect(launch.wss_url, timeout=START_S * 500)
    except Error as error:
        raise TrustedToolError(_explain_unreachable(launch, error)) from error
    options = await asyncio.to_thread(launch.options)
    try:
        return await _start_sandboxed(playwright.chromium.launch, options)
    except Error as error:
        raise TrustedToolError(
            f"The browser {options['executable_path']} did not start: {first_line(error)} "
            "`openmanus doctor` may tell a person why. Do what is left without browser_use."
        ) from error


def _explain_unreachable(launch: LaunchSettings, error: Exception) -> str:
    place = "cdp_url" if launch.cdp_url else "wss_url"
    why, what = first_line(error), "start it or correct the address"
    if "version mismatch" in str(error):
        versions = sorted(set(re.findall(r"(?:server|client) version: v[\w.]+", str(error))))
        why = f"it is a server of another Playwright ({', '.join(versions)})."
        what = "start one of the client's version"
    elif launch.wss_url and "/devtools/" in launch.wss_url:
        why = "it is Chromium's own address, not a Playwright server's."
        what = "set it as cdp_url"
    return (
        f"The browser that [browser] {place} names cannot be reached: {why} A person has to {what}."
    )


async def _start_sandboxed(
    start: Callable[..., Awaitable[T]], options: dict[str, Any], **more: Any
) -> T:
    """Start a browser in its own sandbox, or without one if the system does not allow it."""
    try:
        return await start(**options, **more)
    except Error as error:
        if not (options["chromium_sandbox"] and "sandbox" in str(error).lower()):
            raise
    log.warning("the system does not allow Chromium's own sandbox; it runs without one")
    return await start(**{**options, "chromium_sandbox": False}, **more)


@dataclass(eq=False)
class SharedBrowser:
    browser: Browser
    launch: LaunchSettings
    users: int = 0
    idle: asyncio.TimerHandle | None = None

    async def new_context(self, options: dict[str, Any], *, fresh: bool) -> BrowserContext:
        """Open a new context, in a remote browser too: its existing contexts are not guarded."""
        browser, launch = self.browser, self.launch
        if launch.headless and not launch.remote:  # many sites refuse headless browsers
            mac = sys.platform == "darwin"
            system = "Macintosh; Intel Mac OS X 10_15_7" if mac else "X11; Linux x86_64"
            agent = (
                f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) "
                f"Chrome/{browser.version.partition('.')[0]}.0.0.0 Safari/537.36"
            )
            options = {**options, "user_agent": agent}
        if launch.remote and browser.contexts and not fresh:
            # A person's cookies, and the local storage of the sites in open tabs.
            known = browser.contexts[0]
            try:
                async with asyncio.timeout(STORAGE_S):
                    state: Any = await known.storage_state()
            except TimeoutError:  # a tab does not answer
                cookies = cast("Any", await known.cookies())  # same shape, different type names
                state = {"cookies": cookies, "origins": []}
            options = {**options, "storage_state": state}
        return await browser.new_context(**options)


class Browsers:
    """Starts, shares and closes browsers and Playwright's driver process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start with no browsers: in a forked child, those that are open belong to the parent."""
        self.rendering = asyncio.Semaphore(PAGES_RENDERED_AT_ONCE)
        """Limits how many pages are rendered for other tools at once."""
        self._lock = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._open: dict[LaunchSettings, SharedBrowser] = {}
        self._profiles = 0
        self._background = BackgroundTasks()

    async def open_context(
        self, launch: LaunchSettings, options: dict[str, Any], *, fresh: bool
    ) -> tuple[BrowserContext, SharedBrowser]:
        """Open a context in the browser of that launch; call `release` when it is closed.

        A dead browser is replaced once. `fresh` leaves out the logins that a remote browser has.
        ToolError if none can be started.
        """
        for last_try in (False, True):
            shared = await self._acquire(launch)
            try:
                return await shared.new_context(options, fresh=fresh), shared
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
    ) -> BrowserContext:
        """Start a separate browser on a profile folder; `release_profile` when it is closed."""
        async with self._lock:
            playwright = await self._running_driver()
        self._profiles += 1
        options = {**await asyncio.to_thread(launch.options), **options}
        start = playwright.chromium.launch_persistent_context
        try:
            return await _start_sandboxed(start, options, user_data_dir=folder)
        except BaseException as error:
            await self.release_profile()
            if isinstance(error, Error):
                raise TrustedToolError(
                    f"The browser did not start on the profile {folder}: {first_line(error)} "
                    "A person has to close whatever uses that profile, or set another."
                ) from error
            raise

    async def release_profile(self) -> None:
        self._profiles -= 1
        async with self._lock:
            await self._stop_driver_if_idle()

    async def close(self) -> None:
        async with self._lock:
            shared, self._open = list(self._open.values()), {}
            for each in shared:
                await close_quietly(each.browser)
            self._profiles = 0
            await self._stop_driver_if_idle()

    async def _acquire(self, launch: LaunchSettings) -> SharedBrowser:
        async with self._lock:
            shared = self._open.get(launch)
            if shared is None or not shared.browser.is_connected():
                try:
                    browser = await start_browser(await self._running_driver(), launch)
                except BaseException:
                    await self._stop_driver_if_idle()
                    raise
                shared = self._open[launch] = SharedBrowser(browser, launch)
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
            await close_quietly(shared.browser)
            if not failed:
                await self._stop_driver_if_idle()

    async def _running_driver(self) -> Playwright:
        if self._playwright is not None:
            try:  # a request that needs no browser
                await (await self._playwright.request.new_context()).dispose()
            except Error:
                log.warning("the browser's driver had ended; it is started again")
                with contextlib.suppress(Exception):  # its process has ended
                    await self._playwright.stop()
                self._playwright, self._open = None, {}
        if self._playwright is None:
            start = asyncio.ensure_future(async_playwright().start())
            try:
                await asyncio.shield(start)
            finally:  # when cancelled, too: a driver that is still starting cannot be stopped
                self._playwright = await start
        return self._playwright

    async def _stop_driver_if_idle(self) -> None:
        if self._open or self._profiles or self._playwright is None:
            return
        playwright, self._playwright = self._playwright, None
        with contextlib.suppress(Exception):  # no browser uses it any more
            await playwright.stop()


async def close_quietly(closing: Browser | BrowserContext) -> None:
    with contextlib.suppress(Exception):  # it may be dead already
        async with asyncio.timeout(CLOSE_S):
            await closing.close()


shared_browsers = Browsers()


def _close_all() -> None:
    if browser_loop.started:
        with contextlib.suppress(Exception):  # the process ends in any case
            browser_loop.call(shared_browsers.close, CLOSE_S)


def close_browsers() -> None:
    """Close all browsers and the driver. Blocks."""
    _close_all()
    browser_loop.stop()


os.register_at_fork(after_in_child=shared_browsers.forget)
atexit.register(_close_all)
register_closer(close_browsers)
