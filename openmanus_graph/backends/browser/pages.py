"""Goes to pages, and describes them: after an action, and in each request to the model."""

import asyncio
import base64
import contextlib
import io
import re
import time
from typing import Literal
from urllib.parse import urljoin, urlsplit

from playwright.async_api import Error, Response

from openmanus_graph.backends.browser.action_specs import HANDLE
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import (
    ERROR_CODE,
    ERROR_REASONS,
    browser_loop,
    first_line,
)
from openmanus_graph.backends.browser.page import text as page_text
from openmanus_graph.backends.browser.page.snapshot import Element, Snapshot
from openmanus_graph.backends.browser.page.view import DIALOG_NOTE, PageView
from openmanus_graph.backends.browser.tab import BLANK, Tab
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.own_pages import workspace_url
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.open_beneath import size_text
from openmanus_graph.safety.urls import begins_with_file
from openmanus_graph.state import addresses

RESPONSE_S = 30.0  # timeout for the first bytes of a response
_ADDRESS = re.compile(
    r"(//)?(?P<host>[^\s/?#:@\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?([/?#].*)?"
)
_INTERRUPTED = "interrupted by another navigation"
_SHOWN_ADDRESS_CHARS = 200
_BROWSERS_OWN = "//content-autofill.googleapis.com"
"""Chromium asks it about forms, whatever the page."""
_NO_TUNNEL = "ERR_TUNNEL_CONNECTION_FAILED"


async def go_to(browser: BrowserSession, tab: Tab, url: str) -> str:
    """Go to an address; ToolError if it was not opened. Return a sentence if it is a file."""
    if browser.secrets.mentioned(url):
        raise TrustedToolError(
            "Secrets are never put into addresses. Type them into a field instead."
        )
    workspace, guard, shown = browser.session.workspace, browser.connection.guard, tab.current_url
    address = await asyncio.to_thread(complete_address, url, guard, shown, workspace)
    await browser.prepare(tab, address)
    tab.connection.egress.take_refusals()  # drop those of earlier pages
    tab.navigation_started()
    try:
        response = await browser.dialogs.until(_goto(tab, address))
    except Error as error:
        if "Download is starting" in error.message:
            tab.file = address
            return f"{address} is a file, not a page: extract_content reads documents."
        if "Timeout" in error.message:
            await stop_loading(tab)
        tab.navigation_committed()
        raise _to_tool_error(browser, address, error) from error
    if response is not None and response.status == 401:
        # Chromium itself refuses a 401 that asks for a password, its headless shell shows it.
        scheme = response.headers.get("www-authenticate", "").partition(" ")[0]
        if scheme.lower() in ("basic", "digest"):
            raise _not_opened(address, ERROR_REASONS["ERR_INVALID_AUTH_CREDENTIALS"])
    # The refused address may be one that the server redirected to.
    if tab.refused and (refusal := _take_refusal(browser, address, tab.page.url)):
        raise refusal
    is_file = address.startswith(f"http://{addresses.WORKSPACE_HOST}/") and address != url.strip()
    return f"The file of the workspace is shown at {address}" if is_file else ""


def complete_address(url: str, guard: Guard, page_url: str, workspace: Workspace) -> str:
    """Complete an address that was written without `https://`, or as a file of the workspace.

    Blocks.
    """
    text = url.strip()
    is_file = text.lower().startswith("file:")
    if addresses.has_scheme(text) and not is_file:
        return text
    if (is_file or addresses.is_path(text)) and (found := workspace_url(workspace, text)):
        return found
    if addresses.is_path(text) and addresses.has_scheme(page_url) and page_url != BLANK:
        raise ToolError(
            f"{text[:_SHOWN_ADDRESS_CHARS]!r} is not a whole address. On the site of this page it "
            f"is {urljoin(page_url, text)[:_SHOWN_ADDRESS_CHARS]}"
        )
    match = _ADDRESS.fullmatch(text)
    host = match["host"].strip("[].") if match else ""
    number = addresses.literal_ip(host) is not None
    port = int(match["port"] or 80) if match else 80
    if number or (host and (addresses.is_own_host(host.lower()) or guard.allows(host, port))):
        return f"http://{text.lstrip('/')}"  # local addresses rarely have TLS
    if "." in host and not (is_file or begins_with_file(text)):
        return addresses.with_scheme(text)
    if not is_file and (found := workspace_url(workspace, text)):
        return found
    raise TrustedToolError(
        f"{text[:_SHOWN_ADDRESS_CHARS]!r} is neither a web address nor a file of the workspace. "
        "Give a whole one, such as https://example.com/, or find the page with web_search."
    )


