"""The handlers of the actions of `browser_use`."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from openmanus_graph.backends.browser import page as pages
from openmanus_graph.backends.browser.action_specs import ActionArguments
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.downloads import file_name, keep_file
from openmanus_graph.backends.browser.navigation import go_to, move_in_history
from openmanus_graph.backends.browser.page import ActionReport
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.workspace import opened_file
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
