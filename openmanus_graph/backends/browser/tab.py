"""One tab of a browser session, and those that are about to open."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openmanus_graph.backends.browser.page import PageView, Snapshot
from openmanus_graph.backends.web.proxy import MARK

if TYPE_CHECKING:
    from playwright.async_api import FileChooser, Frame, Page, Response

BLANK = "about:blank"
TAB_OPENS_S = 3.0
"""How long to wait for a tab that a page has requested."""


@dataclass(eq=False)
class Tab:
    """A page and the last snapshot that the model saw of it."""

    id: int
    page: "Page"
    view: PageView
    opener: int = 0
    """The tab that was the current one when it was opened: the one to go back to."""
    url: str = BLANK
    """The last known address, to load again if the page or the browser dies."""
    status: int = 0
    """Of the document's own request; 0 if it was not asked for by HTTP."""
    media_type: str = ""
    size: int = 0
    """Of the document in bytes, by its Content-Length; 0 if there was none."""
    refused: bool = False
    """The document is an error page of our proxy, which refused the request."""
    crashed: bool = False
    uploading: bool = False
    """An upload by index is running, so that a file chooser is not reported."""
    chooser: "FileChooser | None" = None
    """The file chooser that the page has opened."""
    last_snapshot: Snapshot | None = None
    """The snapshot that the model saw last."""
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

    def on_response(self, response: "Response") -> None:
        """Record status, media type and size of the tab's main document."""
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

    def on_frame_navigated(self, frame: "Frame") -> None:
        """Take note that the tab shows another document."""
        if frame == self.page.main_frame:
            self.navigation_committed()

    def on_crash(self, _page: object) -> None:
        """Record that the page's process has crashed."""
        self.crashed = True

    @property
    def is_pdf(self) -> bool:
        """Whether the tab displays a PDF."""
        return self.media_type == "application/pdf"

    @property
    def current_url(self) -> str:
        """The address that the tab shows now."""
        return self.url if self.crashed or self.page.is_closed() else self.page.url


class PendingTabs:
    """Counts tabs that were requested and that Playwright has not reported yet."""

    def __init__(self) -> None:
        self._expected = 0
        self._none = asyncio.Event()
        self._none.set()

    async def watch(self, page: "Page") -> None:
        """Subscribe to the tabs that a page requests."""
        session = await page.context.new_cdp_session(page)
        session.on("Page.windowOpen", self._on_requested)
        await session.send("Page.enable")

    def tab_opened(self) -> None:
        """Count one pending tab as opened."""
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

    def _on_requested(self, _: object) -> None:
        self._expected += 1
        self._none.clear()
