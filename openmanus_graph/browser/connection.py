"""One browser context of a thread, and the guarded door that all its traffic goes through."""

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from openmanus_graph.browser.browsers import CLOSE_S, Shared, browsers
from openmanus_graph.browser.gate import Gate
from openmanus_graph.browser.launch import VIEWPORT, Launch
from openmanus_graph.browser.page import prepare_context
from openmanus_graph.browser.secrets import origin_of
from openmanus_graph.errors import OwnWordsError
from openmanus_graph.settings import BrowserSettings, Settings, SiteSecret
from openmanus_graph.web.guard import Guard
from openmanus_graph.web.proxy import BYPASS, GuardedProxy
from openmanus_graph.web.routes import parse_upstream

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

ALIVE_S = 5.0
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(eq=False)
class Connection:
    """What has to be closed when a thread's window is."""

    context: "BrowserContext"
    guard: Guard
    door: GuardedProxy | Gate
    """A proxy of ours; a browser elsewhere cannot reach it, and has a gate before its requests."""
    shared: Shared | None
    """None for a browser of its own, on a profile."""
    lock: FileLock | None = None
    pages: "list[Page]" = field(default_factory=list["Page"])
    """Tabs that were there from the beginning."""
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

    async def new_page(self) -> "Page":
        """Open a tab."""
        page = await self.context.new_page()
        if isinstance(self.door, Gate):
            await self.door.watch(page)
        return page

    async def close(self) -> None:
        """Let go of everything, whatever is left of it."""
        self.closed = True
        with contextlib.suppress(Exception):  # dead or dying: gone either way
            async with asyncio.timeout(CLOSE_S):
                await self.context.close()
        if self.shared is not None:
            browsers().leave(self.shared)
        else:
            await browsers().leave_profile()
        if self.lock is not None:
            await asyncio.to_thread(self.lock.release)
        await self.door.close()


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
    door = await _door(settings, launch)
    try:
        connection = await _connected(
            settings, launch, door, context_options(settings, door, login), fresh=fresh
        )
    except BaseException:
        await door.close()
        raise
    try:
        await _prepare(connection)
    except BaseException:
        await connection.close()
        raise
    return connection


def context_options(
    settings: Settings, door: GuardedProxy | Gate, login: SiteSecret | None
) -> dict[str, Any]:
    """Return what Playwright makes a context with."""
    open_doors = settings.browser.disable_security
    options: dict[str, Any] = {
        "viewport": VIEWPORT,
        "accept_downloads": True,
        "ignore_https_errors": open_doors,
        "bypass_csp": open_doors,
        # Behind a proxy they are guarded like everything else; no gate sees them.
        "service_workers": "block" if isinstance(door, Gate) else "allow",
    }
    if isinstance(door, GuardedProxy):
        options["proxy"] = {
            "server": door.server,
            "username": door.username,
            "password": door.password,
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
    door: GuardedProxy | Gate,
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
        return Connection(context, guard, door, None, lock, list(context.pages))
    context, shared = await browsers().open_context(launch, options, fresh=fresh)
    return Connection(context, guard, door, shared)


async def _door(settings: Settings, launch: Launch) -> GuardedProxy | Gate:
    if launch.remote and not _is_local(settings.browser):
        return Gate(Guard.of(settings))
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
    await context.grant_permissions([])  # pages are told no to everything, without a question
    await prepare_context(context)
    if isinstance(connection.door, Gate):
        await connection.door.stand(context)


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
