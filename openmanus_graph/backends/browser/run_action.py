"""A call of `browser_use`, from its arguments to what the model reads."""

import asyncio
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from openmanus_graph.backends.browser.action_specs import ACTION_SPECS, HANDLE, ActionArguments
from openmanus_graph.backends.browser.actions import ACTION_HANDLERS
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.extraction import extract_content
from openmanus_graph.backends.browser.launch import first_line
from openmanus_graph.backends.browser.observation import observe, tab_urls
from openmanus_graph.backends.browser.page import ActionReport
from openmanus_graph.backends.browser.tab import BLANK
from openmanus_graph.backends.search.searching import search_for
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import AskModel


@dataclass(frozen=True)
class ActionResult:
    """What the model reads of an action."""

    text: str
    failed: bool = False
    site: str = ""
    """The origin of the page, whose links are shown without it."""


async def run_action(
    session: Session, action: str, args: ActionArguments, ask: AskModel | None
) -> ActionResult:
    """Run an action in the thread's browser session, which opens a browser on first use.

    Raises:
        ToolError: It was not done, and why. No secret is in it, nor in what is returned.
    """
    browser = await asyncio.to_thread(session.handle, HANDLE, lambda: BrowserSession(session))
    if browser.takeover is not None:
        raise TrustedToolError(
            f"{action} was not done: a person has taken the browser over. Do something else, or "
            'wait until it is given back, with ask_human(kind="browser").'
        )
    try:
        if action == "extract_content":
            result = ActionResult(await extract_content(browser, args.goal, ask))
        elif action == "web_search":
            result = await _search_and_open(browser, args)
        else:
            result = await browser_loop.run(lambda: _run_on_page(browser, action, args))
    except ToolError as error:
        raise type(error)(browser.secrets.redacted(str(error))) from None
    return replace(result, text=browser.secrets.redacted(result.text), site=_site_of(browser))


def _site_of(browser: BrowserSession) -> str:
    """Return the origin of the page that an observation shows; empty if there is none."""
    parts = urlsplit(browser.current.current_url) if browser.tabs else None
    return f"{parts.scheme}://{parts.netloc}" if parts and parts.netloc else ""


async def _search_and_open(browser: BrowserSession, args: ActionArguments) -> ActionResult:
    """Search the web and open the first result."""
    report = await search_for(browser.session, args.query or "")
    if not report.hits:
        raise TrustedToolError(f"Nothing was found for {args.query!r}. Use fewer or other words.")
    listed = [f"{number}. {hit.title}\n   {hit.url}" for number, hit in enumerate(report.hits, 1)]
    first = replace(args, url=report.hits[0].url)
    try:
        opened = (await browser_loop.run(lambda: _run_on_page(browser, "go_to_url", first))).text
    except ToolError as error:
        opened = f"The first result was not opened. {error}"
    return ActionResult("\n".join([f"Results for {args.query!r}:", *listed, "", opened]))


async def _run_on_page(browser: BrowserSession, action: str, args: ActionArguments) -> ActionResult:
    """Run an action and observe the page. On the browser's event loop.

    Raises:
        ToolError: It was not done, and why.
    """
    from playwright.async_api import Error

    async with browser.lock:
        acted_on, urls = browser.current if browser.tabs else None, tab_urls(browser)
        try:
            replaced = await browser.ensure()
            if replaced and "index" in ACTION_SPECS[action].required:  # of the old page
                return await _observe_replacement(browser, f"{action} was not done.")
            return await _run_handler(browser, action, args, urls)
        except ToolError as error:
            if await browser.recover():
                return await _observe_replacement(browser, f"{action} was cut off.")
            raise _with_notices(browser, error) from error
        except Error as error:
            if await browser.recover():
                done = f"{action} was cut off: {first_line(error)}"
                return await _observe_replacement(browser, done)
            if acted_on is not None and acted_on.id not in browser.tabs:
                report = ActionReport(f"{action}: the page closed itself.")
                return ActionResult(await observe(browser, report, urls, whole_page=True))
            advice = "Look at the page with get_state."
            raise ToolError(f"{action} failed: {first_line(error)} {advice}") from error
        except TimeoutError as error:
            advice = "The page may be busy: wait, or load it again with refresh."
            raise _with_notices(
                browser, TrustedToolError(f"{action} took too long. {advice}")
            ) from error


async def _run_handler(
    browser: BrowserSession, action: str, args: ActionArguments, urls: dict[int, str]
) -> ActionResult:
    """Run an action's handler on the current tab, unless no page or a dialog is shown."""
    spec = ACTION_SPECS[action]
    tab = browser.current if "index" in spec.required else None
    if tab is not None and tab.last_snapshot is None and tab.current_url == BLANK:
        raise TrustedToolError("The browser shows no page yet. Open one with go_to_url.")
    open_dialog = browser.dialogs.describe()
    if open_dialog and not spec.allowed_in_dialog:
        raise ToolError(f"Nothing was done. {open_dialog}")
    done = await browser.dialogs.until(ACTION_HANDLERS[action](browser, args)) or ""
    report = ActionReport(done) if isinstance(done, str) else done
    if not spec.takes_snapshot:
        return ActionResult("\n".join([report.text, *browser.notices.take()]))
    return ActionResult(await observe(browser, report, urls, whole_page=spec.shows_whole_page))


async def _observe_replacement(browser: BrowserSession, done: str) -> ActionResult:
    """Observe the new page after the browser or a page was replaced."""
    seen = await observe(browser, ActionReport(done), {}, whole_page=True)
    return ActionResult(seen, failed=True)


def _with_notices(browser: BrowserSession, error: ToolError) -> ToolError:
    """Add the pending notices to an error.

    With notices, or with a page that the next request shows first, it is no trusted text any more.
    """
    notices = browser.notices.take()
    not_shown = (
        tab for tab in browser.tabs.values() if tab.last_snapshot is None and not tab.refused
    )
    if notices or any(tab.current_url.startswith("http") for tab in not_shown):
        return ToolError("\n".join([str(error), *notices]))
    return error
