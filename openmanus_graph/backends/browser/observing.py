"""Runs an action and describes the page afterwards, for the model."""

import asyncio
import time
from dataclasses import dataclass

from openmanus_graph.backends.browser.actions import ACTION_HANDLERS
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.declared import ACTIONS, Arguments
from openmanus_graph.backends.browser.launch import first_line
from openmanus_graph.backends.browser.navigation import stop_loading
from openmanus_graph.backends.browser.page import Snapshot, change_text, full_text
from openmanus_graph.backends.browser.page.pointer import DIALOG_OPENED
from openmanus_graph.backends.browser.page.text import NOTHING, page_head
from openmanus_graph.backends.browser.page.view import DIALOG_NOTE
from openmanus_graph.backends.browser.tab import Tab
from openmanus_graph.backends.files.text_file import size_text
from openmanus_graph.errors import ToolError, TrustedToolError

SETTLE_S = 8.0
LARGE_BYTES = 20 << 20
"""A document of this size keeps the browser busy for minutes, and is never shown whole."""
ALERT_S = 3.0
NOTICE_WAIT_S = 0.4
_MAX_TAB_CHANGES = 5
_SHOWN_URL = 100
_FEW_GARBLED = 5


@dataclass(frozen=True)
class ActionResult:
    """What the model reads of an action."""

    text: str
    failed: bool = False


async def perform(browser: BrowserSession, name: str, args: Arguments) -> ActionResult:
    """Run an action and take a snapshot of the page. On the browser's event loop.

    Raises:
        ToolError: It was not done, and why.
    """
    from playwright.async_api import Error

    async with browser.lock:
        acted_on, tabs = browser.current if browser.tabs else None, _tab_places(browser)
        try:
            replaced = await browser.ensure()
            if replaced and "index" in ACTIONS[name].needs:  # the element was on the old page
                return await _describe_replacement(browser, f"{name} was not done.")
            return await _run_action(browser, name, args, tabs)
        except ToolError as error:
            if await browser.recover():
                return await _describe_replacement(browser, f"{name} was cut off.")
            raise _with_notices(browser, error) from error
        except Error as error:
            if await browser.recover():
                return await _describe_replacement(
                    browser, f"{name} was cut off: {first_line(error)}"
                )
            if acted_on is not None and acted_on.id not in browser.tabs:
                closed = f"{name}: the page closed itself."
                return ActionResult(await _observe(browser, closed, tabs, whole=True))
            advice = "Look at the page with get_state."
            raise ToolError(f"{name} failed: {first_line(error)} {advice}") from error
        except TimeoutError as error:
            advice = "The page may be busy: wait, or load it again with refresh."
            raise _with_notices(
                browser, TrustedToolError(f"{name} took too long. {advice}")
            ) from error


def _with_notices(browser: BrowserSession, error: ToolError) -> ToolError:
    """Add the pending notices to an error.

    With notices, or with a page that the next request shows first, it is no trusted text any more.
    """
    notices = browser.notices.take()
    not_shown = (
        tab for tab in browser.tabs.values() if tab.last_snapshot is None and not tab.refused
    )
    if notices or any(tab.place.startswith("http") for tab in not_shown):
        return ToolError("\n".join([str(error), *notices]))
    return error


async def _describe_replacement(browser: BrowserSession, done: str) -> ActionResult:
    """Describe the new page after the browser or a page was replaced."""
    return ActionResult(await _observe(browser, done, {}, whole=True), failed=True)


async def _run_action(
    browser: BrowserSession, name: str, args: Arguments, tabs: dict[int, str]
) -> ActionResult:
    action = ACTIONS[name]
    if "index" in action.needs and not browser.current.has_content:
        raise TrustedToolError("The browser shows no page yet. Open one with go_to_url.")
    open_dialog = browser.dialogs.describe()
    if open_dialog and not action.in_dialog:
        raise ToolError(f"Nothing was done. {open_dialog}")
    done = await browser.dialogs.until(ACTION_HANDLERS[name](browser, args)) or ""
    if not action.looks:
        return ActionResult("\n".join([done, *browser.notices.take()]))
    return ActionResult(await _observe(browser, done, tabs, whole=action.shows_all))


async def _observe(browser: BrowserSession, done: str, tabs: dict[int, str], *, whole: bool) -> str:
    """Wait until the page is quiet and describe it, or what changed on it."""
    tab, snapshot = await _take_snapshot(browser)
    parts = [done.replace(DIALOG_OPENED, ""), *browser.notices.take()]
    if dialog := browser.dialogs.describe():
        return "\n".join(filter(None, (*parts, dialog)))
    parts += _tab_lines(browser, tabs)
    if tab is None or snapshot is None:
        return "\n".join(filter(None, (*parts, "No tab is open any more.")))
    parts += _document_notes(tab, snapshot)
    budget = browser.session.settings.browser.observation_tokens
    previous, tab.last_snapshot = tab.last_snapshot, snapshot
    if whole or previous is None or previous.document != snapshot.document:
        parts += [full_text(snapshot, budget), *_secret_names(browser, snapshot)]
    else:
        changed = change_text(previous, snapshot, budget)
        if len(parts) == 1 and changed == NOTHING:  # the effect may only come as a notice
            parts += await browser.notices.wait(NOTICE_WAIT_S)
        parts.append(changed)
    return "\n".join(filter(None, parts))


