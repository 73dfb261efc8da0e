"""HTML files of a workspace, as the page may show them: a model or a site may have written them.

A page's own script can send out what the page holds, whatever its policy says: WebRTC heeds none,
and browsers cannot switch it off. So scripts run only in charts that we made ourselves, and in a
file whose scripts a person allowed, as it was then. Any other is shown without scripts, and without
the elements that open connections by themselves, which no policy covers either.
"""

import re

from openmanus_graph.backends.charts.report import digest_of, is_own_page
from openmanus_graph.backends.files.page_encoding import decode_page
from openmanus_graph.runtime.workspace import Workspace

MAX_SHOWN = 32 << 20
"""Bytes of an HTML file that is shown; a larger one is only downloaded."""
_SHARED = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
STILL_POLICY = f"sandbox; {_SHARED}"
"""For everything: no scripts, no network, no forms, no origin; nothing happens by itself."""
SCRIPTS_POLICY = (
    f"sandbox allow-scripts; {_SHARED}; script-src 'unsafe-inline' 'unsafe-eval'; media-src data:"
)
_CONNECTING = re.compile(
    r"<(?=(?:/?)(?:link|meta|base|i?frame|fencedframe|portal|object|embed|applet)\b)(/?)\w+",
    re.IGNORECASE,
)
"""Tags of elements that connect (`preconnect`, `dns-prefetch`, `refresh`) or hold another page."""


def shown_html(workspace: Workspace, content: bytes, allowed: str | None) -> tuple[bytes, str]:
    """Return what is sent of an HTML file, and its policy. Blocks.

    Args:
        workspace: Of the thread.
        content: The whole file.
        allowed: The digest of the file whose scripts a person allowed.
    """
    digest = digest_of(content)
    if digest == allowed or is_own_page(workspace, digest):
        return content, SCRIPTS_POLICY
    return still_html(content), STILL_POLICY


def still_html(content: bytes) -> bytes:
    """Return a page, as UTF-8, without elements that connect or hold other pages.

    A parser takes `bgsound`, which does nothing, as it takes `link`: it has no content, and may
    stand in the head. Tags are written out in any HTML, never by entities.
    """
    text = decode_page(content).removeprefix("\ufeff")
    return _CONNECTING.sub(r"<\1bgsound", text).encode("utf-8", "replace")
