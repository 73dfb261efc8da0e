"""A call of `browser_use`, from its arguments to what the model reads."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from openmanus_graph.backends.browser.action_specs import ACTION_SPECS, HANDLE, ActionArguments
from openmanus_graph.backends.browser.actions import ACTION_HANDLERS
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.extraction import extract_content
from openmanus_graph.backends.browser.launch import first_line
from openmanus_graph.backends.browser.observation import observe, tab_urls
from openmanus_graph.backends.browser.page import ActionReport
from openmanus_graph.backends.browser.recorded_step import (
    check_result,
    fit_step,
    record_result,
    record_step,
)
from openmanus_graph.backends.browser.tab import BLANK
from openmanus_graph.backends.search.searching import search_for
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import AskModel
from openmanus_graph.safety.unasked_openings import LEFT_OUT, UnaskedOpenings

_OPENED = "opened"
"""What a search led to, in its `repeatable`."""


@dataclass(frozen=True)
class ActionResult:
    """What the model reads of an action."""

    text: str
    failed: bool = False
    site: str = ""
    """The origin of the page, whose links are shown without it."""
    openings: Mapping[str, int] | None = None
    """How many pages of sites that nobody named the action opened of itself, by site."""
    links: Sequence[str] = ()
    """Those of a text that a model may have written which the page holds."""
    repeatable: Mapping[str, Any] | None = None
    """What a replay needs to do it again (`recorded_step`); None if nothing was done."""


async def run_action(
    session: Session,
    action: str,
    args: ActionArguments,
    ask: AskModel | None,
    repeats: Mapping[str, Any] | None = None,
    openings: UnaskedOpenings | None = None,
) -> ActionResult:
    """Run an action in the thread's browser session, which opens a browser on first use.

    Args:
        session: The thread's.
        action: Its name.
        args: Its arguments.
        ask: Asks the run's model.
        repeats: The `repeatable` of the recorded action that this one does again.
        openings: Says which pages it may open of itself; None: any.

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
            text, links = await extract_content(browser, args.goal, ask)
            result = ActionResult(text, links=links)
        elif action == "web_search":
            result = await _search_and_open(browser, args, repeats, openings)
        else:
            result = await browser_loop.run(lambda: _run_on_page(browser, action, args, repeats))
    except ToolError as error:
        raise type(error)(browser.secrets.redacted(str(error))) from None
    return replace(result, text=browser.secrets.redacted(result.text), site=_site_of(browser))


def _site_of(browser: BrowserSession) -> str:
    """Return the origin of the page that an observation shows; empty if there is none."""
    parts = urlsplit(browser.current.current_url) if browser.tabs else None
    return f"{parts.scheme}://{parts.netloc}" if parts and parts.netloc else ""


async def _search_and_open(
    browser: BrowserSession,
    args: ActionArguments,
    repeats: Mapping[str, Any] | None,
    openings: UnaskedOpenings | None,
) -> ActionResult:
    """Search the web and open the first result; again is opened what was the first one then."""
    if repeats is not None:
        again = replace(args, url=repeats[_OPENED])
        return await browser_loop.run(lambda: _run_on_page(browser, "go_to_url", again, repeats))
    report = await search_for(browser.session, args.query or "")
    if not report.hits:
        raise TrustedToolError(f"Nothing was found for {args.query!r}. Use fewer or other words.")
    listed = [f"{number}. {hit.title}\n   {hit.url}" for number, hit in enumerate(report.hits, 1)]
    url = report.hits[0].url
    first = replace(args, url=url)
    repeatable: dict[str, Any] | None = None
    try:
        if openings is not None and not openings.may_open(url):
            raise TrustedToolError(f"{LEFT_OUT[0].upper()}{LEFT_OUT[1:]}.")
        seen = await browser_loop.run(lambda: _run_on_page(browser, "go_to_url", first))
        opened, repeatable = seen.text, {**(seen.repeatable or {}), _OPENED: url}
    except ToolError as error:
        opened = f"The first result was not opened. {error}"
    text = "\n".join([f"Results for {args.query!r}:", *listed, "", opened])
    counted = openings.by_site([url]) if openings is not None and repeatable else None
    return ActionResult(text, repeatable=repeatable, openings=counted)


async def _run_on_page(
    browser: BrowserSession,
    action: str,
    args: ActionArguments,
    repeats: Mapping[str, Any] | None = None,
) -> ActionResult:
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
            return await _run_handler(browser, action, args, urls, repeats)
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
    browser: BrowserSession,
    action: str,
    args: ActionArguments,
    urls: dict[int, str],
    repeats: Mapping[str, Any] | None,
) -> ActionResult:
    """Run an action's handler on the current tab, unless no page or a dialog is shown."""
    spec = ACTION_SPECS[action]
    tab = browser.current if "index" in spec.required else None
    if tab is not None and tab.last_snapshot is None and tab.current_url == BLANK:
        raise TrustedToolError("The browser shows no page yet. Open one with go_to_url.")
    open_dialog = browser.dialogs.describe()
    if open_dialog and not spec.allowed_in_dialog:
        raise ToolError(f"Nothing was done. {open_dialog}")
    if repeats is not None:
        args = await fit_step(browser, args, repeats)
    recorded = await record_step(browser, args)
    done = await browser.dialogs.until(ACTION_HANDLERS[action](browser, args)) or ""
    report = ActionReport(done) if isinstance(done, str) else done
    if spec.takes_snapshot:
        text = await observe(browser, report, urls, whole_page=spec.shows_whole_page)
    else:
        text = "\n".join([report.text, *browser.notices.take()])
    if repeats is not None:
        check_result(browser, repeats)
    return ActionResult(text, repeatable={**recorded, **record_result(browser)})


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
