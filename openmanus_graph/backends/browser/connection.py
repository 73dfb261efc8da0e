"""One browser context of a thread, and the guarded egress of all its traffic."""

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from openmanus_graph.backends.browser.browsers import CLOSE_S, SharedBrowser, browsers
from openmanus_graph.backends.browser.gate import Gate
from openmanus_graph.backends.browser.launch import VIEWPORT, Launch
from openmanus_graph.backends.browser.page import prepare_context
from openmanus_graph.backends.browser.secrets import origin_of
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.proxy import BYPASS, GuardedProxy
from openmanus_graph.backends.web.routes import parse_upstream
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.state.setting_values import SiteSecret
from openmanus_graph.state.settings import BrowserSettings, Settings

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

ALIVE_S = 5.0
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(eq=False)
class Connection:
    """A browser context with the resources to close together with it."""

    context: "BrowserContext"
    guard: Guard
    egress: GuardedProxy | Gate
    """A local proxy, or request interception for a remote browser that cannot reach the proxy."""
    shared: SharedBrowser | None
    """The shared browser; None for a separate one on a profile."""
    lock: FileLock | None = None
    pages: "list[Page]" = field(default_factory=list["Page"])
    """Tabs that the context opened with."""
    closed: bool = False

    @property
    def alive(self) -> bool:
        """Whether the browser is connected, by local state only."""
        browser = self.context.browser
        return not self.closed and (browser is None or browser.is_connected())

    async def is_responsive(self) -> bool:
        """Send the browser a request to check that it is alive."""
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(ALIVE_S):
                await self.context.cookies("http://localhost/")
        except (Error, TimeoutError):
            return False
        return self.alive

    async def new_page(self) -> "Page":
        """Open a tab."""
        page = await self.context.new_page()
        if isinstance(self.egress, Gate):
            await self.egress.watch(page)
        return page

    async def close(self) -> None:
        """Close the context, release browser and profile, and close the egress."""
        self.closed = True
        with contextlib.suppress(Exception):  # it may be dead already
            async with asyncio.timeout(CLOSE_S):
                await self.context.close()
        if self.shared is not None:
            browsers().release(self.shared)
        else:
            await browsers().release_profile()
        if self.lock is not None:
            await asyncio.to_thread(self.lock.release)
        await self.egress.close()


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
    egress = await _start_egress(settings, launch)
    try:
        connection = await _connect(
            settings, launch, egress, context_options(settings, egress, login), fresh=fresh
        )
    except BaseException:
        await egress.close()
        raise
    try:
        await _prepare(connection)
    except BaseException:
        await connection.close()
        raise
    return connection


def context_options(
    settings: Settings, egress: GuardedProxy | Gate, login: SiteSecret | None
) -> dict[str, Any]:
    """Return the options for Playwright's `new_context`."""
    unprotected = settings.browser.disable_security
    options: dict[str, Any] = {
        "viewport": VIEWPORT,
        "accept_downloads": True,
        "ignore_https_errors": unprotected,
        "bypass_csp": unprotected,
        # A proxy guards their requests as well; interception does not see them.
        "service_workers": "block" if isinstance(egress, Gate) else "allow",
    }
    if isinstance(egress, GuardedProxy):
        options["proxy"] = {
            "server": egress.server,
            "username": egress.username,
            "password": egress.password,
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


async def _connect(
    settings: Settings,
    launch: Launch,
    egress: GuardedProxy | Gate,
    options: dict[str, Any],
    *,
    fresh: bool,
) -> Connection:
    guard = Guard.of(settings)
    if settings.browser.profile:
        folder, lock = await asyncio.to_thread(_lock_profile, settings.browser.profile)
        try:
            context = await browsers().open_profile(folder, launch, options)
        except BaseException:
            await asyncio.to_thread(lock.release)
            raise
        return Connection(context, guard, egress, None, lock, list(context.pages))
    context, shared = await browsers().open_context(launch, options, fresh=fresh)
    return Connection(context, guard, egress, shared)


async def _start_egress(settings: Settings, launch: Launch) -> GuardedProxy | Gate:
    if launch.remote and not _is_local(settings.browser):
        return Gate(Guard.of(settings))
    configured = settings.browser.proxy
    upstream = None
    if configured is not None:
        password = configured.password.get_secret_value()
        upstream = parse_upstream(configured.server, configured.username, password)
    proxy = GuardedProxy(Guard.of(settings), upstream)
    await proxy.start()
    return proxy


def _is_local(settings: BrowserSettings) -> bool:
    url = settings.cdp_url or settings.wss_url or ""
    return urlsplit(url).hostname in _LOCAL


async def _prepare(connection: Connection) -> None:
    context = connection.context
    await context.grant_permissions([])  # every permission is denied, without a prompt
    await prepare_context(context)
    if isinstance(connection.egress, Gate):
        await connection.egress.attach(context)


def _lock_profile(profile: str) -> tuple[Path, FileLock]:
    """Create and lock a profile folder. Blocks. ToolError when another process has the lock."""
    folder = Path(profile).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "openmanus.lock", timeout=0, thread_local=False)
        lock.acquire()
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
    return folder, lock
