"""What one thread has open in the browser: a context of its own with tabs, behind a guarded proxy.

A handle of the thread's session. Everything but `close` runs on the engine's loop.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmanus_graph.browser.arrivals import Arrivals
from openmanus_graph.browser.background import Background
from openmanus_graph.browser.connection import Connection, open_connection
from openmanus_graph.browser.dialogs import Dialogs
from openmanus_graph.browser.downloads import Downloads
from openmanus_graph.browser.engine import engine
from openmanus_graph.browser.news import News
from openmanus_graph.browser.page import PageView
from openmanus_graph.browser.secrets import Secrets
from openmanus_graph.browser.tab import BLANK, Tab
from openmanus_graph.errors import OwnWordsError
from openmanus_graph.sessions import Session

if TYPE_CHECKING:
    from playwright.async_api import Download, Frame, Page

MAX_TABS = 20
CLOSE_S = 15.0
REOPEN_S = 15.0
END_S = 3.0
"""How long the end waits for an action that is being cancelled."""


class Window:
    """The tabs of one thread."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = asyncio.Lock()
        """Held by whoever acts or looks."""
        self.tabs: dict[int, Tab] = {}
        self.news = News()
        self.background = Background()
        self.dialogs = Dialogs(self.news.tell, self.background)
        self.downloads = Downloads(session, self.news.tell, lambda: self.secrets)
        self._connection: Connection | None = None
        self._opened_for: tuple[object, ...] = ()
        """The settings that the browser was opened with."""
        self._current = 0
        self._last_id = 0
        self.arrivals = Arrivals()
        self._places: list[str] = []
        """Where the tabs were at the last look, the current one last."""
        self._cookies: Sequence[Any] = ()  # as Playwright gives them
        self._scratch: Path | None = None

    @property
    def secrets(self) -> Secrets:
        """The secrets of the current run."""
        known = self.session.settings.browser.secrets
        return self.session.cached(Secrets, lambda: Secrets(known))

    @property
    def current(self) -> Tab:
        """The tab that actions go to. ToolError when nothing is open."""
        if not self.tabs:
            raise OwnWordsError("The browser shows no page yet. Open one with go_to_url.")
        return self.tabs[self._current]

    @property
    def connection(self) -> Connection:
        """The way to the browser. Only while it is open."""
        if self._connection is None:
            raise OwnWordsError("The browser is not open. Open a page with go_to_url.")
        return self._connection

    async def ensure(self) -> bool:
        """Open the browser if it is not, and again if it has died.

        Returns:
            Whether the page is a new one in place of one that the model knows.

        Raises:
            ToolError: It cannot be opened.
        """
        replaced = False
        if self._connection is not None and not await self._connection.answers():
            await self._reopen("The browser had ended and was opened again")
            replaced = True
        if self._connection is not None and self._opened_for != self._wanted():
            await self._reopen("The browser's settings changed, and it was opened again")
            replaced = True
        if self._connection is None:
            await self._open()
        if not self.tabs:
            await self.new_tab()
        if self.current.crashed:
            await self._replace_page(self.current)
            replaced = True
        return replaced

    async def new_tab(self) -> Tab:
        """Open an empty tab and make it the current one."""
        if len(self.tabs) >= MAX_TABS:
            raise OwnWordsError(f"There are {MAX_TABS} tabs already. Close one with close_tab.")
        page = await self.connection.new_page()
        tab = self._tab_of(page) or self._add(page)
        self._current = tab.id
        return tab

    def switch(self, tab_id: int) -> Tab:
        """Make another tab the current one. ToolError when there is none of that id."""
        if tab_id not in self.tabs:
            known = ", ".join(map(str, self.tabs))
            raise OwnWordsError(f"There is no tab {tab_id}. There are: {known or 'none'}.")
        self._current = tab_id
        return self.tabs[tab_id]

    async def remember(self) -> None:
        """Keep what is needed to go on after the browser has died."""
        from playwright.async_api import Error

        for tab in self.tabs.values():
            if tab.place.startswith(("http://", "https://")):
                tab.url = tab.place
        if not self.tabs:
            return
        # When a browser dies, its pages are reported closed first.
        self._places = [tab.url for tab in self.tabs.values() if tab is not self.current]
        self._places.append(self.current.url)
        with contextlib.suppress(Error):
            self._cookies = await self.connection.context.cookies()

    async def recover(self) -> bool:
        """After an error: replace what has died. False if everything is alive."""
        if self._connection is None:
            return False
        if not await self._connection.answers():
            await self._reopen("The browser had ended and was opened again")
            return True
        dead = [tab for tab in self.tabs.values() if tab.crashed]
        for tab in dead:
            await self._replace_page(tab)
        return bool(dead)

    def scratch(self) -> Path:
        """Return a new folder for files that a page may still be reading. Blocks."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="openmanus-browser-"))
        return Path(tempfile.mkdtemp(dir=self._scratch))

    def held(self) -> str:
        """Say what would be lost by closing; it is kept with the checkpoint."""
        places = [tab.place for tab in self.tabs.values() if tab.place != BLANK]
        return self.secrets.redacted(f"browser tabs: {', '.join(places)}") if places else ""

    def close(self) -> None:
        """Let go of the context, the proxy and the browser."""
        with contextlib.suppress(Exception):  # never raises: the browser may be dead already
            engine.call(self._end, CLOSE_S)

    async def _end(self) -> None:
        held = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                held = await self.lock.acquire()
        await self._shut()
        if held:
            self.lock.release()

    async def _shut(self) -> None:
        """Close everything; the window can be opened again."""
        connection, self._connection = self._connection, None
        self.dialogs.forget()
        self.downloads.stop()
        self.background.stop()
        for tab in list(self.tabs.values()):
            tab.view.close()
        self.tabs.clear()
        if connection is not None:
            await connection.close()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def _wanted(self) -> tuple[object, ...]:
        settings, login = self.session.settings, self.secrets.login()
        return replace(settings.browser, secrets=()), login, settings.allow_hosts, settings.web

    async def _open(self) -> None:
        self._opened_for = self._wanted()
        self._connection = await open_connection(self.session.settings, self.secrets.login())
        context = self._connection.context
        context.on("page", self._opened)
        context.on("dialog", self.dialogs.seen)
        for page in self._connection.pages:
            self._add(page)

    async def _reopen(self, why: str) -> None:
        """Open a new browser and go where the old one was."""
        places = [place for place in dict.fromkeys(self._places) if place != BLANK]
        await self._shut()
        await self._open()
        with contextlib.suppress(Exception):  # a cookie it does not take back is only lost
            await self.connection.context.add_cookies(list(self._cookies))
        for place in places:
            await self._load(await self.new_tab(), place)
        where = f" at {places[-1]}" if places else ""
        self.news.tell(
            f"{why}{where}. What was typed is lost; the old indices are no longer valid."
        )

    async def _replace_page(self, tab: Tab) -> None:
        """Give a crashed tab a new page at the same address."""
        from playwright.async_api import Error

        old, old_view = tab.page, tab.view
        page = await self.connection.new_page()
        duplicate = self._tab_of(page)
        if duplicate is not None:
            del self.tabs[duplicate.id]
            duplicate.view.close()
        tab.page, tab.view, tab.crashed, tab.seen = page, PageView(page), False, None
        self._listen(tab)
        self._current = tab.id
        old_view.close()
        with contextlib.suppress(Error):
            await old.close()
        await self._load(tab, tab.url)
        self.news.tell(f"The page had crashed and was loaded again: {tab.url}")

    async def _load(self, tab: Tab, url: str) -> None:
        from playwright.async_api import Error

        with contextlib.suppress(Error):  # the model sees where it is, whatever comes of this
            await tab.page.goto(url, wait_until="commit", timeout=REOPEN_S * 1000)

    def _opened(self, page: "Page") -> None:
        """Take a tab that was opened, by us or by a page."""
        self.arrivals.arrived()
        if len(self.tabs) >= MAX_TABS:
            self.news.tell("Further tabs that the page opened were closed at once.")
            self.background.keep(page.close())
            return
        self._add(page)

    def _add(self, page: "Page") -> Tab:
        self._last_id += 1
        tab = Tab(self._last_id, page, PageView(page), opener=self._current)
        self.tabs[tab.id] = tab
        self._listen(tab)
        if self.lock.locked() or len(self.tabs) == 1:  # else nobody acted, and it may wait
            self._current = tab.id
        return tab

    def _listen(self, tab: Tab) -> None:
        page = tab.page
        page.on("response", tab.answered)
        page.on("framenavigated", lambda frame: _arrived(tab, page, frame))
        page.on("download", lambda download: self._downloads(tab, download))
        page.on("crash", lambda _: tab.crash())
        page.on("close", lambda _: self._closed(tab, page))
        page.on("filechooser", lambda chooser: self._wants_file(tab, chooser))
        self.background.keep(self.arrivals.watch(page))

    def _downloads(self, tab: Tab, download: "Download") -> None:
        tab.stay()
        self.downloads.begin(download)

    def _tab_of(self, page: "Page") -> Tab | None:
        return next((tab for tab in self.tabs.values() if tab.page == page), None)

    def _closed(self, tab: Tab, page: "Page") -> None:
        self.dialogs.forget_page(page)
        # A crashed page that was replaced is closed as well, and its tab lives on.
        if tab.page != page or self._connection is None or not self._connection.alive:
            return
        tab.view.close()
        self.tabs.pop(tab.id, None)
        if self.tabs and self._current == tab.id:
            self._current = tab.opener if tab.opener in self.tabs else next(reversed(self.tabs))

    def _wants_file(self, tab: Tab, chooser: Any) -> None:
        if tab.uploading:
            return
        tab.chooser = chooser
        self.news.tell(
            "The page asks for a file. Give it with upload_file and text=PATH in the workspace; "
            "no index is needed."
        )


def _arrived(tab: Tab, page: "Page", frame: "Frame") -> None:
    if frame == page.main_frame:
        tab.arrive()
