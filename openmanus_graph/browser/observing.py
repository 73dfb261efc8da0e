"""From an action to what the model reads of it."""

import asyncio
import time
from dataclasses import dataclass

from openmanus_graph.browser.actions import RUNS
from openmanus_graph.browser.declared import ACTIONS, Arguments
from openmanus_graph.browser.launch import first_line
from openmanus_graph.browser.navigation import stop_loading
from openmanus_graph.browser.page import Snapshot, change_text, full_text
from openmanus_graph.browser.page.change import NOTHING
from openmanus_graph.browser.page.pointer import DIALOG_OPENED
from openmanus_graph.browser.page.text import page_head
from openmanus_graph.browser.page.view import DIALOG_NOTE
from openmanus_graph.browser.tab import Tab
from openmanus_graph.browser.window import Window
from openmanus_graph.errors import OwnWordsError, ToolError
from openmanus_graph.files.text_file import size_text

SETTLE_S = 8.0
LARGE_BYTES = 20 << 20
"""A document of this size keeps the browser busy for minutes, and is never shown whole."""
ALERT_S = 3.0
NEWS_S = 0.4
_TABS_PASSED = 5
_SHOWN_URL = 100
_FEW_GARBLED = 5


@dataclass(frozen=True)
class Seen:
    """What an action came to."""

    text: str
    failed: bool = False


async def perform(window: Window, name: str, given: Arguments) -> Seen:
    """Do an action and look at the page. On the engine's loop.

    Raises:
        ToolError: It was not done, and why.
    """
    from playwright.async_api import Error

    async with window.lock:
        acted_on, tabs = window.current if window.tabs else None, _tab_places(window)
        try:
            replaced = await window.ensure()
            if replaced and "index" in ACTIONS[name].needs:  # it meant an element that is gone
                return await _lost(window, f"{name} was not done.")
            return await _performed(window, name, given, tabs)
        except ToolError as error:
            if await window.recover():
                return await _lost(window, f"{name} was cut off.")
            raise _told(window, error) from error
        except Error as error:
            if await window.recover():
                return await _lost(window, f"{name} was cut off: {first_line(error)}")
            if acted_on is not None and acted_on.id not in window.tabs:
                closed = f"{name}: the page closed itself."
                return Seen(await _observed(window, closed, tabs, whole=True))
            advice = "Look at the page with get_state."
            raise ToolError(f"{name} failed: {first_line(error)} {advice}") from error
        except TimeoutError as error:
            advice = "The page may be busy: wait, or load it again with refresh."
            raise _told(window, OwnWordsError(f"{name} took too long. {advice}")) from error


def _told(window: Window, error: ToolError) -> ToolError:
    """Add what the page has to tell; then, or if a page is open unseen, it is not all ours."""
    news = window.news.take()
    unseen = (tab for tab in window.tabs.values() if tab.seen is None and not tab.refused)
    if news or any(tab.place.startswith("http") for tab in unseen):  # the next request shows it
        return ToolError("\n".join([str(error), *news]))
    return error


async def _lost(window: Window, said: str) -> Seen:
    """Show what there is now that something had to be replaced."""
    return Seen(await _observed(window, said, {}, whole=True), failed=True)


async def _performed(window: Window, name: str, given: Arguments, tabs: dict[int, str]) -> Seen:
    action = ACTIONS[name]
    if "index" in action.needs and not window.current.shows:
        raise OwnWordsError("The browser shows no page yet. Open one with go_to_url.")
    open_dialog = window.dialogs.describe()
    if open_dialog and not action.in_dialog:
        raise ToolError(f"Nothing was done. {open_dialog}")
    said = await window.dialogs.until(RUNS[name](window, given)) or ""
    if not action.looks:
        return Seen("\n".join([said, *window.news.take()]))
    return Seen(await _observed(window, said, tabs, whole=action.shows_all))


async def _observed(window: Window, said: str, tabs: dict[int, str], *, whole: bool) -> str:
    """Wait for the page, look, and say what there is to say."""
    tab, snapshot = await _looked(window)
    parts = [said.replace(DIALOG_OPENED, ""), *window.news.take()]
    if dialog := window.dialogs.describe():
        return "\n".join(filter(None, (*parts, dialog)))
    parts += _tab_lines(window, tabs)
    if tab is None or snapshot is None:
        return "\n".join(filter(None, (*parts, "No tab is open any more.")))
    parts += _document_notes(tab, snapshot)
    budget = window.session.settings.browser.observation_tokens
    known, tab.seen = tab.seen, snapshot
    if whole or known is None or known.document != snapshot.document:
        parts += [full_text(snapshot, budget), *_secret_names(window, snapshot)]
    else:
        changed = change_text(known, snapshot, budget)
        if len(parts) == 1 and changed == NOTHING:  # it may be something one cannot see
            parts += await window.news.wait(NEWS_S)
        parts.append(changed)
    return "\n".join(filter(None, parts))


