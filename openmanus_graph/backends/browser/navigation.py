"""Navigation to addresses and in the history, with error texts for the model."""

import contextlib
import re
from typing import Literal
from urllib.parse import urljoin, urlsplit

from playwright.async_api import Error, Response

from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import first_line
from openmanus_graph.backends.browser.tab import BLANK, Tab
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.state.addresses import PORTS, has_scheme, is_path, literal_ip, with_scheme

RESPONSE_S = 30.0  # timeout for the first bytes of a response
_ERROR_CODE = re.compile(r"net::(ERR_[A-Z0-9_]+)")
_ADDRESS = re.compile(
    r"(//)?(?P<host>[^\s/?#:@\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?([/?#].*)?"
)
_INTERRUPTED = "interrupted by another navigation"
_SHOWN_URL_CHARS = 200
_ERROR_REASONS = {
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


async def go_to(browser: BrowserSession, tab: Tab, url: str) -> str:
    """Go to an address; ToolError if it was not opened. Return a sentence if it is a file."""
    connection = browser.connection
    if browser.secrets.mentioned(url):
        raise TrustedToolError(
            "Secrets are never put into addresses. Type them into a field instead."
        )
    address = complete_address(url, connection.guard, tab.current_url)
    connection.guard.check(address)
    connection.egress.take_refusals()  # drop those of earlier pages
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
            raise _not_opened(address, _ERROR_REASONS["ERR_INVALID_AUTH_CREDENTIALS"])
    # The refused address may be one that the server redirected to.
    if tab.refused and (refusal := _take_refusal(browser, address, tab.page.url)):
        raise refusal
    return ""


def complete_address(url: str, guard: Guard, page_url: str = BLANK) -> str:
    """Complete an address that was written without `https://`."""
    text = url.strip()
    if has_scheme(text):
        return text
    if is_path(text) and has_scheme(page_url) and page_url != BLANK:
        raise ToolError(
            f"{text[:_SHOWN_URL_CHARS]!r} is not a whole address. On the site of this page it is "
            f"{urljoin(page_url, text)[:_SHOWN_URL_CHARS]}"
        )
    match = _ADDRESS.fullmatch(text)
    host = match["host"].strip("[]") if match else ""
    number = literal_ip(host) is not None
    if number or host == "localhost" or (match and guard.allows(host, int(match["port"] or 80))):
        return f"http://{text.lstrip('/')}"  # local addresses rarely have TLS
    if "." in host:
        return with_scheme(text)
    raise TrustedToolError(
        f"{text[:_SHOWN_URL_CHARS]!r} is not a web address. Give a whole one, such as "
        "https://example.com/, or find the page with web_search."
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
    intercepted = "ERR_BLOCKED_BY_CLIENT" in error.message
    if refused := _take_refusal(browser, url, anywhere=intercepted):
        return refused
    if "Timeout" in error.message:
        return TrustedToolError(
            f"{url} did not answer within {RESPONSE_S:g} s. Try again later, or use another source."
        )
    code = _ERROR_CODE.search(error.message)
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
    return _not_opened(url, _ERROR_REASONS.get(name, unknown))


def _not_opened(url: str, reason: str) -> TrustedToolError:
    reason = reason.replace("@HOST", f"@{urlsplit(url).netloc}")  # with its port, if it has one
    return TrustedToolError(f"{url} was not opened: {reason}.")


def _take_refusal(
    browser: BrowserSession, url: str, *further: str, anywhere: bool = False
) -> ToolError | None:
    """Return an error if the address, or one it redirected to, was refused by the guard."""
    requested, redirected_to = _endpoint(url), {_endpoint(other) for other in further}
    for refusal in reversed(browser.connection.egress.take_refusals()):
        refused = _endpoint(refusal.url)
        if refused == requested:
            return TrustedToolError(refusal.reason)
        if refused in redirected_to or anywhere:
            return ToolError(refusal.reason)
    return None


def _endpoint(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.port or PORTS.get(parts.scheme)
