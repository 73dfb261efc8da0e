"""The interface of search engines, and the HTTP requests that they share."""

import asyncio
import html
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import httpx2

from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.backends.models.failures import retry_after_s
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.json_values import json_or
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
    text: str
    count: int = 5  # how many results are wanted
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
    title: str
    url: str
    snippet: str = ""
    engine: str = ""  # which engine found it


@dataclass(eq=False)
class EngineError(Exception):
    """Why an engine gave no answer."""

    reason: str  # a few words without a key, for people and models
    _: KW_ONLY
    passing: bool = False  # whether a retry could help
    retry_after_s: float | None = None  # how long the engine asked to wait
    quotes: bool = False  # whether the reason quotes the engine


@dataclass(frozen=True)
class SearchEngine:
    name: str  # the name in results and messages
    page: Callable[[SearchQuery, int], Awaitable[list[Hit]]]
    """Returns the hits of a page, counted from 0. EngineError: the engine did not answer."""
    page_size: int | None = None  # a shorter page is the last; None: there is only one
    ignores: tuple[str, ...] = ()  # which of `lang` and `country` the engine does not support

    async def search(self, query: SearchQuery) -> list[Hit]:
        """Return hits, best first; none if it found nothing. EngineError: it did not answer."""
        size = min(query.count, self.page_size or query.count)
        return await paged(lambda number: self.page(query, number), query.count, size)


def hits_of(entries: Any, *, url: str = "url", snippet: str) -> list[Hit]:
    """Return the hits of an engine's list, without entries that have no web address.

    None counts as an empty list; EngineError for anything else. `url` and `snippet` are the keys of
    an entry's address and text.
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
                name = plain(fields.get("title"), MAX_TITLE_CHARS) or address
                found.append(Hit(name, address, plain(fields.get(snippet), MAX_SNIPPET_CHARS)))
    return found


def is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _USUAL_PORTS and bool(parts.hostname) and parts.port != 0
        return usable and not _UNPRINTABLE.search(url) and " " not in url
    except ValueError:  # a port that is not a number, a broken IPv6 address
        return False


def plain(text: object, limit: int) -> str:
    """Turn a piece of HTML into one line of text with at most `limit` characters."""
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


MAX_ANSWER_BYTES = 5_000_000
MAX_PAGES = 5
_MAX_WORDS_CHARS = 160
_LOCAL = ("all://localhost", "all://127.0.0.1", "all://[::1]")
_CAUSES = {
    "Name or service not known": "no such host",
    "No address associated": "no such host",
    "Temporary failure in name resolution": "names cannot be resolved: is there a network?",
    "nodename nor servname": "no such host",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted here",
    "All connection attempts failed": "connection refused",
    "Connection refused": "connection refused",
    "Network is unreachable": "no network",
}


async def ask(
    method: str,
    url: str,
    headers: Mapping[str, str],
    *,
    params: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
    refusals: Mapping[int, str] = MappingProxyType({}),
) -> Mapping[str, Any]:
    """Return the JSON object with which an engine answers. EngineError says why there is none.

    `refusals` are statuses with a special meaning for this engine, and that meaning.
    """
    sent, content = {"Accept": "application/json", **headers}, bytearray()
    try:
        async with (
            await asyncio.to_thread(_client) as client,
            client.stream(method, url, params=params, headers=sent, json=body) as answer,
        ):
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > MAX_ANSWER_BYTES:
                    raise EngineError("its answer is longer than 5 MB")
    except httpx2.TimeoutException as error:
        raise EngineError("it did not answer in time", passing=True) from error
    except httpx2.HTTPError as error:
        known = (words for sign, words in _CAUSES.items() if sign in str(error))
        cause = next(known, type(error).__name__)  # a few words, without addresses
        host = urlsplit(url).hostname
        raise EngineError(f"{host} cannot be reached ({cause})", passing=True) from error
    except httpx2.InvalidURL as error:
        raise EngineError("its address is not a web address") from error
    if answer.status_code != HTTPStatus.OK:
        said = _said(bytes(content), headers.values())
        raise _refusal(answer.status_code, answer.headers, said, refusals)
    return _object(bytes(content))


async def paged(
    page: Callable[[int], Awaitable[list[Hit]]], wanted: int, page_size: int
) -> list[Hit]:
    """Ask for pages, counted from 0, until there are enough hits or a page brings nothing new."""
    found: list[Hit] = []
    for number in range(MAX_PAGES):
        try:
            more = [hit for hit in await page(number) if hit not in found]
        except EngineError:
            if not found:
                raise
            return found  # some hits are better than an error
        found += more
        if len(found) >= wanted or len(more) < page_size:
            break
    return found


def _client() -> httpx2.AsyncClient:
    try:
        # An engine on this machine is not behind the company's proxy.
        return httpx2.AsyncClient(verify=tls_context(), mounts=dict.fromkeys(_LOCAL), timeout=None)
    except ConfigError as error:
        raise EngineError(str(error)) from error
    except (ValueError, ImportError) as error:
        raise EngineError(f"the environment's proxy cannot be used ({error})") from error


def _refusal(
    status: int, headers: Mapping[str, str], said: str, refusals: Mapping[int, str]
) -> EngineError:
    wait_s = retry_after_s(headers)
    if wait_s is None and status == HTTPStatus.TOO_MANY_REQUESTS:
        # Brave's header: seconds until each window opens again, the shortest first.
        first = headers.get("x-ratelimit-reset", "").split(",")[0].strip()
        wait_s = float(first) if first.isdecimal() else None
    if status in refusals:
        reason = refusals[status]
    elif status == HTTPStatus.UNAUTHORIZED:
        reason = "its key was refused (HTTP 401)"
    elif status == HTTPStatus.TOO_MANY_REQUESTS:
        reason = "too many requests, or the quota is used up (HTTP 429)"
    elif 300 <= status < 400:
        reason = f"it redirects elsewhere (HTTP {status}); its address is not right"
    else:
        reason = f"HTTP {status}"
    passing = status in (408, 429) or status >= 500
    words = f"{reason}: {said}" if said else reason
    return EngineError(words, passing=passing, retry_after_s=wait_s, quotes=bool(said))


def _said(body: bytes, secrets: Any) -> str:
    words = _first_text(json_or(body))  # an error page is of no use
    for secret in secrets:
        for part in {secret, secret.removeprefix("Bearer ")} - {""}:
            words = words.replace(part, "***")
    return " ".join(words.split())[:_MAX_WORDS_CHARS]


def _first_text(value: Any, depth: int = 0) -> str:
    """Find the message in an error object; each engine nests it differently."""
    if depth > 4:
        return ""
    if isinstance(value, str):
        return value if depth else ""
    if isinstance(value, list):
        return _first_text(value[0], depth + 1) if value else ""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for key in ("message", "detail", "error_msg", "error", "errors"):
            if fields.get(key):
                return _first_text(fields[key], depth + 1)
    return ""


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        if body.lstrip()[:1] == b"<":
            problem = "it answered with a web page (a captcha, a login, or the wrong address)"
        else:
            problem = "its answer broke off or is not JSON"
        raise EngineError(problem, passing=True) from error
    if not isinstance(answer, dict):
        raise EngineError("its answer is not in the documented form")
    return cast("dict[str, Any]", answer)
