"""Runs the actions of `browser_use`, with a handler for each, and observes the page afterwards."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlsplit

from playwright.async_api import CDPSession, Error

from openmanus_graph.backends.browser import recorded_steps
from openmanus_graph.backends.browser.action_specs import (
    ACTION_SPECS,
    HANDLE,
    INDEX_IF_GIVEN,
    ActionArguments,
)
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop, first_line
from openmanus_graph.backends.browser.labels import with_labelled_index
from openmanus_graph.backends.browser.page import dropdown, fields, pointer
from openmanus_graph.backends.browser.page.frames import DialogOpen, FrameDetached, ScriptError
from openmanus_graph.backends.browser.page.text import ActionReport
from openmanus_graph.backends.browser.pages import go_to, move_in_history, observe, tab_urls
from openmanus_graph.backends.browser.reading import extract_content
from openmanus_graph.backends.browser.saved_rows import save_rows
from openmanus_graph.backends.browser.tab import BLANK, Tab, copy_files, file_name, keep_file
from openmanus_graph.backends.search.searching import search_for
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import AskModel
from openmanus_graph.safety.information_flow import LEFT_OUT, UnaskedOpenings
from openmanus_graph.safety.open_beneath import size_text
from openmanus_graph.state.addresses import OWN_SITE
from openmanus_graph.state.tool_traits import Observation

MAX_WAIT_S = 60
DEFAULT_WAIT_S = 3
PDF_S = 30.0
SCRIPT_S = 10
MAX_RESULT_CHARS = 8000
_CUT_OFF = "was cut off: the page left, removed the element or asked something meanwhile."
_OPENED = "opened"  # what a search led to, in its `repeatable`

ActionHandler = Callable[[BrowserSession, ActionArguments], Awaitable[ActionReport | str]]
"""Returns what was done; a sentence alone if that names nothing of a page."""


async def _get_state(browser: BrowserSession, args: ActionArguments) -> str:
    return ""  # every action shows the page afterwards


async def _open_tab(browser: BrowserSession, args: ActionArguments) -> str:
    return await go_to(browser, await browser.new_tab(), args.url or "")


async def _switch_tab(browser: BrowserSession, args: ActionArguments) -> str:
    tab = browser.switch(-1 if args.tab_id is None else args.tab_id)
    await tab.page.bring_to_front()
    return f"Switched to tab {tab.id}."


async def _close_tab(browser: BrowserSession, args: ActionArguments) -> str:
    tab = browser.current if args.tab_id is None else browser.switch(args.tab_id)
    await tab.page.close()
    return f"Closed tab {tab.id}."


async def _drag_and_drop(browser: BrowserSession, args: ActionArguments) -> ActionReport:
    view, source = browser.view, args.required_index
    if args.target_index is not None:
        return await pointer.drag_and_drop(view, source, args.target_index)
    if args.x is not None and args.y is not None:
        return await pointer.drag_to_point(view, source, args.x, args.y)
    if args.text:
        return await pointer.drag_to_text(view, source, args.text)
    raise TrustedToolError("drag_and_drop needs target_index, or text or x and y: where to drop.")


async def _input_text(browser: BrowserSession, args: ActionArguments) -> ActionReport:
    view, index, text = browser.view, args.required_index, args.required_text
    if not browser.secrets.mentioned(text):
        return await fields.input_text(view, index, text)
    target, _ = await view.ask(index, "connected")
    # The origin of the element's frame, as the browser knows it: a page cannot forge it.
    origin = (await view.frames.evaluate(target.world, "self.origin")).get("value", "")
    value = browser.secrets.fill_in(text, str(origin))
    return await fields.input_text(view, index, value, secret=True)


async def _send_keys(browser: BrowserSession, args: ActionArguments) -> ActionReport:
    if browser.secrets.mentioned(args.keys or ""):
        raise TrustedToolError("Nothing was typed: secrets are typed with input_text and an index.")
    return await fields.send_keys(browser.view, args.keys or "", browser.clipboard.before_press)


async def _scroll_up(browser: BrowserSession, args: ActionArguments) -> ActionReport:
    amount = args.scroll_amount
    if amount is None:
        size = browser.current.page.viewport_size
        amount = size["height"] if size else 800
    return await pointer.scroll(browser.view, -abs(amount), args.index)


async def _upload_file(browser: BrowserSession, args: ActionArguments) -> ActionReport | str:
    names = [name for line in args.required_text.splitlines() if (name := line.strip())]
    workspace = browser.session.workspace
    paths = await asyncio.to_thread(lambda: copy_files(workspace, names, browser.scratch()))
    tab = browser.current
    chooser, tab.chooser = tab.chooser, None
    if args.index is not None:
        tab.uploading = True
        try:
            return await fields.upload_file(tab.view, args.index, paths)
        finally:
            tab.uploading = False
    if chooser is None:
        raise TrustedToolError("Name the file input by its index: no file chooser is open.")
    await chooser.set_files(paths)
    return f"Gave {', '.join(path.name for path in paths)} to the page."


async def _handle_dialog(browser: BrowserSession, args: ActionArguments) -> str:
    if browser.secrets.mentioned(args.required_text):
        raise TrustedToolError("Secrets are not typed into dialogs.")
    return await browser.dialogs.answer(accept=args.accept, text=args.text)


async def _save_pdf(browser: BrowserSession, args: ActionArguments) -> str:
    page, workspace = browser.current.page, browser.session.workspace
    title = (await page.title()).replace("/", "-") or "page"
    name = file_name(f"{title}.pdf", browser.secrets)
    path = await asyncio.to_thread(browser.scratch) / "page.pdf"
    async with asyncio.timeout(PDF_S):
        await page.pdf(path=path, print_background=True)
    kept = await asyncio.to_thread(keep_file, workspace, path, name)
    return f"Saved the page as {kept} ({size_text(path.stat().st_size)})."


async def _wait(browser: BrowserSession, args: ActionArguments) -> str:
    seconds = DEFAULT_WAIT_S if args.seconds is None else args.seconds
    started = time.monotonic()
    pause = browser.downloads.pause(min(max(seconds, 0), MAX_WAIT_S))
    await browser.dialogs.until(pause)
    return f"Waited {time.monotonic() - started:.0f} s."


_AS_TEXT = """async function () {
    const value = await this;
    const shown = value instanceof Node ? value.outerHTML ?? value.textContent : value;
    return JSON.stringify(shown) ?? String(shown);
}"""


async def _evaluate(browser: BrowserSession, args: ActionArguments) -> str:
    """Run a script on a page that the agent made, and return its value as JSON."""
    tab = browser.current
    if not tab.shows_own:
        raise TrustedToolError(
            "evaluate runs scripts only on pages of yours: of a server in your sandbox, or in the "
            "workspace. Use the other actions here."
        )
    session = await tab.page.context.new_cdp_session(tab.page)
    try:
        async with asyncio.timeout(SCRIPT_S + 1):
            value = await _value_of(session, args.required_text)
    except (TimeoutError, Error) as error:
        if isinstance(error, Error) and "Internal error" not in error.message:
            raise
        raise TrustedToolError(f"The script did not end within {SCRIPT_S} s.") from error
    finally:
        await session.detach()
    more = " ... (longer: return less of it)" if len(value) > MAX_RESULT_CHARS else ""
    return f"Result: {value[:MAX_RESULT_CHARS]}{more}"


async def _value_of(session: CDPSession, script: str) -> str:
    """Return the value of a script as JSON. It may await, and declare a name again."""
    send: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]] = cast("Any", session).send
    asked = {"awaitPromise": True, "userGesture": True}
    given = {"expression": script, "replMode": True, "timeout": SCRIPT_S * 1000}
    answer = await send("Runtime.evaluate", {**asked, **given})
    found = answer["result"]
    is_object = "objectId" in found and "exceptionDetails" not in answer
    if is_object:
        given = {"objectId": found["objectId"], "functionDeclaration": _AS_TEXT}
        answer = await send("Runtime.callFunctionOn", {**asked, **given})
    if failed := answer.get("exceptionDetails"):
        thrown = failed["exception"].get("description") or failed["exception"].get("value")
        raise ToolError(f"The script failed: {str(thrown)[:MAX_RESULT_CHARS]}")
    if is_object:
        return str(answer["result"]["value"])
    shown = json.dumps(found["value"], ensure_ascii=False) if "value" in found else "undefined"
    return str(found.get("unserializableValue", shown))


ACTION_HANDLERS: dict[str, ActionHandler] = {
    "go_to_url": lambda browser, args: go_to(browser, browser.current, args.url or ""),
    "get_state": _get_state,
    "click_element": lambda browser, args: pointer.click(
        browser.view, args.required_index, args.required_text.strip().lower()
    ),
    "input_text": _input_text,
    "send_keys": _send_keys,
    "scroll_down": lambda browser, args: pointer.scroll(
        browser.view, args.scroll_amount, args.index, args.x
    ),
    "scroll_up": _scroll_up,
    "scroll_to_text": lambda browser, args: pointer.scroll_to_text(
        browser.view, args.required_text
    ),
    "get_dropdown_options": lambda browser, args: dropdown.dropdown_options(
        browser.view, args.required_index
    ),
    "select_dropdown_option": lambda browser, args: dropdown.select_dropdown_option(
        browser.view, args.required_index, args.required_text
    ),
    "go_back": lambda browser, _: move_in_history(browser, browser.current, "back"),
    "refresh": lambda browser, _: move_in_history(browser, browser.current, "reload"),
    "open_tab": _open_tab,
    "switch_tab": _switch_tab,
    "close_tab": _close_tab,
    "wait": _wait,
    "hover": lambda browser, args: pointer.hover(browser.view, args.required_index),
    "click_at": lambda browser, args: pointer.click_at(browser.view, args.x or 0, args.y or 0),
    "drag_and_drop": _drag_and_drop,
    "upload_file": _upload_file,
    "handle_dialog": _handle_dialog,
    "save_pdf": _save_pdf,
    "evaluate": _evaluate,
}  # without `web_search` and `extract_content`, which need more than a browser


async def run_action(
    session: Session,
    action: str,
    args: ActionArguments,
    ask: AskModel | None,
    repeats: Mapping[str, Any] | None = None,
    openings: UnaskedOpenings | None = None,
) -> Observation:
    """Run an action in the thread's browser session. Neither result nor error holds a secret.

    `repeats` is the `repeatable` of the recorded action that this one repeats; `openings` decides
    which pages it may open unasked, and allows any if it is None.
    """
    browser = await asyncio.to_thread(session.handle, HANDLE, lambda: BrowserSession(session))
    if browser.takeover is not None:
        raise TrustedToolError(
            f"{action} was not done: a person has taken the browser over. Do something else, or "
            'wait until it is given back, with ask_human(kind="browser").'
        )
    try:
        if action == "extract_content" and args.text:
            seen = Observation(await save_rows(browser, args.text, args.goal, ask))
        elif action == "extract_content":
            seen = await extract_content(browser, args.goal, ask)
        elif action == "web_search":
            seen = await _search_and_open(browser, args, repeats, openings)
        else:
            seen = await browser_loop.run(_Call(browser, action, args, repeats).run)
    except ToolError as error:
        raise type(error)(browser.secrets.redacted(str(error))) from None
    page = urlsplit(browser.current.current_url) if browser.tabs else None
    site = f"{page.scheme}://{page.netloc}" if page and page.netloc else ""
    return replace(
        seen,
        text=browser.secrets.redacted(seen.text),
        bounded=action != "extract_content",
        site=OWN_SITE if browser.tabs and browser.current.shows_own else site,
    )


async def _search_and_open(
    browser: BrowserSession,
    args: ActionArguments,
    repeats: Mapping[str, Any] | None,
    openings: UnaskedOpenings | None,
) -> Observation:
    """Search the web and open the first result; a repeated search opens the recorded one."""
    if repeats is not None:
        again = _Call(browser, "go_to_url", replace(args, url=repeats[_OPENED]), repeats)
        return await browser_loop.run(again.run)
    report = await search_for(browser.session, args.query or "")
    if not report.hits:
        raise TrustedToolError(f"Nothing was found for {args.query!r}. Use fewer or other words.")
    listed = [f"{number}. {hit.title}\n   {hit.url}" for number, hit in enumerate(report.hits, 1)]
    url = report.hits[0].url
    repeatable: dict[str, Any] | None = None
    try:
        if openings is not None and not openings.may_open(url):
            raise TrustedToolError(f"{LEFT_OUT[0].upper()}{LEFT_OUT[1:]}.")
        seen = await browser_loop.run(_Call(browser, "go_to_url", replace(args, url=url)).run)
        opened, repeatable = seen.text, {**(seen.repeatable or {}), _OPENED: url}
    except ToolError as error:
        opened = f"The first result was not opened. {error}"
    text = "\n".join([f"Results for {args.query!r}:", *listed, "", opened])
    counted = openings.by_site([url]) if openings is not None and repeatable else None
    return Observation(text, repeatable=repeatable, openings=counted)


@dataclass(frozen=True)
class _Call:
    """One action on a page. It runs on the browser's event loop."""

    browser: BrowserSession
    action: str
    args: ActionArguments
    repeats: Mapping[str, Any] | None = None

    async def run(self) -> Observation:
        browser, action = self.browser, self.action
        async with browser.lock:
            acted_on, urls = browser.current if browser.tabs else None, tab_urls(browser)
            try:
                replaced = await browser.ensure()
                if replaced and "index" in ACTION_SPECS[action].required:  # of the old page
                    return await self._observe_replacement("was not done.")
                return await self._run_handler(urls)
            except ToolError as error:
                if await browser.recover():
                    return await self._observe_replacement("was cut off.")
                raise self._with_notices(error) from error
            except (Error, ScriptError, FrameDetached, DialogOpen) as error:
                return await self._after_failure(error, acted_on, urls)
            except TimeoutError as error:
                advice = "The page may be busy: wait, or load it again with refresh."
                late = TrustedToolError(f"{action} took too long. {advice}")
                raise self._with_notices(late) from error

    async def _run_handler(self, urls: dict[int, str]) -> Observation:
        """Run the handler on the current tab, unless no page or a dialog is shown."""
        browser, spec, args = self.browser, ACTION_SPECS[self.action], self.args
        tab = browser.current if "index" in spec.required else None
        if tab is not None and tab.last_snapshot is None and tab.current_url == BLANK:
            raise TrustedToolError("The browser shows no page yet. Open one with go_to_url.")
        open_dialog = browser.dialogs.describe()
        if open_dialog and not spec.allowed_in_dialog:
            raise ToolError(f"Nothing was done. {open_dialog}")
        if self.repeats is not None:
            args = await recorded_steps.fit_step(browser, args, self.repeats)
        elif args.label and ("index" in spec.required or self.action in INDEX_IF_GIVEN):
            args = await with_labelled_index(browser.view, self.action, args)
        recorded = await recorded_steps.record_step(browser, args)
        done = await browser.dialogs.until(ACTION_HANDLERS[self.action](browser, args)) or ""
        report = ActionReport(done) if isinstance(done, str) else done
        if spec.takes_snapshot:
            text = await observe(browser, report, urls, whole_page=spec.shows_whole_page)
        else:
            text = "\n".join([report.text, *browser.notices.take()])
        if self.repeats is not None:
            recorded_steps.check_result(browser, self.repeats)
        if browser.tabs:
            recorded[recorded_steps.STATUS] = browser.current.status
        return Observation(text, repeatable=recorded)

    async def _after_failure(
        self, error: Exception, acted_on: Tab | None, urls: dict[int, str]
    ) -> Observation:
        """Show what there is after a failure of the browser, or raise ToolError."""
        browser = self.browser
        if await browser.recover():
            return await self._observe_replacement(f"was cut off: {first_line(error)}")
        if acted_on is not None and acted_on.id not in browser.tabs:
            report = ActionReport(f"{self.action}: the page closed itself.")
            return Observation(await observe(browser, report, urls, whole_page=True))
        if isinstance(error, (FrameDetached, DialogOpen)):
            return await self._observe_replacement(_CUT_OFF)
        advice = "Look at the page with get_state."
        raise ToolError(f"{self.action} failed: {first_line(error)} {advice}") from error

    async def _observe_replacement(self, done: str) -> Observation:
        report = ActionReport(f"{self.action} {done}")
        seen = await observe(self.browser, report, {}, whole_page=True)
        return Observation(seen, failed=True)

    def _with_notices(self, error: ToolError) -> ToolError:
        """Add the pending notices to an error.

        With notices, or with a page that only the next request shows, its text is not trusted.
        """
        notices = self.browser.notices.take()
        tabs = self.browser.tabs.values()
        not_shown = (tab for tab in tabs if tab.last_snapshot is None and not tab.refused)
        if notices or any(tab.current_url.startswith("http") for tab in not_shown):
            return ToolError("\n".join([str(error), *notices]))
        return error
