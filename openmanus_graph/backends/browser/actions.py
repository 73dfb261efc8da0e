"""The handlers of the actions of `browser_use`."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openmanus_graph.backends.browser import page as pages
from openmanus_graph.backends.browser.action_specs import ACTION_SPECS, HANDLE, ActionArguments
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.downloads import file_name, keep_file
from openmanus_graph.backends.browser.extraction import extract_content
from openmanus_graph.backends.browser.launch import first_line
from openmanus_graph.backends.browser.navigation import go_to, move_in_history
from openmanus_graph.backends.browser.observation import observe, tab_urls
from openmanus_graph.backends.browser.page import (
    ActionReport,
    RecordedTarget,
    find_target,
    record_point,
    record_target,
)
from openmanus_graph.backends.browser.page.frames import DialogOpen, FrameDetached
from openmanus_graph.backends.browser.tab import BLANK
from openmanus_graph.backends.search.searching import search_for
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import AskModel
from openmanus_graph.runtime.workspace import opened_file
from openmanus_graph.safety.information_flow import LEFT_OUT, UnaskedOpenings
from openmanus_graph.safety.open_beneath import size_text

MAX_WAIT_S = 60
DEFAULT_WAIT_S = 3
PDF_S = 30.0
MAX_UPLOAD_BYTES = 500 << 20
"""Of a file that is given to a page, and copied for that."""

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
    view, source = browser.current.view, args.required_index
    if args.target_index is not None:
        return await pages.drag_and_drop(view, source, args.target_index)
    if args.x is not None and args.y is not None:
        return await pages.drag_to_point(view, source, args.x, args.y)
    if args.text:
        return await pages.drag_to_text(view, source, args.text)
    raise TrustedToolError("drag_and_drop needs target_index, or text or x and y: where to drop.")


async def _input_text(browser: BrowserSession, args: ActionArguments) -> ActionReport:
    view, index, text = browser.current.view, args.required_index, args.required_text
    if not browser.secrets.mentioned(text):
        return await pages.input_text(view, index, text)
    target = await view.element(index)
    # The origin of the element's frame, as the browser knows it: a page cannot forge it.
    origin = (await view.frames.evaluate(target.world, "self.origin")).get("value", "")
    value = browser.secrets.fill_in(text, str(origin))
    return await pages.input_text(view, index, value, secret=True)


async def _send_keys(browser: BrowserSession, args: ActionArguments) -> ActionReport:
    if browser.secrets.mentioned(args.keys or ""):
        raise TrustedToolError("Nothing was typed: secrets are typed with input_text and an index.")
    return await pages.send_keys(browser.current.view, args.keys or "")


async def _scroll_up(browser: BrowserSession, args: ActionArguments) -> ActionReport:
    amount = args.scroll_amount
    if amount is None:
        size = browser.current.page.viewport_size
        amount = size["height"] if size else 800
    return await pages.scroll(browser.current.view, -abs(amount), args.index)


async def _upload_file(browser: BrowserSession, args: ActionArguments) -> ActionReport | str:
    names = [name for line in args.required_text.splitlines() if (name := line.strip())]
    paths = await asyncio.to_thread(_copy_files, browser, names)
    tab = browser.current
    chooser, tab.chooser = tab.chooser, None
    if args.index is not None:
        tab.uploading = True
        try:
            return await pages.upload_file(tab.view, args.index, paths)
        finally:
            tab.uploading = False
    if chooser is None:
        raise TrustedToolError("Name the file input by its index: no file chooser is open.")
    await chooser.set_files(paths)
    return f"Gave {', '.join(path.name for path in paths)} to the page."


def _copy_files(browser: BrowserSession, names: list[str]) -> list[Path]:
    """Copy files out of the workspace, so that no command can replace them meanwhile. Blocks."""
    if not names:
        raise TrustedToolError("upload_file needs text: paths in the workspace, one per line.")
    copies: list[Path] = []
    for name in names:
        base = os.path.basename(name)  # noqa: PTH119  # a name from the model, not a local path
        copy = browser.scratch() / base
        opened = opened_file(browser.session.workspace, name, limit=MAX_UPLOAD_BYTES)
        with opened as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        copies.append(copy)
    return copies


async def _handle_dialog(browser: BrowserSession, args: ActionArguments) -> str:
    if browser.secrets.mentioned(args.required_text):
        raise TrustedToolError("Secrets are not typed into dialogs.")
    return await browser.dialogs.answer(accept=args.accept, text=args.text)


async def _save_pdf(browser: BrowserSession, args: ActionArguments) -> str:
    tab = browser.current
    title = (await tab.page.title()).replace("/", "-") or "page"
    name = file_name(f"{title}.pdf", browser.secrets)
    folder = await asyncio.to_thread(browser.scratch)
    async with asyncio.timeout(PDF_S):
        await tab.page.pdf(path=folder / "page.pdf", print_background=True)
    kept = await asyncio.to_thread(keep_file, browser.session.workspace, folder / "page.pdf", name)
    return f"Saved the page as {kept} ({size_text((folder / 'page.pdf').stat().st_size)})."


async def _wait(browser: BrowserSession, args: ActionArguments) -> str:
    seconds = DEFAULT_WAIT_S if args.seconds is None else args.seconds
    bounded = min(max(seconds, 0), MAX_WAIT_S)
    started = time.monotonic()
    await browser.dialogs.until(browser.downloads.pause(bounded))
    return f"Waited {time.monotonic() - started:.0f} s."


ACTION_HANDLERS: dict[str, ActionHandler] = {
    "go_to_url": lambda browser, args: go_to(browser, browser.current, args.url or ""),
    "get_state": _get_state,
    "click_element": lambda browser, args: pages.click(
        browser.current.view, args.required_index, args.required_text.strip().lower()
    ),
    "input_text": _input_text,
    "send_keys": _send_keys,
    "scroll_down": lambda browser, args: pages.scroll(
        browser.current.view, args.scroll_amount, args.index, args.x
    ),
    "scroll_up": _scroll_up,
    "scroll_to_text": lambda browser, args: pages.scroll_to_text(
        browser.current.view, args.required_text
    ),
    "get_dropdown_options": lambda browser, args: pages.dropdown_options(
        browser.current.view, args.required_index
    ),
    "select_dropdown_option": lambda browser, args: pages.select_dropdown_option(
        browser.current.view, args.required_index, args.required_text
    ),
    "go_back": lambda browser, _: move_in_history(browser, browser.current, "back"),
    "refresh": lambda browser, _: move_in_history(browser, browser.current, "reload"),
    "open_tab": _open_tab,
    "switch_tab": _switch_tab,
    "close_tab": _close_tab,
    "wait": _wait,
    "hover": lambda browser, args: pages.hover(browser.current.view, args.required_index),
    "click_at": lambda browser, args: pages.click_at(
        browser.current.view, args.x or 0, args.y or 0
    ),
    "drag_and_drop": _drag_and_drop,
    "upload_file": _upload_file,
    "handle_dialog": _handle_dialog,
    "save_pdf": _save_pdf,
}
"""Without `web_search` and `extract_content`, which need more than a browser."""


_INDEX, _INDICES = "index", ("index", "target_index")
_POINT, _STATUS = "point", "status"


async def record_step(browser: BrowserSession, args: ActionArguments) -> dict[str, Any]:
    """Return what an action that is about to be done acts on: elements, or a point."""
    recorded: dict[str, Any] = {}
    if not browser.tabs:
        return recorded
    view, redact = browser.current.view, browser.secrets.redacted
    with suppress(FrameDetached, DialogOpen):
        for name in _INDICES:
            index = getattr(args, name)
            target = None if index is None else await record_target(view, index, redact)
            if target is not None:
                recorded[name] = target.as_json()
        if args.x is not None and args.y is not None:
            recorded[_POINT] = await record_point(view, args.x, args.y, redact)
    return recorded


def record_result(browser: BrowserSession) -> dict[str, Any]:
    """Return what else is kept of an action that was done."""
    return {_STATUS: browser.current.status} if browser.tabs else {}


async def fit_step(
    browser: BrowserSession, args: ActionArguments, recorded: Mapping[str, Any]
) -> ActionArguments:
    """Return a recorded action's arguments with the indices that its elements have now.

    Raises:
        ToolError: An element is not there, or it is not certain which one it is.
    """
    redact = browser.secrets.redacted
    for name in _INDICES:
        if getattr(args, name) is None:
            continue
        if name not in recorded:
            raise ToolError("It was not recorded which element that was, among very many alike.")
        target = RecordedTarget.of(recorded[name])
        found = await find_target(browser.current.view, target, redact)
        args = replace(args, index=found) if name == _INDEX else replace(args, target_index=found)
    if args.x is not None and args.y is not None:
        view = browser.current.view
        await view.settle()
        then, now = recorded.get(_POINT), await record_point(view, args.x, args.y, redact)
        if now != then:
            at = f"x={args.x:g} y={args.y:g}"
            raise ToolError(f"The recorded step does not fit. At {at} was {then}; now it is {now}.")
    return args


def check_result(browser: BrowserSession, recorded: Mapping[str, Any]) -> None:
    """Raise ToolError if an action that was done again led to a server's error, as not then."""
    status = browser.current.status if browser.tabs else 0
    if status >= 400 and status != recorded.get(_STATUS):
        address = browser.current.current_url
        raise ToolError(
            f"The recorded step was done, and {address} answered HTTP {status}, as it did not then."
        )


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
