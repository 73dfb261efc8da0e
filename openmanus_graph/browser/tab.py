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

    def answered(self, response: "Response") -> None:
        """Note the status of the tab's own document."""
        request = response.request
        if not request.is_navigation_request() or response.frame != self.page.main_frame:
            return
        if not 300 <= response.status < 400:
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