async def _take_snapshot(browser: BrowserSession) -> tuple[Tab | None, Snapshot | None]:
    """Wait until the current page is quiet and snapshot it; None while a dialog is open.

    Another tab may become the current one meanwhile.
    """
    from playwright.async_api import Error

    for _ in range(_MAX_TAB_CHANGES):
        if not browser.tabs and not await browser.connection.is_responsive():
            raise TrustedToolError("The browser has ended.")
        if not browser.tabs or browser.dialogs.describe():
            return None, None
        tab = browser.current
        try:
            note = await _settle(tab)
            await _wait_for_alert(browser, tab)
            await browser.downloads.wait()
            await browser.pending_tabs.wait()
            snapshot = await tab.view.look()
            await browser.remember()
        except Error:
            if tab.id in browser.tabs:
                raise
            continue  # it closed itself
        if tab.id in browser.tabs and browser.current is tab:
            if note and not tab.view.dialog_open and note != DIALOG_NOTE:
                browser.notices.add(note)
            return tab, snapshot
    raise TrustedToolError("The page keeps opening or closing tabs. Look again with get_state.")


async def _settle(tab: Tab) -> str:
    """Wait until a page is quiet; return a note if it is not, and give up one that is too large."""
    note = await tab.view.settle(SETTLE_S)
    if note and tab.size > LARGE_BYTES:
        await stop_loading(tab)
        note = f"The page is too large ({size_text(tab.size)}): its loading was stopped."
        tab.size = 0
    return note


async def _wait_for_alert(browser: BrowserSession, tab: Tab) -> None:
    """Wait until an alert, which is accepted automatically, is closed."""
    deadline = time.monotonic() + ALERT_S
    # The view has no event for it.
    while tab.view.dialog_open and not browser.dialogs.describe() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def _tab_places(browser: BrowserSession) -> dict[int, str]:
    return {tab.id: tab.place for tab in browser.tabs.values()}


def _tab_lines(browser: BrowserSession, before: dict[int, str]) -> list[str]:
    """List the tabs if any were opened or closed."""
    now = _tab_places(browser)
    if now.keys() == before.keys() or (len(now) == 1 and not before):
        return []
    lines: list[str] = []
    if closed_tabs := [str(tab) for tab in before if tab not in now]:
        lines.append(f"Closed: tab {', '.join(closed_tabs)}.")
    if len(now) == 1:
        lines.append(f"Now in {_tab_line(browser, browser.current).strip()}")
    elif now:
        lines += ["Tabs:", *(_tab_line(browser, tab) for tab in browser.tabs.values())]
    return lines


def _tab_line(browser: BrowserSession, tab: Tab) -> str:
    mark = " (current)" if tab is browser.current else ""
    return f"  tab {tab.id}{mark}: {tab.place[:_SHOWN_URL]}"


def _document_notes(tab: Tab, snapshot: Snapshot) -> list[str]:
    """Return notes on a document that the model sees for the first time."""
    if tab.last_snapshot is not None and tab.last_snapshot.document == snapshot.document:
        return []
    notes: list[str] = []
    if tab.status >= 400:
        notes.append(f"The server answered HTTP {tab.status}.")
    if tab.is_document:
        notes.append("This is a PDF: read it with extract_content.")
    elif tab.media_type.startswith("image/"):
        notes.append("This is a picture.")
    if _garbled(snapshot):
        notes.append(
            "Its text is garbled, for it declares a wrong charset: read it with fetch_page."
        )
    return notes


def _garbled(snapshot: Snapshot) -> bool:
    text = "".join(part for line in snapshot.lines for part in line.parts if isinstance(part, str))
    return text.count("\ufffd") > max(_FEW_GARBLED, len(text) // 50)


def _secret_names(browser: BrowserSession, snapshot: Snapshot) -> list[str]:
    names = browser.secrets.names_for(snapshot.url)
    if not names:
        return []
    typed = ", ".join(f"<secret>{name}</secret>" for name in names)
    return [f"Secrets of this site, typed by name with input_text: {typed}"]


async def state(browser: BrowserSession, budget_tokens: int) -> tuple[str, Snapshot | None]:
    """Describe briefly where the browser is and what changed since the last snapshot.

    Returns:
        The text and its snapshot: None if there is no page to look at now.
    """
    async with browser.lock:
        if not browser.tabs:
            return "", None
        tab = browser.current
        tabs = [_tab_line(browser, each) for each in browser.tabs.values()]
        parts = ["The browser now:", *(tabs if len(tabs) > 1 else [])]
        if dialog := browser.dialogs.describe():
            return "\n".join([*parts, dialog]), None
        snapshot = await tab.view.look()
        parts.append(page_head(snapshot))
        if tab.last_snapshot is not None and tab.last_snapshot.document != snapshot.document:
            parts.append("Another page has loaded since; see it with get_state.")
        elif tab.last_snapshot is not None:
            changed = change_text(tab.last_snapshot, snapshot, budget_tokens)
            parts += [] if changed == NOTHING else ["Changed since:", changed]
        return "\n".join(parts), snapshot
