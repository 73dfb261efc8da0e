"""What every search engine is: a question in, hits out, one kind of failure."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from openmanus_graph.state.search_engines import SearchLocale

MAX_TITLE_CHARS = 200
MAX_SNIPPET_CHARS = 400
MAX_URL_CHARS = 2000
_TAG = re.compile(r"</?[a-zA-Z][^>]{0,200}>")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TRACKING = re.compile(
    r"utm_\w+|gclid|gbraid|wbraid|dclid|fbclid|msclkid|yclid|twclid|igshid|mc_[ce]id|_hs\w+|srsltid"
)
_USUAL_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class SearchQuery:
    """A search query."""

    text: str
    count: int = 5
    """How many results are wanted."""
    locale: SearchLocale = SearchLocale()

    def text_up_to(self, characters: int, words: int | None = None) -> str:
        """Return the text, cut at a word to what an engine takes."""
        text = " ".join(self.text.split()[:words])
        if len(text) <= characters:
            return text
        whole_words = text[: characters + 1].rpartition(" ")[0]
        return whole_words or text[:characters]


@dataclass(frozen=True)
class Hit:
    """One result."""

    title: str
    url: str
    snippet: str = ""
    engine: str = ""
    """Which engine found it."""


class EngineError(Exception):
    """Why an engine gave no answer: a few words that hold no key.

    Args:
        reason: What is shown to people and models.
        passing: Whether asking again in a moment could help.
        retry_after_s: How long the engine asked to be left alone.
        quotes: Whether the reason holds words of the engine's own.
    """

    def __init__(
        self,
        reason: str,
        *,
        passing: bool = False,
        retry_after_s: float | None = None,
        quotes: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.passing = passing
        self.retry_after_s = retry_after_s
        self.quotes = quotes


class SearchEngine(Protocol):
    """A search engine as the search uses it."""

    @property
    def name(self) -> str:
        """Its name in results and messages."""
        ...

    @property
    def ignores(self) -> tuple[str, ...]:
        """Which of `lang` and `country` the engine does not support."""
        ...

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Return hits, best first; none if it found nothing. EngineError: it did not answer."""
        ...


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
            given = fields.get(url)
            address = given.strip() if isinstance(given, str) else ""
            if is_web_address(address) and len(address) <= MAX_URL_CHARS:
                name = plain(fields.get(title), MAX_TITLE_CHARS) or address
                found.append(Hit(name, address, plain(fields.get(snippet), MAX_SNIPPET_CHARS)))
    return found


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


def page_key(url: str) -> str:
    """Return a key that addresses of the same page share."""
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
