"""The handlers of the actions of `browser_use`."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from openmanus_graph.backends.browser import page as pages
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.declared import Arguments
from openmanus_graph.backends.browser.downloads import file_name, keep_file
from openmanus_graph.backends.browser.navigation import go_back, go_to, refresh
from openmanus_graph.backends.browser.page import PageView
from openmanus_graph.backends.files.text_file import size_text
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.workspace import Workspace, opened_file

MAX_WAIT_S = 60
DEFAULT_WAIT_S = 3
PDF_S = 30.0

ActionHandler = Callable[[BrowserSession, Arguments], Awaitable[str]]
"""Returns a sentence that says what was done."""


async def _go_to_url(browser: BrowserSession, args: Arguments) -> str:
    return await go_to(browser, browser.current, args.url or "")


async def _go_back(browser: BrowserSession, args: Arguments) -> str:
    return await go_back(browser, browser.current)


async def _refresh(browser: BrowserSession, args: Arguments) -> str:
    return await refresh(browser, browser.current)


async def _open_tab(browser: BrowserSession, args: Arguments) -> str:
    return await go_to(browser, await browser.new_tab(), args.url or "")


async def _switch_tab(browser: BrowserSession, args: Arguments) -> str:
    tab = browser.switch(-1 if args.tab_id is None else args.tab_id)
    await tab.page.bring_to_front()
    return f"Switched to tab {tab.id}."


async def _close_tab(browser: BrowserSession, args: Arguments) -> str:
    tab = browser.current if args.tab_id is None else browser.switch(args.tab_id)
    await tab.page.close()
    return f"Closed tab {tab.id}."


async def _click(browser: BrowserSession, args: Arguments) -> str:
    return await pages.click(_view(browser), args.number)


async def _click_at(browser: BrowserSession, args: Arguments) -> str:
    return await pages.click_at(_view(browser), args.x or 0, args.y or 0)


async def _hover(browser: BrowserSession, args: Arguments) -> str:
    return await pages.hover(_view(browser), args.number)


async def _drag(browser: BrowserSession, args: Arguments) -> str:
    view, source = _view(browser), args.number
    if args.target_index is not None:
        return await pages.drag_and_drop(view, source, args.target_index)
    if args.x is not None and args.y is not None:
        return await pages.drag_to_point(view, source, args.x, args.y)
    if args.words:
        return await pages.drag_to_text(view, source, args.words)
    raise TrustedToolError("drag_and_drop needs target_index, or text or x and y: where to drop.")


async def _input_text(browser: BrowserSession, args: Arguments) -> str:
    view, secrets = _view(browser), browser.secrets
    if not secrets.mentioned(args.words):
        return await pages.input_text(view, args.number, args.words)
    value = secrets.filled(args.words, await _origin(view, args.number))
    return await pages.input_text(view, args.number, value, secret=True)


async def _send_keys(browser: BrowserSession, args: Arguments) -> str:
    if browser.secrets.mentioned(args.keys or ""):
        raise TrustedToolError("Nothing was typed: secrets are typed with input_text and an index.")
    return await pages.send_keys(_view(browser), args.keys or "")


async def _scroll_down(browser: BrowserSession, args: Arguments) -> str:
    return await pages.scroll(_view(browser), args.scroll_amount, args.index)


async def _scroll_up(browser: BrowserSession, args: Arguments) -> str:
    amount = args.scroll_amount
    if amount is None:
        size = browser.current.page.viewport_size
        amount = size["height"] if size else 800
    return await pages.scroll(_view(browser), -abs(amount), args.index)


async def _scroll_to_text(browser: BrowserSession, args: Arguments) -> str:
    return await pages.scroll_to_text(_view(browser), args.words)


async def _options(browser: BrowserSession, args: Arguments) -> str:
    return await pages.dropdown_options(_view(browser), args.number)


async def _select(browser: BrowserSession, args: Arguments) -> str:
    return await pages.select_dropdown_option(_view(browser), args.number, args.words)


async def _upload(browser: BrowserSession, args: Arguments) -> str:
    names = [name for line in args.words.splitlines() if (name := line.strip())]
    paths = await asyncio.to_thread(_copies, browser, names)
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


async def _handle_dialog(browser: BrowserSession, args: Arguments) -> str:
    if browser.secrets.mentioned(args.words):
        raise TrustedToolError("Secrets are not typed into dialogs.")
    return await browser.dialogs.answer(accept=args.accept, text=args.text)


async def _save_pdf(browser: BrowserSession, args: Arguments) -> str:
    tab = browser.current
    title = (await tab.page.title()).replace("/", "-") or "page"
    name = file_name(f"{title}.pdf", browser.secrets)
    folder = await asyncio.to_thread(browser.scratch)
    async with asyncio.timeout(PDF_S):
        await tab.page.pdf(path=folder / "page.pdf", print_background=True)
    kept = await asyncio.to_thread(keep_file, browser.session.workspace, folder / "page.pdf", name)
    return f"Saved the page as {kept} ({size_text((folder / 'page.pdf').stat().st_size)})."


async def _wait(browser: BrowserSession, args: Arguments) -> str:
    seconds = DEFAULT_WAIT_S if args.seconds is None else args.seconds
    bounded = min(max(seconds, 0), MAX_WAIT_S)
    started = time.monotonic()
    await browser.dialogs.until(browser.downloads.pause(bounded))
    return f"Waited {time.monotonic() - started:.0f} s."


async def _get_state(browser: BrowserSession, args: Arguments) -> str:
    return ""


ACTION_HANDLERS: dict[str, ActionHandler] = {
    "go_to_url": _go_to_url,
    "get_state": _get_state,
    "click_element": _click,
    "input_text": _input_text,
    "send_keys": _send_keys,
    "scroll_down": _scroll_down,
    "scroll_up": _scroll_up,
    "scroll_to_text": _scroll_to_text,
    "get_dropdown_options": _options,
    "select_dropdown_option": _select,
    "go_back": _go_back,
    "refresh": _refresh,
    "open_tab": _open_tab,
    "switch_tab": _switch_tab,
    "close_tab": _close_tab,
    "wait": _wait,
    "hover": _hover,
    "click_at": _click_at,
    "drag_and_drop": _drag,
    "upload_file": _upload,
    "handle_dialog": _handle_dialog,
    "save_pdf": _save_pdf,
}
"""Without `web_search` and `extract_content`, which need more than a browser."""


def _view(browser: BrowserSession) -> PageView:
    return browser.current.view


async def _origin(view: PageView, index: int) -> str:
    """Return the origin of the frame that an element is in, which the page cannot forge."""
    target = await view.element(index)
    answer = await view.frames.send(
        target.world.session,
        "Runtime.evaluate",
        {"expression": "self.origin", "uniqueContextId": target.world.key},
    )
    return str(answer["result"].get("value", ""))


def _copies(browser: BrowserSession, names: list[str]) -> list[Path]:
    """Copy files out of the workspace, so that no command can replace them meanwhile. Blocks."""
    if not names:
        raise TrustedToolError("upload_file needs text: paths in the workspace, one per line.")
    return [_copy(browser.session.workspace, name, browser.scratch()) for name in names]


def _copy(workspace: Workspace, name: str, folder: Path) -> Path:
    copy = folder / os.path.basename(name)  # noqa: PTH119  # a name from the model, not a local path
    with opened_file(workspace, name) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    return copy
