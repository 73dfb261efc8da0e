"""One tab of a browser session, the tabs about to open, its dialogs, and notices for the model."""

import asyncio
import contextlib
import io
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePath
from typing import Any, TypeVar

from playwright.async_api import Dialog, Download, Error, FileChooser, Frame, Page, Response

from openmanus_graph.backends.browser.connection import Connection
from openmanus_graph.backends.browser.page.snapshot import Snapshot
from openmanus_graph.backends.browser.page.view import PageView
from openmanus_graph.backends.browser.secrets import Secrets
from openmanus_graph.backends.web.proxy import MARK
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.process import BackgroundTasks
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, opened_file, opened_place
from openmanus_graph.safety.open_beneath import size_text

BLANK = "about:blank"
TAB_OPENS_S = 3.0  # how long to wait for a tab that a page has requested
UNANSWERED_S = 180.0  # how long a dialog may block its page before it is dismissed
GRACE_S = 0.5
UNBLOCKED_S = 10.0  # how long to wait for blocked work once the dialog is answered
MAX_NOTICES = 30
_SHOWN_CHARS = 500

T = TypeVar("T")


@dataclass(eq=False)
class Tab:
    id: int
    page: Page
    view: PageView
    connection: Connection  # of the context that the page is in
    opener: int = 0  # the tab that was the current one when it was opened: the one to go back to
    url: str = BLANK  # the last known address, to load again if the page or the browser dies
    status: int = 0  # of the document's own request; 0 if it was not asked for by HTTP
    media_type: str = ""
    size: int = 0  # of the document in bytes, by its Content-Length; 0 if there was none
    refused: bool = False  # the document is an error page of our proxy, which refused the request
    crashed: bool = False
    uploading: bool = False  # an upload by index is running, so that a file chooser is not reported
    chooser: FileChooser | None = None
    last_snapshot: Snapshot | None = None
    file: str = ""
    """The last address opened, if it is a file and no page: it is read instead of the page."""
    _previous: tuple[int, bool, str, int] | None = None
    """Status, refusal, media type and size of the document shown while another one loads."""

    def navigation_started(self) -> None:
        """Reset the document's facts: another document was requested."""
        if self._previous is None:
            self._previous = (self.status, self.refused, self.media_type, self.size)
        self.status, self.media_type, self.file = 0, "", ""

    def navigation_committed(self) -> None:
        """Drop the previous document's facts: another one is shown, or none."""
        self._previous = None

    def became_download(self) -> None:
        """Restore the previous document's facts: the request became a download."""
        if self._previous is not None:
            self.status, self.refused, self.media_type, self.size = self._previous
            self._previous = None

    def on_response(self, response: Response) -> None:
        request = response.request
        if not request.is_navigation_request() or response.frame != self.page.main_frame:
            return
        if not 300 <= response.status < 400:
            self.navigation_started()
            self.status = response.status
            self.refused = MARK in response.headers
            header = response.headers.get("content-type", "")
            self.media_type = header.partition(";")[0].strip().lower()
            length = response.headers.get("content-length", "")
            self.size = int(length) if length.isdecimal() else 0

    def on_frame_navigated(self, frame: Frame) -> None:
        if frame == self.page.main_frame:
            self.navigation_committed()

    @property
    def is_own(self) -> bool:
        """Whether the tab is for pages that the agent made."""
        return self.connection.guard.own is not None

    @property
    def shows_own(self) -> bool:
        """Whether it shows a page that the agent made, and none that such a page links to."""
        url = self.current_url
        with contextlib.suppress(ToolError):  # an address that we do not open
            return self.is_own and (not url.startswith("http") or self.connection.guard.is_own(url))
        return False

    @property
    def is_pdf(self) -> bool:
        return self.media_type == "application/pdf"

    @property
    def current_url(self) -> str:
        return self.url if self.crashed or self.page.is_closed() else self.page.url


