"""The browser session of one thread: its tabs, in a separate browser context.

It is a handle of the thread's session. All but `close` runs on the browser's event loop.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urljoin

from playwright.async_api import Error, Page

from openmanus_graph.backends.browser import kept_state
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.clipboard import Clipboard
from openmanus_graph.backends.browser.connection import Connection, open_connection
from openmanus_graph.backends.browser.kept_state import BrowserState
from openmanus_graph.backends.browser.page.view import PageView
from openmanus_graph.backends.browser.secrets import Secrets
from openmanus_graph.backends.browser.tab import (
    BLANK,
    Dialogs,
    Downloads,
    PendingNotices,
    PendingTabs,
    Tab,
)
from openmanus_graph.backends.web.own_pages import OwnPages
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.process import BackgroundTasks
from openmanus_graph.runtime.session import Session

MAX_TABS = 20
SHOWN_COPY_CHARS = 2000
CLOSE_PAGE_S = 5.0
CLOSE_S = 15.0
REMEMBER_S = 2.0
REOPEN_S = 15.0
LOCK_S = 3.0  # how long closing waits for an action that is being cancelled


class BrowserSession:
    """The tabs of one thread."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = asyncio.Lock()  # held during an action or a snapshot
        self.takeover: Callable[[], None] | None = None
        """Ends the takeover by a person, who has the lock; None while the agent has the browser."""
        self.hidden_texts = set[str]()
        """What people have typed here, which the model must not be shown; never stored."""
        self.tabs: dict[int, Tab] = {}
        self.notices = PendingNotices()
        self.background = BackgroundTasks()
        self.dialogs = Dialogs(self.notices.add, self.background)
        self.clipboard = Clipboard(self._on_copied)
        self.downloads = Downloads(session, self.notices.add, lambda: self.secrets)
        self.pending_tabs = PendingTabs()
        self._replacing = 0  # tabs that are about to get another page
        self.observed_place = ""  # where the browser was at the newest observation
        self._connection: Connection | None = None
        self._own: Connection | None = None
        """For pages that the agent made; None until there is one."""
        self._used_settings: tuple[Any, ...] = ()  # as `_launch_settings` returns them
        self._current = 0
        self._last_id = 0
        self._state = BrowserState()  # at the last snapshot, to open the browser with it again
        self._kept: BrowserState | None = None
        """The state in the thread's file; None if nothing is kept."""
        self._scratch: Path | None = None

    @property
    def secrets(self) -> Secrets:
        """The secrets of the current run, and what people have typed."""
        known, hidden = self.session.settings.browser.secrets, frozenset(self.hidden_texts)
        return self.session.cached((Secrets, len(hidden)), lambda: Secrets(known, hidden))

    @property
    def current(self) -> Tab:
        if not self.tabs:
            raise TrustedToolError("The browser shows no page yet. Open one with go_to_url.")
        return self.tabs[self._current]

    @property
    def view(self) -> PageView:
        return self.current.view

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            raise TrustedToolError("The browser is not open. Open a page with go_to_url.")
        return self._connection

    async def prepare(self, tab: Tab, address: str) -> None:
        """Check an address, and give the tab an empty page of its context unless it is in it.

        ToolError: The address is not valid or refused, or its context cannot be opened.
        """
        connection = self.connection
        if connection.guard.is_own(address):
            if self._own is None:
                self._own = await self._open_context(OwnPages.of(self.session))
            connection = self._own
        connection.guard.check(address)
        if tab.connection is not connection:
            await self._replace_page(tab, connection)

    async def _open_context(self, own: OwnPages | None) -> Connection:
        login = None if own else self.secrets.http_login()
        opened = await open_connection(self.session.settings, login, own=own)
        await self.clipboard.attach(opened.context)
        opened.context.on("page", partial(self._on_page_opened, opened))
        opened.context.on("dialog", self.dialogs.on_dialog)
        return opened

    async def ensure(self) -> bool:
        """Open the browser if it is not open, or reopen it after a crash.

        Return True if a page that the model knows was replaced by a new one. ToolError if it cannot
        be opened.
        """
        replaced = False
        has_ended = self._own is not None and not self._own.alive
        if self._connection is not None and (
            has_ended or not await self._connection.is_responsive()
        ):
            await self._reopen("The browser had ended and was opened again")
            replaced = True
        if self._connection is not None and self._used_settings != self._launch_settings():
            what, how = "settings", ""
            if self._used_settings[0].profile != self.session.settings.browser.profile:
                # Logins never leave a profile, and none are put into one.
                what, how = "profile", " with other logins"
                self._state = replace(self._state, cookies=(), local_storage={})
            await self._reopen(f"The browser's {what} changed, and it was opened again{how}")
            replaced = True
        if self._connection is None:
            replaced = await self._open_kept()
        if not self.tabs:
            await self.new_tab()
        if self.current.crashed:
            await self._load_again(self.current)
            replaced = True
        return replaced

    async def new_tab(self) -> Tab:
        if len(self.tabs) >= MAX_TABS:
            raise TrustedToolError(f"There are {MAX_TABS} tabs already. Close one with close_tab.")
        page = await self.connection.new_page()
        tab = self._tab_of(page) or self._add(page, self.connection)
        self._current = tab.id
        return tab

    def switch(self, tab_id: int) -> Tab:
        if tab_id not in self.tabs:
            known = ", ".join(map(str, self.tabs))
            raise TrustedToolError(f"There is no tab {tab_id}. Available: {known or 'none'}.")
        self._current = tab_id
        return self.tabs[tab_id]

    async def remember(self, *, new_addresses: bool = True) -> None:
        """Record tabs, cookies and local storage, to open the browser with them again.

        It is called after each snapshot, because a process may be killed. It takes milliseconds.
        """
        for tab in self.tabs.values() if new_addresses else ():
            if tab.current_url.startswith(("http://", "https://")):
                tab.url = tab.current_url
        if not self.tabs:
            return
        # When a browser dies, its pages are reported closed first.
        open_tabs = [tab for tab in self.tabs.values() if tab.url != BLANK]
        current = open_tabs.index(self.current) if self.current in open_tabs else -1
        typed = Secrets((), self.hidden_texts)
        addresses = (  # of a page with a person's words in its address, only the site is stored
            tab.url if typed.redacted(tab.url) == tab.url else urljoin(tab.url, "/")
            for tab in open_tabs
        )
        state = replace(self._state, tabs=tuple(addresses), current=current)
        with contextlib.suppress(Error, ToolError):  # a page may have stopped answering
            cookies: Any = await self.connection.context.cookies()  # typed dicts
            state = replace(state, cookies=tuple(cookies))
            known = dict(self._state.local_storage)
            found = None
            if not self.current.is_own:
                found = await self.current.view.local_storage(kept_state.MAX_STORED_CHARS)
            if found is not None:
                origin, stored = found
                known.pop(origin, None)
                known |= {origin: stored} if stored else {}
            state = replace(state, local_storage=kept_state.newest_stored(known))
        self._state = state
        file = kept_state.state_file(self.session)
        if file is not None and state != self._kept:
            saved = await asyncio.to_thread(
                kept_state.save_state, self.session.workspace, file, state
            )
            self._kept = state if saved else None

    async def recover(self) -> bool:
        """After an error: reopen the browser or crashed pages. False if nothing had crashed."""
        if self._connection is None:
            return False
        if not await self._connection.is_responsive():
            await self._reopen("The browser had ended and was opened again")
            return True
        crashed = [tab for tab in self.tabs.values() if tab.crashed]
        for tab in crashed:
            await self._load_again(tab)
        return bool(crashed)

    def scratch(self) -> Path:
        """Create a temporary folder that lasts as long as the session. Blocks."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="openmanus-browser-"))
        return Path(tempfile.mkdtemp(dir=self._scratch))

    def handle_state(self) -> str:
        """Describe what closing would lose, to be stored with the checkpoint."""
        # What a person is typing just now may be part of an address, and is not known yet.
        known = (tab.url if self.takeover else tab.current_url for tab in self.tabs.values())
        urls = [url for url in known if url != BLANK]
        return self.secrets.redacted(f"browser tabs: {', '.join(urls)}") if urls else ""

    def close(self) -> None:
        with contextlib.suppress(Exception):  # never raises: the browser may be dead already
            browser_loop.call(self._close_after_action, CLOSE_S)

    async def _close_after_action(self) -> None:
        # The address that a page has by now may hold a part of what a person is just typing.
        typing = self.takeover is not None
        if self.takeover is not None:
            self.takeover()
        locked = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOCK_S):
                locked = await self.lock.acquire()
        with contextlib.suppress(Exception):  # what the pages have done since the last action
            async with asyncio.timeout(REMEMBER_S):
                await self.remember(new_addresses=not typing)
        await self._close_all()
        if locked:
            self.lock.release()

    async def _close_all(self) -> None:
        connections = (self._own, self._connection)
        self._own = self._connection = None
        self.dialogs.clear()
        self.downloads.stop()
        self.background.cancel()
        for tab in list(self.tabs.values()):
            tab.view.close()
        self.tabs.clear()
        for connection in filter(None, connections):
            await connection.close()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def _launch_settings(self) -> tuple[object, ...]:
        settings, login = self.session.settings, self.secrets.http_login()
        return replace(settings.browser, secrets=()), login, settings.allow_hosts, settings.web

    async def _open(self) -> None:
        self._used_settings = self._launch_settings()
        self._connection = await self._open_context(None)
        for page in self._connection.context.pages:  # a profile opens with some
            self._add(page, self._connection)

    async def _open_kept(self) -> bool:
        """Open the browser with what an earlier process kept; return whether it had tabs."""
        file = kept_state.state_file(self.session)
        if file is not None:
            self._kept = await asyncio.to_thread(kept_state.load_state, file)
            self._state = self._kept or BrowserState()
            if self._kept is None:
                self.notices.add(kept_state.UNREADABLE)
        await self._open()
        if self._state == BrowserState():
            return False
        await self._restore("The browser was opened again")
        return bool(self._state.tabs)

    async def _reopen(self, why: str) -> None:
        await self._close_all()
        await self._open()
        await self._restore(why)

    async def _restore(self, why: str) -> None:
        """Give a new browser the state of the last one, and add notices of what is lost."""
        restored = await self._state.restore_storage(self.connection.context)
        if restored is False:
            await self._close_all()  # it may have taken some
            await self._open()
            self._state = replace(self._state, cookies=(), local_storage={})
        state, place = self._state, ""
        tabs = [await self.new_tab() for _ in state.tabs]
        failures = await asyncio.gather(*map(self._goto_again, tabs, state.tabs))
        reasons = self._refusals()
        for url, failure in zip(state.tabs, failures, strict=True):
            if failure:
                self.notices.add(f"{url} was not opened again. {reasons.get(url, failure)}")
        opened = [not failure for failure in failures]
        if any(opened):
            current = tabs[state.current] if opened[state.current] else tabs[opened.index(True)]
            self._current = current.id
            place = f" at {current.current_url}"
        how = f"{why} with its cookies{place}." if restored else f"{why}{place}."
        lost = kept_state.STORAGE_LOST if restored is False else ""
        if state.tabs or lost:
            typed = "What was typed is lost; the old indices are no longer valid."
            self.notices.add(" ".join(filter(None, (how, lost, typed))))

    def _refusals(self) -> dict[str, str]:
        """Return why the guard refused addresses since the last look."""
        connections = filter(None, (self._own, self._connection))
        found = (one for connection in connections for one in connection.egress.take_refusals())
        return {one.url: one.reason for one in found if one.by_guard}

    async def _goto_again(self, tab: Tab, url: str) -> str:
        """Open an earlier address if the guard allows it; else close the tab and say why not."""
        why = "It did not load."
        try:
            await self.prepare(tab, url)
            await tab.page.goto(url, wait_until="commit", timeout=REOPEN_S * 1000)
            if not tab.refused:
                return ""
        except Error:
            pass
        except ToolError as error:
            why = str(error)
        self.tabs.pop(tab.id, None)
        tab.view.close()
        await _close_page(tab.page)
        return why

    async def _load_again(self, tab: Tab) -> None:
        await self._replace_page(tab, tab.connection)
        with contextlib.suppress(Error):
            await tab.page.goto(tab.url, wait_until="commit", timeout=REOPEN_S * 1000)
        self.notices.add(f"The page had crashed and was loaded again: {tab.url}")

    async def _replace_page(self, tab: Tab, connection: Connection) -> None:
        old, old_view = tab.page, tab.view
        self._replacing += 1
        try:
            page = await connection.new_page()
        finally:
            self._replacing -= 1
        added = self._tab_of(page) or self._add(page, connection)
        del self.tabs[added.id]
        tab.page, tab.view, tab.connection = page, added.view, connection
        tab.crashed, tab.last_snapshot = False, None
        self._current = tab.id
        old_view.close()
        await _close_page(old)

    def _on_copied(self, text: str) -> None:
        if self.takeover is not None:  # a person did it
            return
        more = f"… ({len(text)} characters)" if len(text) > SHOWN_COPY_CHARS else ""
        self.notices.add(f'Copied, for send_keys Control+V: "{text[:SHOWN_COPY_CHARS]}"{more}')

    def _on_page_opened(self, connection: Connection, page: Page) -> None:
        self.pending_tabs.tab_opened()
        if len(self.tabs) >= MAX_TABS + self._replacing:
            self.notices.add("Further tabs that the page opened were closed at once.")
            self.background.spawn(page.close())
            return
        self._add(page, connection)

    def _add(self, page: Page, connection: Connection) -> Tab:
        self._last_id += 1
        tab = Tab(self._last_id, page, PageView(page), connection, opener=self._current)
        self.tabs[tab.id] = tab
        self._subscribe(page, connection)
        # A tab that opens while no action runs does not become the current one.
        if self.lock.locked() or len(self.tabs) == 1:
            self._current = tab.id
        return tab

    def _subscribe(self, page: Page, connection: Connection) -> None:
        """Listen to a page, once: the tab that has it may be another one later."""

        def tell(event: str, handle: Callable[[Tab, Any], object]) -> None:
            def on_event(about: Any) -> None:
                if tab := self._tab_of(page):
                    handle(tab, about)

            page.on(cast("Any", event), on_event)

        tell("response", Tab.on_response)
        tell("framenavigated", Tab.on_frame_navigated)
        tell("download", lambda tab, _: tab.became_download())
        tell("crash", lambda tab, _: setattr(tab, "crashed", True))
        tell("filechooser", self._on_file_chooser)
        page.on("download", self.downloads.begin)
        page.on("close", self._on_page_closed)
        if connection.guard.own is not None:
            page.on("pageerror", lambda error: self.notices.add(f"Script error: {error.message}"))
        self.background.spawn(self.pending_tabs.watch(page))

    def _tab_of(self, page: Page) -> Tab | None:
        return next((tab for tab in self.tabs.values() if tab.page == page), None)

    def _on_page_closed(self, page: Page) -> None:
        self.dialogs.on_page_closed(page)
        tab = self._tab_of(page)  # none if the page was replaced: its tab lives on
        if tab is None or self._connection is None or not self._connection.alive:
            return
        tab.view.close()
        self.tabs.pop(tab.id, None)
        if self.tabs and self._current == tab.id:
            self._current = tab.opener if tab.opener in self.tabs else next(reversed(self.tabs))

    def _on_file_chooser(self, tab: Tab, chooser: Any) -> None:
        if tab.uploading:
            return
        tab.chooser = chooser
        self.notices.add(
            "The page asks for a file. Give it with upload_file and text=PATH in the workspace; "
            "no index is needed."
        )


async def _close_page(page: Page) -> None:
    with contextlib.suppress(Error, TimeoutError):  # a crashed page may not report that it closed
        async with asyncio.timeout(CLOSE_PAGE_S):
            await page.close()
