"""The dialogs of a page that stop everything else on it until they are answered."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from openmanus_graph.browser.background import Background
from openmanus_graph.errors import OwnWordsError

if TYPE_CHECKING:
    from playwright.async_api import Dialog

PATIENCE_S = 180.0
"""How long an unanswered dialog may hold up its page."""
GRACE_S = 0.5
FINISH_S = 10.0
"""How long what a dialog had held up may take once it is answered."""
_SHOWN_CHARS = 500

T = TypeVar("T")


class Dialogs:
    """The open dialog of a window, and what becomes of dialogs nobody answers."""

    def __init__(self, tell: Callable[[str], None], background: Background) -> None:
        self._tell = tell
        self._background = background
        self._open: Dialog | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opened = asyncio.Event()

    def seen(self, dialog: "Dialog") -> None:
        """Take a dialog the page has opened."""
        if dialog.type == "alert":  # it leaves no choice
            self._tell(f"The page showed an alert: {_shown(dialog.message)}")
            self._background.keep(_answer(dialog, accept=True, text=None))
        elif self._open is not None:
            self._tell(f"A second {dialog.type} dialog was dismissed: {_shown(dialog.message)}")
            self._background.keep(_answer(dialog, accept=False, text=None))
        else:
            self._open = dialog
            self._opened.set()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PATIENCE_S, self._give_up, dialog)

    def forget_page(self, page: object) -> None:
        """Take notice that a page was closed, and its dialog with it."""
        if self._open is not None and self._open.page is page:
            self.forget()

    def describe(self) -> str:
        """Say what waits for an answer; empty if nothing does."""
        dialog = self._open
        if dialog is None:
            return ""
        if dialog.type == "beforeunload":
            return (
                "The page asks whether to leave it; what was entered may be lost. Answer with "
                "handle_dialog: accept=true leaves, accept=false stays."
            )
        default = f" (suggested: {dialog.default_value!r})" if dialog.default_value else ""
        how = "accept=true with text" if dialog.type == "prompt" else "accept=true"
        return (
            f"A {dialog.type} dialog is open: {_shown(dialog.message)}{default}. Answer with "
            f"handle_dialog: {how}, or accept=false to cancel."
        )

    async def until(self, work: Awaitable[T]) -> T | None:
        """Wait for work, or until a dialog holds it up: it then goes on by itself later."""
        task = asyncio.ensure_future(work)
        opened = asyncio.ensure_future(self._opened.wait())
        try:
            await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():  # most end at once, and can say what they did
                await asyncio.wait({task}, timeout=GRACE_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            opened.cancel()
        if task.done():
            return task.result()
        self._background.keep(task)
        return None

    async def answer(self, *, accept: bool, text: str | None) -> str:
        """Answer the open dialog. ToolError when there is none."""
        dialog = self._open
        if dialog is None:
            raise OwnWordsError("No dialog is open. Look at the page with get_state.")
        self.forget()
        await _answer(dialog, accept=accept, text=text)
        await self._background.finish(FINISH_S)
        return f"{'Accepted' if accept else 'Dismissed'} the {dialog.type} dialog."

    def _give_up(self, dialog: "Dialog") -> None:
        if self._open is dialog:
            self.forget()
            self._tell(f"Nobody answered the {dialog.type} dialog; it was dismissed.")
            self._background.keep(_answer(dialog, accept=False, text=None))

    def forget(self) -> None:
        """Take notice that the open dialog is no more."""
        self._open = None
        self._opened.clear()
        if self._timer is not None:
            self._timer.cancel()


async def _answer(dialog: "Dialog", *, accept: bool, text: str | None) -> None:
    from playwright.async_api import Error

    with contextlib.suppress(Error):  # closed meanwhile, with its page
        if not accept:
            await dialog.dismiss()
        elif text is None:
            await dialog.accept()
        else:
            await dialog.accept(text)


def _shown(message: str) -> str:
    text = " ".join(message.split())
    return f'"{text[:_SHOWN_CHARS]}{"…" if len(text) > _SHOWN_CHARS else ""}"'
