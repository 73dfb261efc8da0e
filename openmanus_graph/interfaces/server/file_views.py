"""How a browser shows a file: its kind, and a page without what connects. Needs no extra."""

import mimetypes
import re

from openmanus_graph.backends.files.text_file import decode_page

HTML = "text/html"
VIEWS = {"text/markdown": "markdown", HTML: "html", "application/pdf": "pdf"}
TEXTS = ("application/json", "application/xml", "application/x-sh", "application/toml",
         "application/javascript", "application/x-yaml", "application/yaml")  # fmt: skip
SHOWN = ("image", "audio", "video")
"""Families that a browser may show. Others are saved as files."""
_CONNECTING = re.compile(
    r"<(?=(?:/?)(?:link|meta|base|i?frame|fencedframe|portal|object|embed|applet)\b)(/?)\w+",
    re.IGNORECASE,
)
"""Tags of elements that connect (`preconnect`, `dns-prefetch`, `refresh`) or hold another page."""


def view_of(path: str) -> tuple[str, str]:
    """Return the media type of a file, and how the page shows it."""
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if path.endswith((".md", ".markdown")):
        media_type = "text/markdown"
    family = media_type.partition("/")[0]
    other = "text" if family == "text" or media_type in TEXTS else "none"
    return media_type, VIEWS.get(media_type, family if family in SHOWN else other)


def still_html(content: bytes) -> bytes:
    """Return a page, as UTF-8, without elements that connect or hold other pages.

    A parser treats `bgsound`, which does nothing, like `link`: it has no content, and may be in the
    head. In any HTML, tags are written out, never by entities.
    """
    text = decode_page(content).removeprefix("\ufeff")
    return _CONNECTING.sub(r"<\1bgsound", text).encode("utf-8", "replace")
