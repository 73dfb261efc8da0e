"""Going to an address, and what to say when that fails."""

import contextlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openmanus_graph.browser.launch import first_line
from openmanus_graph.browser.tab import Tab
from openmanus_graph.browser.window import Window
from openmanus_graph.errors import OwnWordsError, ToolError
from openmanus_graph.web.addresses import PORTS, has_scheme, literal_ip, with_scheme
from openmanus_graph.web.guard import Guard

if TYPE_CHECKING:
    from playwright.async_api import Error

ANSWER_S = 30.0
"""How long a server may take to begin its answer."""
_CODE = re.compile(r"net::(ERR_[A-Z0-9_]+)")
_BARE = re.compile(
    r"(//)?(?P<host>[^\s/?#:@\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?([/?#].*)?"
)
_INTERRUPTED = "interrupted by another navigation"
_SHOWN_URL = 200
_WITHOUT_PAGE = (204, 205)
_WHY = {
    "ERR_NAME_NOT_RESOLVED": "there is no such host. Check the spelling, or search for the page",
    "ERR_TOO_MANY_REDIRECTS": "it redirects in a circle, or without end. Find another source",
    "ERR_INVALID_AUTH_CREDENTIALS": "the server asks for a user name and a password (HTTP 401). "
    "A person can set them as the secret http_auth=USER:PASSWORD@HOST",
    "ERR_CONNECTION_REFUSED": "the server refuses connections. Try again later, or another source",
    "ERR_CONNECTION_RESET": "the connection was broken off. Try again, or another source",
    "ERR_CONNECTION_CLOSED": "the server broke the connection off. Try again, or another source",
    "ERR_EMPTY_RESPONSE": "the server sent no answer. Try again, or another source",
    "ERR_TIMED_OUT": "the server does not answer. Try again later, or another source",
    "ERR_UNSAFE_PORT": "browsers do not open this port. Use fetch_page, or another source",
    "ERR_TUNNEL_CONNECTION_FAILED": "the server cannot be reached. Check the address",
    "ERR_ABORTED": "the page was left again before it loaded. Look with get_state",
    "ERR_INVALID_RESPONSE": "the server's answer is broken. Try another source",
    "ERR_SSL_PROTOCOL_ERROR": "the server speaks no valid TLS. Try the address with http://",
}


async def go_to(window: Window, tab: Tab, url: str) -> str:
    """Go to an address and say what came of it.

    Raises:
        ToolError: It was not opened, and why.
    """
    from playwright.async_api import Error

    connection = window.connection
    if window.secrets.mentioned(url):
        raise OwnWordsError("Secrets are never put into addresses. Type them into a field instead.")
    address = whole_address(url, connection.guard)
    connection.guard.check(address)
    connection.door.take_refusals()  # of earlier pages
    tab.leave()
    try:
        await window.dialogs.until(_opened(tab, address))
    except Error as error:
        if "Download is starting" in error.message:
            tab.file = address
            return f"{address} is a file, not a page: extract_content reads documents."
        if "Timeout" in error.message:
            await stop_loading(tab)
        tab.arrive()
        raise _failure(window, address, error) from error
    if tab.refused and (refusal := _refused(window, address, tab.page.url)):  # or a redirect's end
        raise refusal
    return f"Went to {address}."


def whole_address(url: str, guard: Guard) -> str:
    """Complete an address that was written without `https://`.

    Raises:
        ToolError: It is no address at all.
    """
    text = url.strip()
    if has_scheme(text):
        return text
    bare = _BARE.fullmatch(text)
    host = bare["host"].strip("[]") if bare else ""
    number = literal_ip(host) is not None
    if number or host == "localhost" or (bare and guard.allows(host, int(bare["port"] or 80))):
        return f"http://{text.lstrip('/')}"  # hardly any of these speaks TLS
    if "." in host:
        return with_scheme(text)
    raise OwnWordsError(
        f"{text[:_SHOWN_URL]!r} is no web address. Give a whole one, such as https://example.com/, "
        "or find the page with web_search."
    )


async def go_back(window: Window, tab: Tab) -> str:
    """Go one page back."""
    return await _moved(window, tab, tab.page.go_back(wait_until="commit"), "back")


async def refresh(window: Window, tab: Tab) -> str:
    """Load the page again."""
    return await _moved(window, tab, tab.page.reload(wait_until="commit"), "again")


async def _moved(window: Window, tab: Tab, work: Any, where: str) -> str:
    from playwright.async_api import Error

    before = tab.page.url
    try:
        response = await window.dialogs.until(work)
    except Error as error:
        failure = _failure(window, before, error)
        raise (ToolError(str(failure)) if isinstance(failure, ToolError) else failure) from error
    if where == "back" and response is None and tab.page.url == before:
        if window.dialogs.describe():
            return "Going back."
        raise OwnWordsError("There is no page to go back to in this tab.")
    return "Went back." if where == "back" else "Loaded the page again."


async def _opened(tab: Tab, address: str) -> None:
    """Go there, again if the error page of an earlier try comes in between."""
    from playwright.async_api import Error

    for last in (False, False, True):
        try:
            await tab.page.goto(address, wait_until="commit", timeout=ANSWER_S * 1000)
            return
        except Error as error:
            if last or _INTERRUPTED not in error.message:
                raise
            if f'{_INTERRUPTED} to "{address}"' in error.message:  # by the try before
                await tab.page.wait_for_url(address, wait_until="commit", timeout=ANSWER_S * 1000)
                return


async def stop_loading(tab: Tab) -> None:
    """Give up loading, so that what comes late is not taken for what was asked for next."""
    from playwright.async_api import Error

    with contextlib.suppress(Error):
        session = await tab.page.context.new_cdp_session(tab.page)
        await session.send("Page.stopLoading")
        await session.detach()
    tab.view.network.forget()


def _failure(window: Window, url: str, error: "Error") -> Exception:
    """Turn Playwright's words into ours; a browser that died is not the address's fault."""
    if "has been closed" in error.message or "crashed" in error.message:
        return error
    at_gate = "ERR_BLOCKED_BY_CLIENT" in error.message
    refused = _refused(window, url, anywhere=at_gate)
    if refused:
        return refused
    if "Timeout" in error.message:
        return OwnWordsError(
            f"{url} did not answer within {ANSWER_S:g} s. Try again later, or use another source."
        )
    code = _CODE.search(error.message)
    name = code[1] if code else ""
    if name.startswith("ERR_CERT"):
        return OwnWordsError(
            f"{url} was not opened: its certificate is not valid ({name}), so it may be an "
            "impostor. Use another source. A person can set [browser] disable_security."
        )
    if name == "ERR_ABORTED" and window.current.status in _WITHOUT_PAGE:
        return OwnWordsError(
            f"{url} answered HTTP {window.current.status}, which shows no page; the last one is "
            "still open."
        )
    why = _WHY.get(name) or f"{name or first_line(error)} Check the address, or another source"
    why = why.replace("@HOST", f"@{urlsplit(url).netloc}")  # with its port, if it has one
    return OwnWordsError(f"{url} was not opened: {why}.")


def _refused(window: Window, url: str, *further: str, anywhere: bool = False) -> ToolError | None:
    """Return why a place was refused, or one that its server led to, if it was."""
    wanted, led_to = _place(url), {_place(other) for other in further}
    for refusal in reversed(window.connection.door.take_refusals()):
        refused = _place(refusal.url)
        if refused == wanted:
            return OwnWordsError(refusal.reason)
        if refused in led_to or anywhere:
            return ToolError(refusal.reason)
    return None


def _place(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.port or PORTS.get(parts.scheme)
