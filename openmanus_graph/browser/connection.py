"""One browser context of a thread, and the proxy that all its traffic goes through."""

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from openmanus_graph.browser.browsers import CLOSE_S, Shared, browsers
from openmanus_graph.browser.launch import VIEWPORT, Launch
from openmanus_graph.browser.page import prepare_context
from openmanus_graph.browser.secrets import origin_of
from openmanus_graph.errors import OwnWordsError, ToolError
from openmanus_graph.settings import BrowserSettings, Settings, SiteSecret
from openmanus_graph.web.guard import Guard
from openmanus_graph.web.proxy import BYPASS, GuardedProxy
from openmanus_graph.web.routes import parse_upstream

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Route

ALIVE_S = 5.0
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(eq=False)
class Connection:
    """What has to be closed when a thread's window is."""

    context: "BrowserContext"
    guard: Guard
    proxy: GuardedProxy | None
    """None for a browser elsewhere, which cannot reach our proxy; requests are then checked by
    their address only."""
    shared: Shared | None
    """None for a browser of its own, on a profile."""
    lock: FileLock | None = None
    pages: "list[Page]" = field(default_factory=list["Page"])
    """Tabs that were there from the beginning and are ours."""
    borrowed: bool = False
    """The context is somebody else's, and stays open."""
    closed: bool = False

    @property
    def alive(self) -> bool:
        """Whether the browser is there, as far as is known without asking."""
        browser = self.context.browser
        return not self.closed and (browser is None or browser.is_connected())

    async def answers(self) -> bool:
        """Ask the browser whether it is there."""
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(ALIVE_S):
                await self.context.cookies("http://localhost/")
        except (Error, TimeoutError):
            return False
        return self.alive

    async def close(self) -> None:
        """Let go of everything, whatever is left of it."""
        self.closed = True
        with contextlib.suppress(Exception):  # dead or dying: gone either way
            async with asyncio.timeout(CLOSE_S):
                await self._close_context()
        if self.shared is not None:
            if self.borrowed:
                self.shared.borrowed = None
            browsers().leave(self.shared)
        else:
            await browsers().leave_profile()
        if self.lock is not None:
            await asyncio.to_thread(self.lock.release)
        if self.proxy is not None:
            await self.proxy.close()

    async def _close_context(self) -> None:
        if not self.borrowed:
            await self.context.close()
            return
        for page in self.context.pages:
            if page in self.pages:
                await page.close()


async def open_connection(
    settings: Settings, login: SiteSecret | None, *, fresh: bool = False
) -> Connection:
    """Open a context for a thread.

    Args:
        settings: Of its run.
        login: Name and password for a site that asks by HTTP.
        fresh: Without anybody's logins, even if the settings name a profile.

    Raises:
        ToolError: There is no browser, or it does not start.
    """
    if fresh:
        settings = replace(settings, browser=replace(settings.browser, profile=None))
    launch = Launch.of(settings.browser)
    proxy = await _proxy(settings, launch)
    try:
        connection = await _connected(
            settings, launch, proxy, context_options(settings, proxy, login), fresh=fresh
        )
    except BaseException:
        if proxy is not None:
            await proxy.close()
        raise
    try:
        await _prepare(connection)
    except BaseException:
        await connection.close()
        raise
    return connection


def context_options(
    settings: Settings, proxy: GuardedProxy | None, login: SiteSecret | None
) -> dict[str, Any]:
    """Return what Playwright makes a context with."""
    open_doors = settings.browser.disable_security
    options: dict[str, Any] = {
        "viewport": VIEWPORT,
        "accept_downloads": True,
        "ignore_https_errors": open_doors,
        "bypass_csp": open_doors,
        # Behind a proxy they are guarded like everything else; without one nobody sees them.
        "service_workers": "allow" if proxy else "block",
    }
    if proxy is not None:
        options["proxy"] = {
            "server": proxy.server,
            "username": proxy.username,
            "password": proxy.password,
            "bypass": BYPASS,
        }
    if login is not None:
        name, _, password = login.value.get_secret_value().partition(":")
        options["http_credentials"] = {
            "username": name,
            "password": password,
            "origin": origin_of(login),
        }
    return options


async def _connected(
    settings: Settings,
    launch: Launch,
    proxy: GuardedProxy | None,
    options: dict[str, Any],
    *,
    fresh: bool,
) -> Connection:
    guard = Guard.of(settings)
    if settings.browser.profile:
        folder, lock = await asyncio.to_thread(_hold_profile, settings.browser.profile)
        try:
            context = await browsers().open_profile(folder, launch, options)
        except BaseException:
            await asyncio.to_thread(lock.release)
            raise
        return Connection(context, guard, proxy, None, lock, list(context.pages))
    context, shared = await browsers().open_context(launch, options, fresh=fresh)
    return Connection(context, guard, proxy, shared, borrowed=context is shared.borrowed)


async def _proxy(settings: Settings, launch: Launch) -> GuardedProxy | None:
    if launch.remote and not _is_local(settings.browser):
        return None
    given = settings.browser.proxy
    upstream = None
    if given is not None:
        password = given.password.get_secret_value()
        upstream = parse_upstream(given.server, given.username, password)
    proxy = GuardedProxy(Guard.of(settings), upstream)
    await proxy.start()
    return proxy


def _is_local(settings: BrowserSettings) -> bool:
    url = settings.cdp_url or settings.wss_url or ""
    return urlsplit(url).hostname in _LOCAL


async def _prepare(connection: Connection) -> None:
    context = connection.context
    if not connection.borrowed:
        await context.grant_permissions([])  # pages are told no to everything, without a question
    await prepare_context(context)
    if connection.proxy is None or connection.borrowed:
        await context.route("**/*", lambda route: _checked(route, connection.guard))


async def _checked(route: "Route", guard: Guard) -> None:
    """Let a request through if the guard does."""
    url = route.request.url
    if url.startswith(("http:", "https:")):
        try:
            address = guard.check(url)
            await guard.resolve(address.host, address.port)
        except ToolError:
            await route.abort("blockedbyclient")
            return
    await route.continue_()


def _hold_profile(profile: str) -> tuple[Path, FileLock]:
    """Take a profile for this process alone. Blocks. ToolError when somebody has it."""
    folder = Path(profile).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "openmanus.lock", timeout=0, thread_local=False)
        lock.acquire()
    except Timeout as error:
        raise OwnWordsError(
            f"The browser profile {folder} is in use by another run. Wait for it, or a person "
            "sets another [browser] profile."
        ) from error
    except OSError as error:
        raise OwnWordsError(
            f"The browser profile {folder} cannot be used: {error.strerror}. A person has to set "
            "another [browser] profile."
        ) from error
    return folder, lock
