"""The text of one page fetched by plain HTTP, for the model."""

import asyncio

from openmanus_graph.backends.web.client import Page, fetch
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.reading import Reading, fitted, read_page
from openmanus_graph.runtime.output import LIMIT
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.tool_traits import Observation

_ROOM = LIMIT - 500
_ERROR_ROOM = 1500
_FEW_WORDS = 20
_FEW_CHARS = 200


async def fetched(session: Session, url: str) -> Observation:
    """Fetch a page and return its text.

    Raises:
        ToolError: It could not be read, and why.
    """
    downloads = session.settings.browser.max_download_mb << 20
    page = await fetch(url, Guard.of(session.settings), download_limit_bytes=downloads)
    reading = await read_page(page, session.workspace)
    room = _ROOM if page.status < 400 else _ERROR_ROOM
    text = await asyncio.to_thread(fitted, reading.text, room, session.workspace)
    return Observation(f"{_head(page, reading)}\n\n{text}", failed=page.status >= 400)


def _is_bare(reading: Reading) -> bool:
    """Whether there is hardly any text; some scripts write no blanks between words."""
    return len(reading.text.split()) < _FEW_WORDS and len(reading.text) < _FEW_CHARS


def _head(page: Page, reading: Reading) -> str:
    """Return a header on the page, with notes such as truncation."""
    moved = f" (redirected from {page.requested})" if page.url != page.requested else ""
    rows = [f"{page.url}{moved}"]
    if page.status != 200:
        rows.append(f"HTTP {page.reason}")
    if reading.title:
        rows.append(f"Title: {reading.title}")
    if reading.page is not None and page.status < 400 and _is_bare(reading):
        rows.append("(There is hardly any text: scripts may make it. browser_use or crawl4ai "
                    "show it then.)")  # fmt: skip
    return "\n".join(rows)