class PendingTabs:
    """Counts tabs that were requested and that Playwright has not reported yet."""

    def __init__(self) -> None:
        self._expected = 0
        self._none = asyncio.Event()
        self._none.set()

    async def watch(self, page: Page) -> None:

        def on_requested(_: object) -> None:
            self._expected += 1
            self._none.clear()

        session = await page.context.new_cdp_session(page)
        session.on("Page.windowOpen", on_requested)
        await session.send("Page.enable")

    def tab_opened(self) -> None:
        self._expected = max(0, self._expected - 1)
        if not self._expected:
            self._none.set()

    async def wait(self) -> None:
        """Wait until all requested tabs are open, for a bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAB_OPENS_S):
                await self._none.wait()
        self._expected = 0
        self._none.set()


class Dialogs:
    """The open dialog of a browser session; dismisses those without an answer."""

    def __init__(self, notify: Callable[[str], None], background: BackgroundTasks) -> None:
        self._notify = notify
        self._background = background
        self._open: Dialog | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opened = asyncio.Event()

    def on_dialog(self, dialog: Dialog) -> None:
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
        if self._open is not None and self._open.page is page:
            self.clear()

    @property
    def question(self) -> tuple[str, str]:
        """The open dialog's type and the page's words, for a person; empty if there is none."""
        dialog = self._open
        return (dialog.type, dialog.message) if dialog is not None else ("", "")

    def describe(self) -> str:
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
        """Await work; if a dialog blocks it, return None and let it run in the background."""
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
        dialog = self._open
        if dialog is None:
            raise TrustedToolError("No dialog is open. Look at the page with get_state.")
        self.clear()
        await answer_dialog(dialog, accept=accept, text=text)
        await self._background.wait(UNBLOCKED_S)
        return f"{'Accepted' if accept else 'Dismissed'} the {dialog.type} dialog."

    def _dismiss_if_unanswered(self, dialog: Dialog) -> None:
        if self._open is dialog:
            self.clear()
            self._notify(f"The {dialog.type} dialog was not answered and was dismissed.")
            self._background.spawn(answer_dialog(dialog, accept=False))

    def clear(self) -> None:
        self._open = None
        self._opened.clear()
        if self._timer is not None:
            self._timer.cancel()


async def answer_dialog(dialog: Dialog, *, accept: bool, text: str | None = None) -> None:
    """Accept or dismiss a dialog; a prompt is answered with the text."""
    with contextlib.suppress(Error):  # closed meanwhile, with its page
        if not accept:
            await dialog.dismiss()
        elif text is None:  # a prompt keeps the text that the page suggests
            await dialog.accept()
        else:
            await dialog.accept(text)


def _quoted(message: str) -> str:
    text = " ".join(message.split())
    return f'"{text[:_SHOWN_CHARS]}{"…" if len(text) > _SHOWN_CHARS else ""}"'


class PendingNotices:
    """Sentences to add to the next observation, each once."""

    def __init__(self) -> None:
        self._notices: list[str] = []
        self._added = asyncio.Event()

    def add(self, text: str) -> None:
        """Add a notice; dropped when there are too many."""
        if len(self._notices) < MAX_NOTICES:
            self._notices.append(text)
        self._added.set()

    def take(self) -> list[str]:
        notices, self._notices = list(dict.fromkeys(self._notices)), []
        self._added.clear()
        return notices

    async def wait(self, limit_s: float) -> list[str]:
        """Wait for a notice, at most that long, and return all there are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._added.wait()
        return self.take()


DOWNLOADS_FOLDER = "downloads"
MAX_UPLOAD_BYTES = 500 << 20  # of a file that is given to a page, and copied for that
DOWNLOAD_WAIT_S = 10.0  # how long an observation waits for a download that has just begun
_POLL_S = 0.2
_NAME_BYTES = 120
_MAX_AT_ONCE = 10
_UNSAFE_CHARS = re.compile(r"[^\w.,()+@=~ -]+")
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class _RunningDownload:
    name: str
    size: int = 0


