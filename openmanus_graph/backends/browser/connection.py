"""One browser context, and the guard that all its traffic passes on the way out (its egress).

The egress is a local proxy, or the interception of requests for a remote browser that cannot reach
the proxy.
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from playwright import async_api
from playwright.async_api import BrowserContext, CDPSession, Error, Page

from openmanus_graph.backends.browser import browsers
from openmanus_graph.backends.browser.page.frames import prepare_context
from openmanus_graph.backends.browser.secrets import origin_of
from openmanus_graph.backends.web.guard import Guard, parse_upstream
from openmanus_graph.backends.web.own_pages import OwnPages
from openmanus_graph.backends.web.proxy import BYPASS, GuardedProxy, Refusal
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.process import BackgroundTasks
from openmanus_graph.state.addresses import LOOPBACK_NAMES
from openmanus_graph.state.setting_declaration import SiteSecret
from openmanus_graph.state.settings import Settings

_GUARDED_SCHEMES = ("http:", "https:", "ws:", "wss:")
MAX_REFUSALS = 100
ALIVE_S = 5.0


class RequestInterceptor:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._refusals: deque[Refusal] = deque(maxlen=MAX_REFUSALS)
        self._background = BackgroundTasks()

    async def attach(self, context: BrowserContext) -> None:
        """Intercept the requests of a context that has no pages yet."""

        async def on_request(route: async_api.Route, request: async_api.Request) -> None:
            if await self._allows(request.url):
                await route.continue_()
            else:
                await route.abort("blockedbyclient")

        async def on_socket(socket: async_api.WebSocketRoute) -> None:
            if await self._allows(socket.url):
                socket.connect_to_server()
            else:
                await socket.close()

        # Holds also for the first request of a window that a page opens, but for no redirect.
        await context.route("**/*", on_request)
        await context.route_web_socket("**/*", on_socket)
        context.on("page", lambda page: self._background.spawn(self.watch(page)))

    async def watch(self, page: Page) -> None:
        """Intercept a page's requests, redirects too."""
        spawn = self._background.spawn
        page.on("framenavigated", lambda frame: spawn(self._intercept(page, frame)))
        await self._intercept(page, page)

    def take_refusals(self) -> list[Refusal]:
        refusals = list(self._refusals)
        self._refusals.clear()
        return refusals

    async def close(self) -> None:
        self._background.cancel()

    async def _intercept(self, page: Page, target: Page | async_api.Frame) -> None:
        with contextlib.suppress(Error):  # it is closed, or is rendered in its parent's process
            session = await page.context.new_cdp_session(target)

            def on_paused(event: dict[str, Any]) -> None:
                self._background.spawn(self._decide(session, event))

            session.on("Fetch.requestPaused", on_paused)
            await session.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})

    async def _decide(self, session: CDPSession, event: dict[str, Any]) -> None:
        answer = {"requestId": event["requestId"]}
        with contextlib.suppress(Error):  # the page was closed meanwhile
            if await self._allows(event["request"]["url"]):
                await session.send("Fetch.continueRequest", answer)
            else:
                blocked = {**answer, "errorReason": "BlockedByClient"}
                await session.send("Fetch.failRequest", blocked)

    async def _allows(self, url: str) -> bool:
        if not url.startswith(_GUARDED_SCHEMES):
            return True
        try:
            address = self._guard.check(url)
            await self._guard.resolve(address.host, address.port)
        except ToolError as error:
            self._refusals.append(Refusal(url, str(error), by_guard=True))
            return False
        return True


Egress = GuardedProxy | RequestInterceptor


@dataclass(eq=False)
class Connection:
    """A browser context with the resources to close together with it."""

    context: BrowserContext
    guard: Guard
    egress: Egress
    resources: contextlib.AsyncExitStack
    closed: bool = False

    @property
    def alive(self) -> bool:
        """Whether the browser is connected, by local state only."""
        browser = self.context.browser
        return not self.closed and (browser is None or browser.is_connected())

    async def is_responsive(self) -> bool:
        try:
            async with asyncio.timeout(ALIVE_S):
                await self.context.cookies("http://localhost/")
        except (Error, TimeoutError):
            return False
        return self.alive

    async def new_page(self) -> Page:
        page = await self.context.new_page()
        if isinstance(self.egress, RequestInterceptor):
            await self.egress.watch(page)
        return page

    async def close(self) -> None:
        self.closed = True
        await self.resources.aclose()


