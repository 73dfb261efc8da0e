"""What each action of `browser_use` does."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from openmanus_graph.browser import page as pages
from openmanus_graph.browser.declared import Arguments
from openmanus_graph.browser.downloads import file_name, keep_file
from openmanus_graph.browser.navigation import go_back, go_to, refresh
from openmanus_graph.browser.page import PageView
from openmanus_graph.browser.window import Window
from openmanus_graph.errors import OwnWordsError
from openmanus_graph.files.contained import opened_file
from openmanus_graph.files.text_file import size_text
from openmanus_graph.workspace import Workspace

MAX_WAIT_S = 60
DEFAULT_WAIT_S = 3
PDF_S = 30.0

Run = Callable[[Window, Arguments], Awaitable[str]]
"""Returns a sentence that says what was done."""


async def _go_to_url(window: Window, given: Arguments) -> str:
    return await go_to(window, window.current, given.url or "")


async def _go_back(window: Window, given: Arguments) -> str:
    return await go_back(window, window.current)


async def _refresh(window: Window, given: Arguments) -> str:
    return await refresh(window, window.current)


async def _open_tab(window: Window, given: Arguments) -> str:
    return await go_to(window, await window.new_tab(), given.url or "")


async def _switch_tab(window: Window, given: Arguments) -> str:
    tab = window.switch(-1 if given.tab_id is None else given.tab_id)
    await tab.page.bring_to_front()
    return f"Switched to tab {tab.id}."


async def _close_tab(window: Window, given: Arguments) -> str:
    tab = window.current if given.tab_id is None else window.switch(given.tab_id)
    await tab.page.close()
    return f"Closed tab {tab.id}."


async def _click(window: Window, given: Arguments) -> str:
    return await pages.click(_view(window), given.number)


async def _click_at(window: Window, given: Arguments) -> str:
    return await pages.click_at(_view(window), given.x or 0, given.y or 0)


async def _hover(window: Window, given: Arguments) -> str:
    return await pages.hover(_view(window), given.number)


async def _drag(window: Window, given: Arguments) -> str:
    view, source = _view(window), given.number
    if given.target_index is not None:
        return await pages.drag_and_drop(view, source, given.target_index)
    if given.x is not None and given.y is not None:
        return await pages.drag_to_point(view, source, given.x, given.y)
    if given.words:
        return await pages.drag_to_text(view, source, given.words)
    raise OwnWordsError("drag_and_drop needs target_index, or text or x and y: where to drop.")


async def _input_text(window: Window, given: Arguments) -> str:
    view, secrets = _view(window), window.secrets
    if not secrets.mentioned(given.words):
        return await pages.input_text(view, given.number, given.words)
    value = secrets.filled(given.words, await _origin(view, given.number))
    return await pages.input_text(view, given.number, value, secret=True)


async def _send_keys(window: Window, given: Arguments) -> str:
    if window.secrets.mentioned(given.keys or ""):
        raise OwnWordsError("Nothing was typed: secrets are typed with input_text and an index.")
    return await pages.send_keys(_view(window), given.keys or "")


async def _scroll_down(window: Window, given: Arguments) -> str:
    return await pages.scroll(_view(window), given.scroll_amount, given.index)


async def _scroll_up(window: Window, given: Arguments) -> str:
    amount = given.scroll_amount
    if amount is None:
        size = window.current.page.viewport_size
        amount = size["height"] if size else 800
    return await pages.scroll(_view(window), -abs(amount), given.index)


async def _scroll_to_text(window: Window, given: Arguments) -> str:
    return await pages.scroll_to_text(_view(window), given.words)


async def _options(window: Window, given: Arguments) -> str:
    return await pages.dropdown_options(_view(window), given.number)


async def _select(window: Window, given: Arguments) -> str:
    return await pages.select_dropdown_option(_view(window), given.number, given.words)


async def _upload(window: Window, given: Arguments) -> str:
    names = [name for line in given.words.splitlines() if (name := line.strip())]
    paths = await asyncio.to_thread(_copies, window, names)
    tab = window.current
    chooser, tab.chooser = tab.chooser, None
    if given.index is not None:
        tab.uploading = True
        try:
            return await pages.upload_file(tab.view, given.index, paths)
        finally:
            tab.uploading = False
    if chooser is None:
        raise OwnWordsError("Name the file input by its index: no file chooser is open.")
    await chooser.set_files(paths)
    return f"Gave {', '.join(path.name for path in paths)} to the page."


async def _handle_dialog(window: Window, given: Arguments) -> str:
    if window.secrets.mentioned(given.words):
        raise OwnWordsError("Secrets are not typed into dialogs.")
    return await window.dialogs.answer(accept=given.accept, text=given.text)


async def _save_pdf(window: Window, given: Arguments) -> str:
    tab = window.current
    title = (await tab.page.title()).replace("/", "-") or "page"
    name = file_name(f"{title}.pdf", window.secrets)
    folder = await asyncio.to_thread(window.scratch)
    async with asyncio.timeout(PDF_S):
        await tab.page.pdf(path=folder / "page.pdf", print_background=True)
    kept = await asyncio.to_thread(keep_file, window.session.workspace, folder / "page.pdf", name)
    return f"Saved the page as {kept} ({size_text((folder / 'page.pdf').stat().st_size)})."


async def _wait(window: Window, given: Arguments) -> str:
    seconds = DEFAULT_WAIT_S if given.seconds is None else given.seconds
    bounded = min(max(seconds, 0), MAX_WAIT_S)
    started = time.monotonic()
    await window.dialogs.until(window.downloads.pause(bounded))
    return f"Waited {time.monotonic() - started:.0f} s."


async def _get_state(window: Window, given: Arguments) -> str:
    return ""


RUNS: dict[str, Run] = {
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
"""What the window does; a search and reading a page are more than that."""


def _view(window: Window) -> PageView:
    return window.current.view


async def _origin(view: PageView, index: int) -> str:
    """Return the origin of the frame that an element is in, which the page cannot forge."""
    target = await view.element(index)
    answer = await view.frames.send(
        target.world.session,
        "Runtime.evaluate",
        {"expression": "self.origin", "uniqueContextId": target.world.key},
    )
    return str(answer["result"].get("value", ""))


def _copies(window: Window, names: list[str]) -> list[Path]:
    """Copy files of the workspace where no command can swap them meanwhile. Blocks."""
    if not names:
        raise OwnWordsError("upload_file needs text: paths in the workspace, one per line.")
    return [_copy(window.session.workspace, name, window.scratch()) for name in names]


def _copy(workspace: Workspace, name: str, folder: Path) -> Path:
    copy = folder / os.path.basename(name)  # noqa: PTH119  # a name from the model, not a path here
    with opened_file(workspace, name) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    return copy
