"""From what engines answer to clean hits, each page once."""

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from openmanus_graph.backends.search.search_engine import EngineError, Hit

MAX_TITLE_CHARS = 200
MAX_SNIPPET_CHARS = 400
MAX_URL_CHARS = 2000

_TAG = re.compile(r"</?[a-zA-Z][^>]{0,200}>")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TRACKING = re.compile(
    r"utm_\w+|gclid|gbraid|wbraid|dclid|fbclid|msclkid|yclid|twclid|igshid|mc_[ce]id|_hs\w+|srsltid"
)
_USUAL_PORTS = {"http": 80, "https": 443}


def hits_of(entries: Any, title: str, url: str, snippet: str) -> list[Hit]:
    """Make hits of an engine's list, leaving out entries without a web address.

    Args:
        entries: What stands where the list should be; None counts as an empty list.
        title: The entries' key of the title.
        url: Of the address.
        snippet: Of the description.

    Raises:
        EngineError: It is no list.
    """
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise EngineError("its answer is not in the documented form")
    found: list[Hit] = []
    for entry in cast("list[object]", entries):
        if isinstance(entry, dict):
            fields = cast("Mapping[str, object]", entry)
            found += _hit(fields.get(title), fields.get(url), fields.get(snippet))
    return found


def _hit(title: object, url: object, snippet: object) -> Iterator[Hit]:
    address = url.strip() if isinstance(url, str) else ""
    if not is_web_address(address) or len(address) > MAX_URL_CHARS:
        return
    name = plain(title, MAX_TITLE_CHARS) or address
    yield Hit(name, address, plain(snippet, MAX_SNIPPET_CHARS))


def is_web_address(url: str) -> bool:
    """Say whether this is an http or https address with a host."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _USUAL_PORTS and bool(parts.hostname) and parts.port != 0
        return usable and not _UNPRINTABLE.search(url) and " " not in url
    except ValueError:  # a port that is no number, a broken IPv6 address
        return False


def plain(text: object, limit: int) -> str:
    """Turn a piece of HTML into one line of text of bearable length."""
    if not isinstance(text, str):
        return ""
    words = _UNPRINTABLE.sub("", " ".join(html.unescape(_TAG.sub("", text)).split()))
    return words if len(words) <= limit else f"{words[: limit - 1].rstrip()}…"


def identity(url: str) -> str:
    """Return what is the same for addresses of the same page."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.")
    port = f":{parts.port}" if parts.port not in (None, _USUAL_PORTS.get(parts.scheme)) else ""
    asked = [
        (key, value)
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
        if not _TRACKING.fullmatch(key)
    ]
    # A fragment is a place on the page, but in some apps it is the page.
    page = f"#{parts.fragment}" if parts.fragment.startswith(("!", "/")) else ""
    return f"{host}{port}{unquote(parts.path).rstrip('/')}?{urlencode(sorted(asked))}{page}"
