"""`fetch_page`: one page by plain HTTP, as Markdown."""

import asyncio
from collections.abc import Mapping
from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph.sessions import session_of
from openmanus_graph.tools.declaration import Observation, manus_tool
from openmanus_graph.tools.output import LIMIT
from openmanus_graph.web.client import Page, fetch
from openmanus_graph.web.guard import Guard
from openmanus_graph.web.reading import Reading, fitted, read_page

_ROOM = LIMIT - 500
_ERROR_ROOM = 1500
_FEW_WORDS = 20
_FEW_CHARS = 200


def _addresses(args: Mapping[str, Any]) -> list[str]:
    return [str(args.get("url", ""))]


@manus_tool(effect="pure", timeout_s=90, untrusted=True, addresses=_addresses)
async def fetch_page(  # noqa: D417  # the model is not shown `runtime`
    url: str, runtime: ToolRuntime[Any, Any]
) -> Observation:
    """Read a web page, PDF, Office document or data file, as Markdown or text, without a browser.

    Quick; JavaScript does not run. Other files are kept in the workspace.

    Args:
        url: The whole address.
    """
    session = session_of(runtime)
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
    """Say what was read, and what about it is worth knowing."""
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