async def _looked(window: Window) -> tuple[Tab | None, Snapshot | None]:
    """Wait until the current page is quiet and look at it; nothing to see while a dialog is open.

    Another tab may become the current one meanwhile.
    """
    from playwright.async_api import Error

    for _ in range(_TABS_PASSED):
        if not window.tabs and not await window.connection.answers():
            raise OwnWordsError("The browser has ended.")
        if not window.tabs or window.dialogs.describe():
            return None, None
        tab = window.current
        try:
            note = await _settled(tab)
            await _alert_gone(window, tab)
            await window.downloads.wait()
            await window.arrivals.wait()
            snapshot = await tab.view.look()
            await window.remember()
        except Error:
            if tab.id in window.tabs:
                raise
            continue  # it closed itself
        if tab.id in window.tabs and window.current is tab:
            if note and not tab.view.dialog_open and note != DIALOG_NOTE:
                window.news.tell(note)
            return tab, snapshot
    raise OwnWordsError("The page keeps opening or closing tabs. Look again with get_state.")


async def _settled(tab: Tab) -> str:
    """Wait until a page is quiet; return a note if it is not, and give up one that is too large."""
    note = await tab.view.settle(SETTLE_S)
    if note and tab.size > LARGE_BYTES:
        await stop_loading(tab)
        note = f"The page is too large ({size_text(tab.size)}): its loading was stopped."
        tab.size = 0
    return note


async def _alert_gone(window: Window, tab: Tab) -> None:
    """Wait for a dialog that answers itself."""
    ends = time.monotonic() + ALERT_S
    # The view has no event for it.
    while tab.view.dialog_open and not window.dialogs.describe() and time.monotonic() < ends:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def _tab_places(window: Window) -> dict[int, str]:
    return {tab.id: tab.place for tab in window.tabs.values()}


def _tab_lines(window: Window, before: dict[int, str]) -> list[str]:
    """List the tabs when some came or went."""
    now = _tab_places(window)
    if now.keys() == before.keys() or (len(now) == 1 and not before):
        return []
    lines: list[str] = []
    if gone := [str(tab) for tab in before if tab not in now]:
        lines.append(f"Closed: tab {', '.join(gone)}.")
    if len(now) == 1:
        lines.append(f"Now in {_tab_line(window, window.current).strip()}")
    elif now:
        lines += ["Tabs:", *(_tab_line(window, tab) for tab in window.tabs.values())]
    return lines


def _tab_line(window: Window, tab: Tab) -> str:
    mark = " (current)" if tab is window.current else ""
    return f"  tab {tab.id}{mark}: {tab.place[:_SHOWN_URL]}"


def _document_notes(tab: Tab, snapshot: Snapshot) -> list[str]:
    """Say what is particular about a document that the model sees for the first time."""
    if tab.seen is not None and tab.seen.document == snapshot.document:
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


def _secret_names(window: Window, snapshot: Snapshot) -> list[str]:
    names = window.secrets.names_for(snapshot.url)
    if not names:
        return []
    typed = ", ".join(f"<secret>{name}</secret>" for name in names)
    return [f"Secrets of this site, typed by name with input_text: {typed}"]


async def state(window: Window, budget_tokens: int) -> tuple[str, Snapshot | None]:
    """Say in short where the browser is and what changed there by itself since the last look.

    Returns:
        The text, and the look it rests on: None if there is nothing to look at now.
    """
    async with window.lock:
        if not window.tabs:
            return "", None
        tab = window.current
        tabs = [_tab_line(window, each) for each in window.tabs.values()]
        parts = ["The browser now:", *(tabs if len(tabs) > 1 else [])]
        if dialog := window.dialogs.describe():
            return "\n".join([*parts, dialog]), None
        snapshot = await tab.view.look()
        parts.append(page_head(snapshot))
        if tab.seen is not None and tab.seen.document != snapshot.document:
            parts.append("Another page has loaded since; see it with get_state.")
        elif tab.seen is not None:
            changed = change_text(tab.seen, snapshot, budget_tokens)
            parts += [] if changed == NOTHING else ["Changed since:", changed]
        return "\n".join(parts), snapshot
