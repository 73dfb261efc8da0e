"""One request and its response: streamed, decompressed within limits, with readable errors."""

import asyncio
import functools
import re
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from importlib.metadata import version
from typing import NoReturn

from httpcore2 import (
    SOCKET_OPTION,
    AnyIOBackend,
    AsyncConnectionPool,
    AsyncNetworkBackend,
    AsyncNetworkStream,
    ConnectError,
    NetworkError,
    ProtocolError,
    Proxy,
    ProxyError,
    Response,
    TimeoutException,
    UnsupportedProtocol,
)

from openmanus_graph.backends.files.text_file import decode_page
from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.backends.web.guard import Guard, environment_upstream
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.safety.open_beneath import size_text
from openmanus_graph.state.addresses import WebAddress, authority

CONNECT_S = 15.0
_TEXT = re.compile(r"text/.*|application/(?:.*[+/-])?(?:json|xml|javascript|yaml|x-ndjson)")
_SHOWN = re.compile(r"(image|audio|video)/|application/pdf")
"""Media types that a browser displays and does not download."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_GZIP = b"\x1f\x8b\x08"
"""The magic bytes of each member of gzip data."""


@dataclass(frozen=True)
class Request:
    """The request, with limits on the response."""

    address: WebAddress
    headers: Mapping[str, str]
    limit_bytes: int
    text_limit_bytes: int
    download_limit_bytes: int = 0
    """The limit of `browser_use`, suggested in errors where it is higher."""


@dataclass(frozen=True)
class Page:
    """A response, of any status."""

    url: str
    """The final URL, after redirects."""
    requested: str
    status: int
    media_type: str
    """Lower case, without parameters; empty without a Content-Type."""
    charset: str | None
    """As the server declares it, which may be wrong."""
    body: bytes = field(repr=False)
    cut: bool
    """Whether the body was truncated."""
    filename: str = ""
    """The file name of the Content-Disposition header, for a download."""
    location: str = field(default="", compare=False)
    """The Location header."""

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
    """Return whether a media type is text, which is useful even when truncated."""
    return _TEXT.fullmatch(media_type) is not None


@functools.cache
def user_agent() -> str:
    """Return the User-Agent; blocks once. Many sites refuse the defaults of HTTP libraries."""
    return f"Mozilla/5.0 (compatible; openmanus-graph/{version('openmanus-graph')})"


async def exchange(request: Request, guard: Guard) -> Page:
    """Send one request and read the response. ToolError if it failed."""
    pool = await asyncio.to_thread(open_pool, request.address, guard)
    try:
        async with pool:
            return await _exchanged(pool, request)
    except (NetworkError, ProxyError, TimeoutException) as error:
        _no_answer(request.address, error)
    except (ProtocolError, UnsupportedProtocol) as error:
        raise ToolError(
            f"{request.address.origin} does not answer as a web server does ({error}). Check host "
            "and port, or try browser_use."
        ) from error


async def _exchanged(pool: AsyncConnectionPool, request: Request) -> Page:
    headers = {
        "User-Agent": user_agent(),
        "Accept-Language": "en;q=0.8,*;q=0.5",
        **request.headers,
        # No others: these are decompressed here, within limits.
        "Accept-Encoding": "gzip, deflate",
    }
    async with pool.stream(
        "GET",
        request.address.url,
        headers=list(headers.items()),
        extensions={"timeout": {"connect": CONNECT_S}},
    ) as response:
        known = _Headers(response)
        text = is_text(known.media_type) or not known.media_type
        limit = request.text_limit_bytes if text else request.limit_bytes
        if not text and known.length is not None and known.length > limit:
            _too_long(request, known, limit)
        body, cut = await _read(response, known.encoding, limit, request.address)
        if cut and not text:
            _too_long(request, known, limit)
        url = request.address.url
        return Page(
            url, url, response.status, known.media_type, known.charset, body, cut, known.filename,
            known["location"],
        )  # fmt: skip


class _Headers:
    """The response headers that are used here."""

    def __init__(self, response: Response) -> None:
        self._message = Message()
        for name, value in response.headers:
            self._message[name.decode("latin-1")] = _as_sent(value)
        typed = self["content-type"].strip()
        self.media_type = self._message.get_content_type() if typed else ""
        charset = self._message.get_param("charset")
        self.charset = charset if isinstance(charset, str) else None
        self.encoding = self["content-encoding"].strip().lower()
        length = self["content-length"].strip()
        self.length = int(length) if length.isdecimal() else None
        self.filename = self._message.get_filename() or ""

    def __getitem__(self, name: str) -> str:
        return str(self._message.get(name, ""))


def _as_sent(value: bytes) -> str:
    """Read a header; servers write names and addresses in UTF-8 although they should not."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return text.replace("\r", " ").replace("\n", " ")


