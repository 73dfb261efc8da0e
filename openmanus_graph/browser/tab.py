"""One tab of a window."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from openmanus_graph.browser.page import PageView, Snapshot
from openmanus_graph.web.proxy import MARK

if TYPE_CHECKING:
    from playwright.async_api import FileChooser, Page, Response

BLANK = "about:blank"


@dataclass(eq=False)
class Tab:
    """A page and what the model was told of it."""

    id: int
    page: "Page"
    view: PageView
    opener: int = 0
    """The tab that was the current one when it was opened: the one to go back to."""
    url: str = BLANK
    """Where it was last, for the case that the page or the browser dies."""
    status: int = 0
    """Of the document's own request; 0 if it was not asked for by HTTP."""
    media_type: str = ""
    size: int = 0
    """Of the document in bytes, as far as the server tells."""
    refused: bool = False
    """The document is our proxy's own: it says why there is no other."""
    crashed: bool = False
    uploading: bool = False
    """We are answering the page's wish for files."""
    chooser: "FileChooser | None" = None
    """What the page opened to ask for files."""
    seen: Snapshot | None = None
    """The look that the model was told of last."""
    file: str = ""
    """The address that was gone to last, if it is no page: that is read instead of the page."""
    _shown: tuple[int, bool, str, int] | None = None
    """What was known of the document that is still shown while another is asked for."""

    def leave(self) -> None:
        """Note that another document is asked for."""
        if self._shown is None:
            self._shown = (self.status, self.refused, self.media_type, self.size)
        self.status, self.media_type, self.file = 0, "", ""

    def arrive(self) -> None:
        """Note that another document is shown, or none at all."""
        self._shown = None

    def stay(self) -> None:
        """Note that no other document came: it is kept as a download."""
        if self._shown is not None:
            self.status, self.refused, self.media_type, self.size = self._shown
            self._shown = None

    def answered(self, response: "Response") -> None:
        """Note the status of the tab's own document."""
        request = response.request
        if not request.is_navigation_request() or response.frame != self.page.main_frame:
            return
        if not 300 <= response.status < 400:
            self.leave()
            self.status = response.status
            self.refused = MARK in response.headers
            header = response.headers.get("content-type", "")
            self.media_type = header.partition(";")[0].strip().lower()
            length = response.headers.get("content-length", "")
            self.size = int(length) if length.isdecimal() else 0

    def crash(self) -> None:
        """Note that the page's process has died."""
        self.crashed = True

    @property
    def is_document(self) -> bool:
        """Whether the browser only displays what it shows: a PDF."""
        return self.media_type == "application/pdf"

    @property
    def shows(self) -> bool:
        """Whether there is anything to act on."""
        return self.seen is not None or self.place != BLANK

    @property
    def place(self) -> str:
        """Its address, as it is now."""
        return self.url if self.crashed or self.page.is_closed() else self.page.url
