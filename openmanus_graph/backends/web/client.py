"""Plain HTTP GET: every redirect is checked, size and time are limited, no cookies."""

import asyncio
import functools
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import httpcore2
from anyio.abc import SocketStream
from httpcore2 import AnyIOBackend
from httpcore2._backends.anyio import AnyIOStream  # it opens no stream on a socket of ours
from urllib3.response import ContentDecoder, DeflateDecoder, GzipDecoder

from openmanus_graph.backends.files.text_file import decode_page
from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.backends.web.guard import Guard, environment_upstream
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.safety.open_beneath import size_text
from openmanus_graph.state.addresses import WebAddress, authority, parse_address

if TYPE_CHECKING:
    from protego import Protego

CONNECT_S = 15.0
TIMEOUT_S = 30.0
MAX_REDIRECTS = 10
TEXT_LIMIT = 5 * 1024 * 1024
"""Bytes of a page in HTML or another kind of text; what follows is left out."""
LIMIT = 50 * 1024 * 1024  # bytes of anything else: documents are of no use in part
AGENT = "openmanus-graph"
_ROBOTS_TIMEOUT_S = 10.0
_ROBOTS_BYTES = 512 * 1024
_REDIRECTS = {301, 302, 303, 307, 308}
_PAGE = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.8,*/*;q=0.7"
_TEXT = re.compile(r"text/.*|application/(?:.*[+/-])?(?:json|xml|javascript|yaml|x-ndjson)")
_SHOWN = re.compile(r"(image|audio|video)/|application/pdf")
"""Media types that a browser displays and does not download."""
_PART_BYTES = 1 << 20  # how much is decompressed at once


@dataclass(frozen=True)
class Page:
    """A response, of any status."""

    url: str  # the final URL, after redirects
    requested: str
    status: int
    media_type: str  # lower case, without parameters; empty without a Content-Type
    charset: str | None  # as the server declares it, which may be wrong
    body: bytes = field(repr=False)
    cut: bool  # whether the body was truncated
    filename: str = ""  # the file name of the Content-Disposition header, for a download
    location: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        """The body as text. Costs time for a large body: use a thread."""
        return decode_page(self.body, self.charset)

    @property
    def reason(self) -> str:
        """The status in words, such as "404 Not Found"."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)


def is_text(media_type: str) -> bool:
    """Return True if a media type is text, which is useful even when truncated."""
    return _TEXT.fullmatch(media_type) is not None


@dataclass(frozen=True)
class _Request:
    address: WebAddress
    headers: Mapping[str, str]
    limit_bytes: int
    text_limit_bytes: int
    download_limit_bytes: int


async def fetch(
    url: str,
    guard: Guard,
    *,
    timeout_s: float = TIMEOUT_S,
    limit_bytes: int = LIMIT,
    text_limit_bytes: int = TEXT_LIMIT,
    headers: Mapping[str, str] | None = None,
    download_limit_bytes: int = 0,
) -> Page:
    """Get a page by HTTP GET. ToolError says why there is none.

    Args:
        guard: Checks each hop.
        timeout_s: For all hops together.
        limit_bytes: A longer body is refused.
        text_limit_bytes: A longer text is cut, and the page says so.
        headers: In addition to the usual ones; not sent to another origin after a redirect.
        download_limit_bytes: What the browser may download; 0 if errors must not suggest that.
    """
    sent = {"Accept": _PAGE, **(headers or {})}
    limits = (limit_bytes, text_limit_bytes, download_limit_bytes)
    request = _Request(guard.check(url), sent, *limits)
    try:
        async with asyncio.timeout(timeout_s):
            return await _follow_redirects(request, guard)
    except TimeoutError as error:
        raise TrustedToolError(
            f"{url} did not answer in full within {timeout_s:g} s. Try again later, or use "
            "another source."
        ) from error


async def _follow_redirects(request: _Request, guard: Guard) -> Page:
    requested, seen = request.address.url, {request.address.url}
    for _ in range(MAX_REDIRECTS + 1):
        try:
            reply = await _exchange(request, guard)
        except TrustedToolError as error:
            if request.address.url == requested:
                raise
            raise ToolError(str(error)) from error  # it contains an address that a server chose
        if reply.status not in _REDIRECTS or not reply.location:
            return replace(reply, requested=requested)
        url = request.address.url
        try:
            following = guard.check(urljoin(url, reply.location.strip()))
        except (ToolError, ValueError) as error:
            raise ToolError(f"{url} redirects, and that was not followed. {error}") from error
        same = following.origin == request.address.origin
        headers = request.headers if same else {"Accept": request.headers["Accept"]}
        request = replace(request, address=following, headers=headers)
        if following.url in seen:
            raise ToolError(
                f"{requested} redirects in a circle (to {following.url} again). It may want "
                "cookies or a login: try browser_use."
            )
        seen.add(following.url)
    raise ToolError(
        f"{requested} redirects more than {MAX_REDIRECTS} times, at last to "
        f"{request.address.url}. Try browser_use, or another source."
    )


async def _exchange(request: _Request, guard: Guard) -> Page:
    pool = await asyncio.to_thread(_open_pool, request.address, guard)
    try:
        async with pool:
            return await _exchange_in(pool, request)
    except (httpcore2.NetworkError, httpcore2.ProxyError, httpcore2.TimeoutException) as error:
        raise _no_answer(request.address.origin, error) from error
    except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
        raise ToolError(
            f"{request.address.origin} does not answer as a web server does ({error}). Check host "
            "and port, or try browser_use."
        ) from error


async def _exchange_in(pool: httpcore2.AsyncConnectionPool, request: _Request) -> Page:
    url = request.address.url
    headers = {
        "User-Agent": _user_agent(),
        "Accept-Language": "en;q=0.8,*;q=0.5",
        **request.headers,
        # No others: these are decompressed here, within limits.
        "Accept-Encoding": "gzip, deflate",
    }
    timeout = {"timeout": {"connect": CONNECT_S}}
    async with pool.stream("GET", url, headers=list(headers.items()), extensions=timeout) as reply:
        received = Message()
        for name, value in reply.headers:
            received[name.decode("latin-1")] = _as_sent(value)
        typed = str(received.get("content-type", "")).strip()
        media_type = received.get_content_type() if typed else ""
        text = is_text(media_type) or not media_type
        limit = request.text_limit_bytes if text else request.limit_bytes
        length = str(received.get("content-length", "")).strip()
        declared = int(length) if length.isdecimal() else 0  # compressed, if it is compressed
        if not text and declared > limit:
            raise _too_long(request, media_type, declared, limit)
        encoding = str(received.get("content-encoding", "")).strip().lower()
        body, cut = await _read(reply, encoding, limit, url)
        if cut and not text:
            raise _too_long(request, media_type, declared, limit)
        charset = received.get_param("charset")
        return Page(
            url, url, reply.status, media_type, charset if isinstance(charset, str) else None,
            body, cut, received.get_filename() or "", str(received.get("location", "")),
        )  # fmt: skip


def _as_sent(value: bytes) -> str:
    """Read a header; servers write names and addresses in UTF-8 although they should not."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return text.replace("\r", " ").replace("\n", " ")


async def _read(
    response: httpcore2.Response, encoding: str, limit: int, url: str
) -> tuple[bytes, bool]:
    """Return the decompressed body up to the limit, and whether it was truncated."""
    plain = encoding in ("", "identity")
    if not plain and encoding not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(
            f"{url} answered in the encoding {encoding!r}, which was not asked for and is not "
            "known here. Try browser_use."
        )
    decoder = None if plain else DeflateDecoder() if encoding == "deflate" else GzipDecoder()
    body = bytearray()
    try:
        async for piece in response.aiter_stream():
            for part in _unpacked(decoder, piece) if decoder else (piece,):
                body += part
                if len(body) > limit:
                    return bytes(body[:limit]), True
    except zlib.error as error:
        raise ToolError(
            f"{url} sent damaged data ({error}). Try again, or try browser_use."
        ) from error
    return bytes(body), False


def _unpacked(decoder: ContentDecoder, piece: bytes) -> Iterator[bytes]:
    """Decompress a piece in parts, because it may be a decompression bomb."""
    yield decoder.decompress(piece, _PART_BYTES)
    while decoder.has_unconsumed_tail:
        yield decoder.decompress(b"", _PART_BYTES)


def _too_long(request: _Request, media_type: str, declared: int, limit: int) -> ToolError:
    size = size_text(declared) if declared > limit else f"more than {size_text(limit)}"
    most = request.download_limit_bytes
    downloads = declared <= most and most > 0 and not _SHOWN.match(media_type)
    further = f", or download it with browser_use (up to {size_text(most)})" if downloads else ""
    return ToolError(
        f"{request.address.url} is {media_type} of {size}; the limit is {size_text(limit)}, "
        f"and nothing was kept. Look for a smaller version{further}."
    )


def _no_answer(origin: str, error: Exception) -> TrustedToolError:
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = text.partition("CERTIFICATE_VERIFY_FAILED] ")[2].partition(" (_ssl")[0]
        return TrustedToolError(
            f"{origin} was reached, but its certificate is not trusted ({reason}). It may "
            "be an impostor: do not send it anything, and find another source."
        )
    if "SSL" in text.upper():
        return TrustedToolError(
            f"{origin} was reached, but no TLS connection came about ({text}). Perhaps it "
            "speaks http:// only on this port."
        )
    return TrustedToolError(
        f"{origin} cannot be reached ({text}). Check host and port, try again later, or "
        "find another source."
    )


class _PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves names with the guard and connects to the checked addresses.

    TLS and the Host header go by the name all the same: they are made above this layer.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        if own := self._guard.own_at(host, port):
            connected = await own.connect(host, port)
            return AnyIOStream(await SocketStream.from_socket(connected))
        failure: httpcore2.ConnectError | None = None
        for address in await self._guard.resolve(host, port):
            try:
                return await self._network.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except httpcore2.ConnectError as error:
                failure = failure or error
        raise failure or httpcore2.ConnectError("no address")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


@functools.cache
def _user_agent() -> str:
    """Return the User-Agent; blocks once. Many sites refuse the defaults of HTTP libraries."""
    return f"Mozilla/5.0 (compatible; openmanus-graph/{version('openmanus-graph')})"


def _open_pool(address: WebAddress, guard: Guard) -> httpcore2.AsyncConnectionPool:
    """Return the connections for an address. Blocks: reads certificates and our version."""
    _user_agent()
    upstream = environment_upstream(address.scheme, address.host, address.port)
    if upstream is None or guard.own_at(address.host, address.port):
        return httpcore2.AsyncConnectionPool(tls_context(), network_backend=_PinnedBackend(guard))
    url = f"{upstream.scheme}://{authority(upstream.host, upstream.port, upstream.scheme)}"
    login = (upstream.username, upstream.password) if upstream.username else None
    return httpcore2.AsyncConnectionPool(tls_context(), proxy=httpcore2.Proxy(url, login))


class Robots:
    """The rules of the sites that a run visits.

    protego reads them: the standard library's parser knows no wildcards.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._rules: dict[str, asyncio.Task[Protego | None]] = {}

    async def allow(self, url: str) -> bool:
        """Return whether robots.txt allows this page; a site without rules does."""
        address = parse_address(url)
        if address.origin not in self._rules:
            self._rules[address.origin] = asyncio.ensure_future(self._read(address.origin))
        # Several pages wait for it; a cancelled one must not cancel it for the others.
        rules = await asyncio.shield(self._rules[address.origin])
        return rules is None or rules.can_fetch(address.url, AGENT)

    async def _read(self, origin: str) -> "Protego | None":
        try:
            page = await fetch(
                f"{origin}/robots.txt", self._guard, timeout_s=_ROBOTS_TIMEOUT_S,
                text_limit_bytes=_ROBOTS_BYTES,
            )  # fmt: skip
        except ToolError:
            return None  # fetching the page reports the error
        if page.status != 200:
            return None

        def parse() -> "Protego":
            from protego import Protego

            return Protego.parse(page.body.decode("utf-8", "replace"))

        return await asyncio.to_thread(parse)