async def move_in_history(
    browser: BrowserSession, tab: Tab, direction: Literal["back", "reload"]
) -> str:
    page, before, back = tab.page, tab.page.url, direction == "back"
    navigation = page.go_back if back else page.reload
    try:
        response = await browser.dialogs.until(navigation(wait_until="commit"))
    except Error as error:
        failure = _to_tool_error(browser, before, error)
        raise (ToolError(str(failure)) if isinstance(failure, ToolError) else failure) from error
    if back and response is None and tab.page.url == before:
        if browser.dialogs.describe():
            return "Going back."
        raise TrustedToolError("There is no page to go back to in this tab.")
    return "Went back." if back else "Loaded the page again."


async def _goto(tab: Tab, address: str) -> Response | None:
    """Navigate, and retry when the error page of an earlier try interrupts it."""
    for is_last in (False, False, True):
        try:
            return await tab.page.goto(address, wait_until="commit", timeout=RESPONSE_S * 1000)
        except Error as error:
            if is_last or _INTERRUPTED not in error.message:
                raise
            if f'{_INTERRUPTED} to "{address}"' in error.message:  # by the try before
                await tab.page.wait_for_url(address, wait_until="commit", timeout=RESPONSE_S * 1000)
                return None
    return None


async def stop_loading(tab: Tab) -> None:
    """Stop loading, so that a late response is not taken for the next navigation's."""
    with contextlib.suppress(Error):
        session = await tab.page.context.new_cdp_session(tab.page)
        await session.send("Page.stopLoading")
        await session.detach()
    tab.view.network.clear()


def _to_tool_error(browser: BrowserSession, url: str, error: Error) -> Exception:
    """Turn Playwright's error into a ToolError; a crash of the browser is returned unchanged."""
    if "has been closed" in error.message or "crashed" in error.message:
        return error
    # Of a redirect the error does not name the address.
    redirected = "ERR_BLOCKED_BY_CLIENT" in error.message or _NO_TUNNEL in error.message
    if refused := _take_refusal(browser, url, anywhere=redirected):
        return refused
    if "Timeout" in error.message:
        return TrustedToolError(
            f"{url} did not answer within {RESPONSE_S:g} s. Try again later, or use another source."
        )
    code = ERROR_CODE.search(error.message)
    name = code[1] if code else ""
    if name.startswith("ERR_CERT"):
        return TrustedToolError(
            f"{url} was not opened: its certificate is not valid ({name}), so it may be an "
            "impostor. Use another source. A person can set [browser] disable_security."
        )
    if name == "ERR_ABORTED" and browser.current.status in (204, 205):
        return TrustedToolError(
            f"{url} answered HTTP {browser.current.status}, which shows no page; the last one is "
            "still open."
        )
    unknown = f"{name or first_line(error)} Check the address, or another source"
    return _not_opened(url, ERROR_REASONS.get(name, unknown))


def _not_opened(url: str, reason: str) -> TrustedToolError:
    reason = reason.replace("@HOST", f"@{urlsplit(url).netloc}")  # with its port, if it has one
    return TrustedToolError(f"{url} was not opened: {reason}.")


def _take_refusal(
    browser: BrowserSession, url: str, *further: str, anywhere: bool = False
) -> ToolError | None:
    """Return an error if the address, or one it redirected to, was refused by the guard."""
    requested, redirected_to = _endpoint(url), {_endpoint(other) for other in further}
    for refusal in reversed(browser.current.connection.egress.take_refusals()):
        refused = _endpoint(refusal.url)
        if refused == requested:
            return TrustedToolError(refusal.reason)
        if refused in redirected_to or anywhere:
            return ToolError(refusal.reason)
    return None