class Downloads:
    def __init__(
        self, session: Session, notify: Callable[[str], None], secrets: Callable[[], Secrets]
    ) -> None:
        self._session = session
        self._notify = notify
        self._secrets = secrets
        self._running: dict[asyncio.Task[None], _RunningDownload] = {}

    def begin(self, download: Download) -> None:
        running = _RunningDownload(file_name(download.suggested_filename, self._secrets()))
        if len(self._running) >= _MAX_AT_ONCE:
            self._notify(f"The download {running.name} was refused: too many run already.")
            task = asyncio.ensure_future(download.cancel())
        else:
            task = asyncio.ensure_future(self._save(download, running))
        self._running[task] = running
        task.add_done_callback(self._running.pop)

    async def wait(self) -> None:
        """Wait for running downloads, for a bounded time, and report those that still run."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=DOWNLOAD_WAIT_S)
        for running in self._running.values():
            so_far = f", {size_text(running.size)} so far" if running.size else ""
            self._notify(f"Still downloading {running.name}{so_far}; `wait` to see it end.")

    async def pause(self, limit_s: float) -> None:
        """Wait that long, or until the downloads that run have ended."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=limit_s)
        else:
            await asyncio.sleep(limit_s)

    def stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def _save(self, download: Download, running: _RunningDownload) -> None:
        limit = self._session.settings.browser.max_download_mb << 20

        async def stop_if_too_large() -> None:
            while running.size <= limit:
                await asyncio.sleep(_POLL_S)
                running.size = max(running.size, _size_so_far(download))
            await download.cancel()

        watcher = asyncio.ensure_future(stop_if_too_large())
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="openmanus-download-"))
        path, said = folder / "file", ""
        try:
            await download.save_as(path)
            running.size = path.stat().st_size
            if running.size <= limit:
                workspace = self._session.workspace
                saved = await asyncio.to_thread(keep_file, workspace, path, running.name)
                said = f"Downloaded {saved} ({size_text(running.size)})."
        except (Error, OSError, ToolError) as error:
            said = f"The download of {running.name} failed: {str(error).splitlines()[0]}"
        finally:
            watcher.cancel()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            with contextlib.suppress(Error):
                await download.delete()
        if running.size > limit:
            said = (
                f"The download {running.name} was stopped: it is larger than {size_text(limit)}. "
                "A person can raise [browser] max_download_mb."
            )
        self._notify(said)


def _size_so_far(download: Any) -> int:
    """Return how many bytes have arrived. Playwright has no public API for their path."""
    artifact = getattr(getattr(download, "_impl_obj", None), "_artifact", None)
    target = getattr(artifact, "_initializer", {}).get("absolutePath")
    sizes = [0]
    for path in (target, f"{target}.crdownload") if target else ():
        with contextlib.suppress(OSError):
            sizes.append(Path(path).stat().st_size)
    return max(sizes)


def file_name(suggested: str, secrets: Secrets) -> str:
    """Turn the name that a page suggests into a safe file name without secrets."""
    name = _UNSAFE_CHARS.sub("_", suggested.replace("\\", "/").rpartition("/")[2]).strip(" ._")
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix) > 12:
        stem, dot, suffix = name, "", ""
    room = _NAME_BYTES - len(suffix.encode()) - 1
    stem = stem.encode()[:room].decode(errors="ignore").strip(" ._")
    name = f"{stem or 'download'}{dot}{suffix}"
    return f"file{Path(name).suffix}" if secrets.in_file_name(suggested) else name


def keep_file(workspace: Workspace, source: Path | bytes, name: str) -> str:
    """Put a file or its content into the downloads under a free name; return its path. Blocks."""
    with opened_place(workspace, f"{DOWNLOADS_FOLDER}/{name}", "save", create=True) as place:
        unused, target = _new_file(place.folder, name)
        opened = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
        with opened as content, os.fdopen(target, "wb") as saved:
            shutil.copyfileobj(content, saved)
    return str(PurePath(place.path).with_name(unused))


def _new_file(folder: int, name: str) -> tuple[str, int]:
    """Create a file under the name, or that name and a number; return name and descriptor."""
    path = PurePath(name)
    for number in count(1):
        unused = name if number == 1 else f"{path.stem} ({number}){path.suffix}"
        with contextlib.suppress(FileExistsError):
            return unused, os.open(unused, _NEW_FILE, 0o666, dir_fd=folder)
    raise AssertionError  # counting has no end


def copy_files(workspace: Workspace, names: Sequence[str], scratch: Path) -> list[Path]:
    """Copy files out of the workspace, so that no command can replace them meanwhile. Blocks."""
    if not names:
        raise TrustedToolError("upload_file needs text: paths in the workspace, one per line.")
    copies: list[Path] = []
    for number, name in enumerate(names):
        folder = scratch / str(number)  # two may have one name
        folder.mkdir()
        copy = folder / os.path.basename(name)  # noqa: PTH119  # a name from the model, not a local path
        opened = opened_file(workspace, name, limit=MAX_UPLOAD_BYTES)
        with opened as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        copies.append(copy)
    return copies