async def _read(
    response: Response, encoding: str, limit: int, address: WebAddress
) -> tuple[bytes, bool]:
    """Return the decompressed body up to the limit, and whether it was truncated."""
    body = bytearray()
    async for piece in _unpacked(response, encoding, limit + 1, address):
        body += piece
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


async def _unpacked(
    response: Response, encoding: str, most: int, address: WebAddress
) -> AsyncIterator[bytes]:
    """Decompress a stream, at most `most` bytes per piece: it may be a decompression bomb."""
    plain = encoding in ("", "identity")
    if not plain and encoding not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(
            f"{address.url} answered in the encoding {encoding!r}, which was not asked for and is "
            "not known here. Try browser_use."
        )
    unpacker = None if plain else _Unpacker()
    async for piece in response.aiter_stream():
        if unpacker is None:
            yield piece
            continue
        try:
            for unpacked in unpacker.unpack(piece, most):
                yield unpacked
        except zlib.error as error:
            raise ToolError(
                f"{address.url} sent damaged data ({error}). Try again, or try browser_use."
            ) from error
        if unpacker.ended:
            return


class _Unpacker:
    """Decompresses gzip and deflate data that arrives in pieces of any size.

    Gzip may have several members, one after the other (RFC 1952, 2.2), and zeros between them.
    Whatever else follows the end is left out, as browsers do.
    """

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._inside = self._gzip = self.ended = False
        self._waiting: bytes = b""
        """The first bytes, while there are too few to detect the format."""

    def unpack(self, piece: bytes, most: int) -> Iterator[bytes]:
        """Decompress a piece, at most `most` bytes at once. zlib.error: it is damaged."""
        packed = self._waiting + piece
        self._waiting = b""
        while packed and not self.ended:
            if not self._inside:
                packed = packed.lstrip(b"\0") if self._gzip else packed
                if len(packed) < len(_GZIP):
                    self._waiting = packed
                    return
                self._begin(packed)
                continue
            yield self._stream.decompress(packed, most)
            packed = self._stream.unconsumed_tail
            if self._stream.eof:
                packed, self._inside = self._stream.unused_data, False
                self.ended = not self._gzip

    def _begin(self, packed: bytes) -> None:
        """Detect the format by the first bytes: some servers send deflate without a zlib header."""
        further, self._gzip = self._gzip, packed.startswith(_GZIP)
        if further and not self._gzip:
            self.ended = True
            return
        self._inside, bits = True, _GZIP_OR_ZLIB
        if not self._gzip:
            try:
                zlib.decompressobj(bits).decompress(packed, 1)
            except zlib.error:
                bits = -zlib.MAX_WBITS
        self._stream = zlib.decompressobj(bits)


def _too_long(request: Request, known: _Headers, limit: int) -> NoReturn:
    declared = known.length or 0  # compressed size, if it is compressed
    size = size_text(declared) if declared > limit else f"more than {size_text(limit)}"
    most = request.download_limit_bytes
    downloads = declared <= most and most > 0 and not _SHOWN.match(known.media_type)
    further = f", or download it with browser_use (up to {size_text(most)})" if downloads else ""
    raise ToolError(
        f"{request.address.url} is {known.media_type} of {size}; the limit is {size_text(limit)}, "
        f"and nothing was kept. Look for a smaller version{further}."
    )


def _no_answer(address: WebAddress, error: Exception) -> NoReturn:
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = text.partition("CERTIFICATE_VERIFY_FAILED] ")[2].partition(" (_ssl")[0]
        raise TrustedToolError(
            f"{address.origin} was reached, but its certificate is not trusted ({reason}). It may "
            "be an impostor: do not send it anything, and find another source."
        ) from error
    if "SSL" in text.upper():
        raise TrustedToolError(
            f"{address.origin} was reached, but no TLS connection came about ({text}). Perhaps it "
            "speaks http:// only on this port."
        ) from error
    raise TrustedToolError(
        f"{address.origin} cannot be reached ({text}). Check host and port, try again later, or "
        "find another source."
    ) from error


class PinnedBackend(AsyncNetworkBackend):
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
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to the first of the checked addresses that answers."""
        failure: ConnectError | None = None
        for address in await self._guard.resolve(host, port):
            try:
                return await self._network.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except ConnectError as error:
                failure = failure or error
        raise failure or ConnectError("no address")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._network.sleep(seconds)


def open_pool(address: WebAddress, guard: Guard) -> AsyncConnectionPool:
    """Return the connections for an address. Blocks: reads certificates and our version."""
    user_agent()
    upstream = environment_upstream(address.scheme, address.host, address.port)
    if upstream is None:
        return AsyncConnectionPool(tls_context(), network_backend=PinnedBackend(guard))
    url = f"{upstream.scheme}://{authority(upstream.host, upstream.port, upstream.scheme)}"
    login = (upstream.username, upstream.password) if upstream.username else None
    return AsyncConnectionPool(tls_context(), proxy=Proxy(url, login))