def _endpoint(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.port or addresses.PORTS.get(parts.scheme)


SETTLE_S = 8.0
LARGE_BYTES = 20 << 20
"""A document of this size keeps the browser busy for minutes, and is never shown whole."""
ALERT_S = 3.0
NOTICE_WAIT_S = 0.4
STATE_S = 10.0
STATE_TOKENS = 600
_NO_LIMIT_TOKENS = 1_000_000
_MAX_TAB_CHANGES = 5
_SHOWN_URL_CHARS = 100
_FEW_GARBLED = 5
_MAX_REFUSED = 5
_QUALITY = 60
_MAX_BOXES = 150
_COLOURS = ("#c2185b", "#1565c0", "#2e7d32", "#e65100", "#6a1b9a", "#00838f")


async def observe(
    browser: BrowserSession, done: page_text.ActionReport, urls: dict[int, str], *, whole_page: bool
) -> str:
    """Wait until the page is quiet and describe it, or what changed on it. The lock is held.

    `urls` are the tabs before the action. `whole_page` describes even what the model has seen.
    """
    tab, snapshot = await _take_snapshot(browser)
    parts = [done.text, *browser.notices.take()]
    if dialog := browser.dialogs.describe():
        return "\n".join(filter(None, (*parts, dialog)))
    parts += _tab_changes(browser, urls)
    if tab is None or snapshot is None:
        return "\n".join(filter(None, (*parts, "No tab is open any more.")))
    parts += [*_document_notes(tab, snapshot), *_refused_requests(tab)]
    budget = browser.session.settings.browser.observation_tokens
    previous, tab.last_snapshot = tab.last_snapshot, snapshot
    browser.observed_place = _place(browser, snapshot)
    if whole_page or previous is None or previous.document != snapshot.document:
        parts.append(page_text.full_text(snapshot, budget))
        if names := browser.secrets.names_for(snapshot.url):
            typed = ", ".join(f"<secret>{name}</secret>" for name in names)
            parts.append(f"Secrets of this site, typed by name with input_text: {typed}")
    else:
        changed = page_text.change_text(previous, snapshot, budget, said=done)
        # The effect may come late, or as a notice.
        if len(parts) == 1 and changed.startswith(page_text.NOTHING_CHANGED):
            parts += await browser.notices.wait(NOTICE_WAIT_S)
            if not browser.dialogs.describe() and browser.tabs.get(tab.id) is tab:
                await _settle(browser, tab)
                tab.last_snapshot = await tab.view.look()
                changed = page_text.change_text(previous, tab.last_snapshot, budget, said=done)
        parts.append(changed)
    return "\n".join(filter(None, parts))


def tab_urls(browser: BrowserSession) -> dict[int, str]:
    return {tab.id: tab.current_url for tab in browser.tabs.values()}


async def state_for_request(
    session: Session, picture: bool, *, after_observation: bool = False
) -> tuple[str, str | None]:
    """Return the browser's state for the next request, as text and a picture (a data URL).

    It is never stored. Never raises, and is bounded in time. If the request ends with the newest
    observation, the text is empty unless something has changed since.
    """
    browser = session.find(HANDLE)
    if not isinstance(browser, BrowserSession) or not browser.tabs or browser.takeover:
        return "", None
    try:
        async with asyncio.timeout(STATE_S):
            return await browser_loop.run(lambda: _state(browser, picture, after_observation))
    except Exception:  # noqa: BLE001  # a page that cannot be shown must not end the run
        return "", None


async def _state(
    browser: BrowserSession, picture: bool, after_observation: bool
) -> tuple[str, str | None]:
    async with browser.lock:
        if not browser.tabs:
            return "", None
        tab, redacted = browser.current, browser.secrets.redacted
        if dialog := browser.dialogs.describe():
            return redacted(dialog), None
        snapshot = await tab.view.look()
        parts = [_place(browser, snapshot)]
        if tab.last_snapshot is not None and tab.last_snapshot.document != snapshot.document:
            parts.append("Another page has loaded since; see it with get_state.")
        elif tab.last_snapshot is not None:
            changed = page_text.change_text(tab.last_snapshot, snapshot, STATE_TOKENS)
            parts += [] if changed == page_text.NOTHING_CHANGED else ["Changed since:", changed]
        if parts == [browser.observed_place] and after_observation and not picture:
            return "", None
        text = redacted("\n".join(parts))
        whole_page = page_text.full_text(snapshot, _NO_LIMIT_TOKENS) if picture else ""
        # A secret that the page shows in its text could be read from the picture as well.
        empty = snapshot.url == BLANK and not snapshot.lines
        if not picture or empty or redacted(whole_page) != whole_page:
            return text, None
        photo = await marked_screenshot(tab.view, snapshot)
        return text, f"data:image/jpeg;base64,{base64.b64encode(photo).decode()}"


async def _take_snapshot(browser: BrowserSession) -> tuple[Tab | None, Snapshot | None]:
    """Wait until the current page is quiet and snapshot it; None while a dialog is open."""
    for _ in range(_MAX_TAB_CHANGES):
        if not browser.tabs and not await browser.connection.is_responsive():
            raise TrustedToolError("The browser has ended.")
        if not browser.tabs or browser.dialogs.describe():
            return None, None
        tab = browser.current
        try:
            note = await _settle(browser, tab)
            await browser.downloads.wait()
            await browser.pending_tabs.wait()
            snapshot = await tab.view.look()
            await browser.remember()
        except Error:
            if tab.id in browser.tabs:
                raise
            continue  # it closed itself
        if tab.id in browser.tabs and browser.current is tab:
            if note and not tab.view.frames.dialog_open and note != DIALOG_NOTE:
                browser.notices.add(note)
            return tab, snapshot
    raise TrustedToolError("The page keeps opening or closing tabs. Look again with get_state.")


async def _settle(browser: BrowserSession, tab: Tab) -> str:
    """Wait until a page is quiet, and alerts, which are accepted automatically, are closed.

    Return a note if it is not quiet. The loading of a page that is too large is stopped.
    """
    note = await tab.view.settle(SETTLE_S)
    if note and tab.size > LARGE_BYTES:
        await stop_loading(tab)
        note = f"The page is too large ({size_text(tab.size)}): its loading was stopped."
        tab.size = 0
    frames, deadline = tab.view.frames, time.monotonic() + ALERT_S
    # The view has no event for it.
    while frames.dialog_open and not browser.dialogs.describe() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return note


def _tab_changes(browser: BrowserSession, before: dict[int, str]) -> list[str]:
    now = tab_urls(browser)
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


def _place(browser: BrowserSession, snapshot: Snapshot) -> str:
    tabs = [_tab_line(browser, tab) for tab in browser.tabs.values()]
    return "\n".join([*(tabs if len(tabs) > 1 else []), page_text.page_place(snapshot)])


def _tab_line(browser: BrowserSession, tab: Tab) -> str:
    if tab is browser.current:
        return f"  tab {tab.id} (current)"  # its page is shown next
    return f"  tab {tab.id}: {tab.current_url[:_SHOWN_URL_CHARS]}"


def _document_notes(tab: Tab, snapshot: Snapshot) -> list[str]:
    if tab.last_snapshot is not None and tab.last_snapshot.document == snapshot.document:
        return []
    notes: list[str] = []
    if tab.status >= 400:
        notes.append(f"The server answered HTTP {tab.status}.")
    if tab.is_pdf:
        notes.append("This is a PDF: read it with extract_content.")
    elif tab.media_type.startswith("image/"):
        notes.append("This is a picture.")
    text = "".join(part for line in snapshot.lines for part in line.parts if isinstance(part, str))
    if text.count("\ufffd") > max(_FEW_GARBLED, len(text) // 50):
        notes.append(
            "Its text is garbled, because it declares a wrong charset: read it with fetch_page."
        )
    return notes


def _refused_requests(tab: Tab) -> list[str]:
    """Return what a page of the agent was refused since the last look."""
    refusals = tab.connection.egress.take_refusals() if tab.is_own else []
    reasons = dict.fromkeys(one.reason for one in refusals if _BROWSERS_OWN not in one.url)
    return [f"Refused to the page: {reason}" for reason in list(reasons)[:_MAX_REFUSED]]


async def marked_screenshot(view: PageView, snapshot: Snapshot) -> bytes:
    """Return a JPEG of the window with a numbered box around each of the snapshot's elements."""
    plain = await view.frames.unless_dialog(
        view.page.screenshot(type="jpeg", quality=85, scale="css", caret="initial")
    )
    return await asyncio.to_thread(_marked, plain, snapshot)


def _marked(plain: bytes, snapshot: Snapshot) -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    with Image.open(io.BytesIO(plain)) as picture:
        image = picture.convert("RGB")
    drawing, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    elements = [element for element in snapshot.elements.values() if _in_window(element, snapshot)]
    for element in elements[:_MAX_BOXES]:
        left, top, width, height = element.box
        right, bottom = min(left + width, image.width - 1), min(top + height, image.height - 1)
        left, top = max(left, 0), max(top, 0)
        if right - left < 1 or bottom - top < 1:
            continue
        colour, text = _COLOURS[element.index % len(_COLOURS)], str(element.index)
        drawing.rectangle((left, top, right, bottom), outline=colour)
        wide = drawing.textlength(text, font=font) + 4
        y = top - 14 if top >= 14 else top  # above the box if there is room, else inside it
        drawing.rectangle((left, y, left + wide, y + 14), fill=colour)
        drawing.text((left + 2, y), text, fill="white", font=font)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY, optimize=True)
    return out.getvalue()


def _in_window(element: Element, snapshot: Snapshot) -> bool:
    left, top, width, height = element.box
    right, bottom = snapshot.view
    return left + width > 0 and top + height > 0 and left < right and top < bottom