async def open_connection(
    settings: Settings,
    login: SiteSecret | None,
    *,
    fresh: bool = False,
    own: OwnPages | None = None,
) -> Connection:
    """Open a context for a thread. ToolError if there is no browser, or it does not start.

    `login` is for a site that asks by HTTP. `fresh` opens it without logins, even if a profile is
    set. With `own` it is fresh too, for pages that the agent made, and the browser is always one of
    ours: of others it is not known what they send around the proxy.
    """
    if fresh or own:
        settings = replace(settings, browser=replace(settings.browser, profile=None))
    if own:
        local = replace(settings.browser, cdp_url=None, wss_url=None)
        settings = replace(settings, browser=local)
    guard = replace(Guard.of(settings), own=own)
    launch = browsers.LaunchSettings.of(settings.browser)
    async with contextlib.AsyncExitStack() as opened:
        egress = await _start_egress(settings, launch, guard)
        opened.push_async_callback(egress.close)
        options = _context_options(settings, egress, login)
        if profile := settings.browser.profile:
            context = await _open_profile(profile, launch, options, opened)
        else:
            open_context = browsers.shared_browsers.open_context
            context, shared = await open_context(launch, options, fresh=fresh)
            opened.callback(browsers.shared_browsers.release, shared)
        opened.push_async_callback(browsers.close_quietly, context)
        await context.grant_permissions([])  # all are denied, without a prompt
        await prepare_context(context)
        if isinstance(egress, RequestInterceptor):
            await egress.attach(context)
        return Connection(context, guard, egress, opened.pop_all())


async def _start_egress(
    settings: Settings, launch: browsers.LaunchSettings, guard: Guard
) -> Egress:
    if launch.remote:
        host = urlsplit(launch.cdp_url or launch.wss_url or "").hostname
        if host not in LOOPBACK_NAMES:
            return RequestInterceptor(guard)
    configured, upstream = settings.browser.proxy, None
    if configured is not None:
        password = configured.password.get_secret_value()
        upstream = parse_upstream(configured.server, configured.username, password)
    proxy = GuardedProxy(guard, upstream)
    await proxy.start()
    return proxy


def _context_options(
    settings: Settings, egress: Egress, login: SiteSecret | None
) -> dict[str, Any]:
    unprotected = settings.browser.disable_security
    options: dict[str, Any] = {
        "viewport": browsers.VIEWPORT,
        "accept_downloads": True,
        "ignore_https_errors": unprotected,
        "bypass_csp": unprotected,
        # A proxy guards their requests as well; interception does not see them.
        "service_workers": "block" if isinstance(egress, RequestInterceptor) else "allow",
    }
    if isinstance(egress, GuardedProxy):
        own = {"username": egress.username, "password": egress.password}
        options["proxy"] = {"server": egress.server, **own, "bypass": BYPASS}
    if login is not None:
        name, _, password = login.value.get_secret_value().partition(":")
        credentials = {"username": name, "password": password, "origin": origin_of(login)}
        options["http_credentials"] = credentials
    return options


async def _open_profile(
    profile: str,
    launch: browsers.LaunchSettings,
    options: dict[str, Any],
    opened: contextlib.AsyncExitStack,
) -> BrowserContext:
    """Start a browser on a profile folder, which no other run may use meanwhile."""
    folder = await asyncio.to_thread(lambda: Path(profile).expanduser().absolute())
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        lock = FileLock(folder / "openmanus.lock", timeout=0, thread_local=False)
        await asyncio.to_thread(lock.acquire)
    except Timeout as error:
        raise TrustedToolError(
            f"The browser profile {folder} is in use by another run. Wait for it, or a person "
            "sets another [browser] profile."
        ) from error
    except OSError as error:
        raise TrustedToolError(
            f"The browser profile {folder} cannot be used: {error.strerror}. A person has to set "
            "another [browser] profile."
        ) from error
    opened.push_async_callback(asyncio.to_thread, lock.release)
    context = await browsers.shared_browsers.open_profile(folder, launch, options)
    opened.push_async_callback(browsers.shared_browsers.release_profile)
    return context
