"""The dialogs of a page that stop everything else on it until they are answered."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.event_loop_thread import BackgroundTasks

if TYPE_CHECKING:
    from playwright.async_api import Dialog

UNANSWERED_S = 180.0
"""How long a dialog may block its page before it is dismissed."""
GRACE_S = 0.5
UNBLOCKED_S = 10.0
"""How long to wait for blocked work once the dialog is answered."""
_SHOWN_CHARS = 500

T = TypeVar("T")


class Dialogs:
    """The open dialog of a browser session; dismisses dialogs that nobody answers."""

    def __init__(self, notify: Callable[[str], None], background: BackgroundTasks) -> None:
        self._notify = notify
        self._background = background
        self._open: Dialog | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opened = asyncio.Event()

    def on_dialog(self, dialog: "Dialog") -> None:
        """Handle a dialog that the page has opened."""
        if dialog.type == "alert":  # it leaves no choice
            self._notify(f"The page showed an alert: {_quoted(dialog.message)}")
            self._background.spawn(answer_dialog(dialog, accept=True))
        elif self._open is not None:
            self._notify(f"A second {dialog.type} dialog was dismissed: {_quoted(dialog.message)}")
            self._background.spawn(answer_dialog(dialog, accept=False))
        else:
            self._open = dialog
            self._opened.set()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(UNANSWERED_S, self._dismiss_if_unanswered, dialog)

    def on_page_closed(self, page: object) -> None:
        """Clear the open dialog if it belonged to this page."""
        if self._open is not None and self._open.page is page:
            self.clear()

    @property
    def question(self) -> tuple[str, str]:
        """The open dialog's type and the page's words, for a person; empty if there is none."""
        dialog = self._open
        return (dialog.type, dialog.message) if dialog is not None else ("", "")

    def describe(self) -> str:
        """Describe the open dialog for the model; empty if there is none."""
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
            f"A {dialog.type} dialog is open: {_quoted(dialog.message)}{default}. Answer with "
            f"handle_dialog: {how}, or accept=false to cancel."
        )

    async def until(self, work: Awaitable[T]) -> T | None:
        """Await work, or return None when a dialog blocks it: it goes on in the background."""
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
        self._background.spawn(task)
        return None

    async def answer(self, *, accept: bool, text: str | None) -> str:
        """Answer the open dialog. ToolError when there is none."""
        dialog = self._open
        if dialog is None:
            raise TrustedToolError("No dialog is open. Look at the page with get_state.")
        self.clear()
        await answer_dialog(dialog, accept=accept, text=text)
        await self._background.wait(UNBLOCKED_S)
        return f"{'Accepted' if accept else 'Dismissed'} the {dialog.type} dialog."

    def _dismiss_if_unanswered(self, dialog: "Dialog") -> None:
        if self._open is dialog:
            self.clear()
            self._notify(f"Nobody answered the {dialog.type} dialog; it was dismissed.")
            self._background.spawn(answer_dialog(dialog, accept=False))

    def clear(self) -> None:
        """Drop the open dialog and its timer."""
        self._open = None
        self._opened.clear()
        if self._timer is not None:
            self._timer.cancel()


async def answer_dialog(dialog: "Dialog", *, accept: bool, text: str | None = None) -> None:
    """Accept or dismiss a dialog; a prompt is answered with the text."""
    from playwright.async_api import Error

    with contextlib.suppress(Error):  # closed meanwhile, with its page
        if not accept:
            await dialog.dismiss()
        elif text is None:
            await dialog.accept()
        else:
            await dialog.accept(text)


def _quoted(message: str) -> str:
    text = " ".join(message.split())
    return f'"{text[:_SHOWN_CHARS]}{"…" if len(text) > _SHOWN_CHARS else ""}"'
